// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package blockdev

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// The protocol NBD:
// https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md
const (
	magicServer  = 0x4e42444d41474943 // NBDMAGIC
	magicOption  = 0x49484156454f5054 // IHAVEOPT
	magicAnswer  = 0x3e889045565a9
	magicRequest = 0x25609513
	magicReply   = 0x67446698

	fixedNewstyle, noZeroes = 1 << 0, 1 << 1

	optExportName, optAbort, optInfo, optGo = 1, 2, 6, 7
	repAck, repInfo                         = 1, 3
	repUnsupported, repInvalid              = 1<<31 + 1, 1<<31 + 3
	infoExport, infoBlockSize               = 0, 3

	transmission = 1<<0 | 1<<2 | 1<<3 | 1<<5 | 1<<6 // has flags, flush, FUA, trim, write zeroes

	cmdRead, cmdWrite, cmdDisconnect, cmdFlush, cmdTrim, cmdZero = 0, 1, 2, 3, 4, 6
	flagFUA                                                      = 1 << 0

	maxOption  = 64 << 10
	maxRequest = 32 << 20 // bytes of data
)

// errProtocol means that a client does not speak NBD, or asks for more than the
// server offers.
var errProtocol = errors.New("not the NBD protocol")

// Serve serves the disk on a Unix socket until ctx ends. Then it closes all
// connections and returns when their last requests are complete. The error is
// that of the socket; clients that break the protocol are disconnected.
func (r *Recorder) Serve(ctx context.Context, l net.Listener) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			if conn != nil {
				_ = conn.Close()
			}

			return nil
		}

		if err != nil {
			return err
		}

		conns.Go(func() {
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer stop()
			defer conn.Close()
			_ = r.serve(conn) // the client sees the end of the connection
		})
	}
}

// client is a connection.
type client struct {
	in  *bufio.Reader
	out *bufio.Writer
}

func (c client) read(values ...any) error {
	for _, v := range values {
		if err := binary.Read(c.in, binary.BigEndian, v); err != nil {
			return err
		}
	}

	return nil
}

func (c client) write(values ...any) error {
	for _, v := range values {
		if err := binary.Write(c.out, binary.BigEndian, v); err != nil {
			return err
		}
	}

	return nil
}

func (r *Recorder) serve(conn net.Conn) (err error) {
	defer must.Catch(&err)

	c := client{bufio.NewReader(conn), bufio.NewWriter(conn)}
	must.OK(r.negotiate(c))
	var data []byte
	for {
		must.OK(c.out.Flush())
		var request struct {
			Magic  uint32
			Flags  uint16
			Type   uint16
			Handle uint64
			Offset uint64
			Length uint32
		}
		must.OK(c.read(&request))
		if request.Magic != magicRequest || request.Type == cmdDisconnect {
			return errProtocol
		}

		moves := request.Type == cmdRead || request.Type == cmdWrite
		if moves && request.Length > maxRequest {
			return fmt.Errorf("%w: %d bytes", errProtocol, request.Length)
		}

		if moves {
			if cap(data) < int(request.Length) {
				data = make([]byte, request.Length)
			}

			data = data[:request.Length]
		}

		if request.Type == cmdWrite {
			must.Get(io.ReadFull(c.in, data)) // of a half-transmitted write nothing is written
		}

		durable := request.Flags&flagFUA != 0
		off := int64(min(request.Offset, 1<<62))
		var err error
		switch request.Type {
		case cmdRead:
			_, err = r.ReadAt(data, off)
		case cmdWrite:
			err = r.Write(data, off, durable)
		case cmdFlush:
			err = r.Flush()
		case cmdTrim, cmdZero:
			err = r.Zero(off, request.Length, durable)
		default:
			err = syscall.EINVAL
		}

		must.OK(c.write(uint32(magicReply), errno(err), request.Handle))
		if request.Type == cmdRead && err == nil {
			must.Get(c.out.Write(data))
		}
	}
}

// errno returns the number of an error in the protocol.
func errno(err error) uint32 {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, syscall.EINVAL):
		return uint32(syscall.EINVAL)
	case errors.Is(err, syscall.ENOSPC):
		return uint32(syscall.ENOSPC)
	}

	return uint32(syscall.EIO)
}

// negotiate ends when the client has chosen the disk, whatever name it uses for
// it.
func (r *Recorder) negotiate(c client) (err error) {
	defer must.Catch(&err)

	must.OK(errors.Join(c.write(uint64(magicServer), uint64(magicOption), uint16(fixedNewstyle|noZeroes)), c.out.Flush()))
	var flags uint32
	must.OK(c.read(&flags))
	for {
		var magic uint64
		var option, length uint32
		must.OK(c.read(&magic, &option, &length))
		if magic != magicOption || length > maxOption {
			return errProtocol
		}

		data := make([]byte, length)
		must.Get(io.ReadFull(c.in, data))
		answer := func(kind uint32, data []byte) error {
			return c.write(uint64(magicAnswer), option, kind, uint32(len(data)), data)
		}
		var err error
		switch option {
		case optExportName:
			err = c.write(uint64(r.Size()), uint16(transmission))
			if flags&noZeroes == 0 {
				err = errors.Join(err, c.write(make([]byte, 124)))
			}

			return err
		case optInfo, optGo:
			if len(data) < 6 || uint64(binary.BigEndian.Uint32(data)) > uint64(len(data)-6) {
				err = answer(repInvalid, nil)
				break
			}

			export := binary.BigEndian.AppendUint16(nil, infoExport)
			export = binary.BigEndian.AppendUint64(export, uint64(r.Size()))
			export = binary.BigEndian.AppendUint16(export, transmission)
			sizes := binary.BigEndian.AppendUint16(nil, infoBlockSize)
			for _, size := range []uint32{Sector, 4096, maxRequest} { // minimum, preferred, maximum
				sizes = binary.BigEndian.AppendUint32(sizes, size)
			}

			err = errors.Join(answer(repInfo, export), answer(repInfo, sizes), answer(repAck, nil))
			if option == optGo {
				return err
			}
		case optAbort:
			return errors.Join(answer(repAck, nil), c.out.Flush(), errProtocol)
		default:
			err = answer(repUnsupported, nil)
		}

		must.OK(errors.Join(err, c.out.Flush()))
	}
}
