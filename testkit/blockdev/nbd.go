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
	"slices"
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

	optGo                           = 7
	repAck, repInfo, repUnsupported = 1, 3, 1<<31 + 1
	infoExport, infoBlockSize       = 0, 3

	transmission = 1<<0 | 1<<2 | 1<<3 | 1<<5 | 1<<6 // has flags, flush, FUA, trim, write zeroes

	cmdRead, cmdWrite, cmdDisconnect, cmdFlush, cmdTrim, cmdZero = 0, 1, 2, 3, 4, 6
	flagFUA                                                      = 1 << 0

	maxOption  = 64 << 10
	maxRequest = 32 << 20 // bytes of data
)

// errProtocol means that a client does not speak NBD, or asks for more than the
// server offers.
var errProtocol = errors.New("not the NBD protocol")

// Serve serves the disk to one client of a Unix socket until ctx ends. Then it
// closes the connection, and returns when the last request is complete. The
// error is that of the socket; a client that breaks the protocol is
// disconnected.
func (r *Recorder) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	conn, err := l.Accept()
	if ctx.Err() != nil && conn == nil {
		return nil
	}
	if err != nil {
		return err
	}

	hangUp := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer hangUp()
	_ = r.serve(conn) // the client sees the end of the connection
	_ = conn.Close()
	<-ctx.Done()

	return nil
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

		if request.Type == cmdRead || request.Type == cmdWrite {
			if request.Length > maxRequest {
				return fmt.Errorf("%w: %d bytes", errProtocol, request.Length)
			}

			data = slices.Grow(data[:0], int(request.Length))[:request.Length]
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

	must.OK(c.write(uint64(magicServer), uint64(magicOption), uint16(fixedNewstyle|noZeroes)))
	must.OK(c.out.Flush())
	var flags uint32
	must.OK(c.read(&flags))
	for {
		var magic uint64
		var option, length uint32
		must.OK(c.read(&magic, &option, &length))
		if magic != magicOption || length > maxOption {
			return errProtocol
		}

		must.Get(io.CopyN(io.Discard, c.in, int64(length)))
		answer := func(kind uint32, data []byte) {
			must.OK(c.write(uint64(magicAnswer), option, kind, uint32(len(data)), data))
		}
		if option != optGo {
			answer(repUnsupported, nil)
			must.OK(c.out.Flush())
			continue
		}

		export := binary.BigEndian.AppendUint16(nil, infoExport)
		export = binary.BigEndian.AppendUint64(export, uint64(r.Size()))
		answer(repInfo, binary.BigEndian.AppendUint16(export, transmission))
		sizes := binary.BigEndian.AppendUint16(nil, infoBlockSize)
		for _, size := range []uint32{Sector, 4096, maxRequest} { // minimum, preferred, maximum
			sizes = binary.BigEndian.AppendUint32(sizes, size)
		}

		answer(repInfo, sizes)
		answer(repAck, nil)

		return nil
	}
}
