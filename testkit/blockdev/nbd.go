// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package blockdev

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// The protocol NBD, with the old negotiation, in which the client is not asked:
// https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md
const (
	magicServer  = 0x4e42444d41474943 // NBDMAGIC
	magicOld     = 0x00420281861253
	magicRequest = 0x25609513
	magicReply   = 0x67446698

	transmission = 1<<0 | 1<<2 | 1<<3 // has flags, flush, FUA

	cmdRead, cmdWrite, cmdDisconnect, cmdFlush = 0, 1, 2, 3
	flagFUA                                    = 1 << 0

	maxRequest = 32 << 20 // bytes of data
)

// errProtocol means that a client does not speak NBD, asks for more than the
// server offers, or says goodbye.
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

func (r *Recorder) serve(conn net.Conn) (err error) {
	defer must.Catch(&err)

	in, out := bufio.NewReader(conn), bufio.NewWriter(conn)
	send := func(values ...any) {
		for _, v := range values {
			must.OK(binary.Write(out, binary.BigEndian, v))
		}
	}
	send(uint64(magicServer), uint64(magicOld), r.Size(), uint32(transmission), [124]byte{})
	var data []byte
	for {
		must.OK(out.Flush())
		var request struct {
			Magic  uint32
			Flags  uint16
			Type   uint16
			Handle uint64
			Offset uint64
			Length uint32
		}
		must.OK(binary.Read(in, binary.BigEndian, &request))
		if request.Magic != magicRequest || request.Type == cmdDisconnect || request.Length > maxRequest {
			return errProtocol
		}

		data = slices.Grow(data[:0], int(request.Length))[:request.Length]
		off := int64(min(request.Offset, 1<<62))
		var err error
		switch request.Type {
		case cmdRead:
			_, err = r.ReadAt(data, off)
		case cmdWrite:
			must.Get(io.ReadFull(in, data)) // of a half-transmitted write nothing is written
			err = r.Write(data, off, request.Flags&flagFUA != 0)
		case cmdFlush:
			err = r.Flush()
		default:
			err = syscall.EINVAL
		}

		send(uint32(magicReply), errno(err), request.Handle)
		if request.Type == cmdRead && err == nil {
			must.Get(out.Write(data))
		}
	}
}

// errno returns the number of an error in the protocol, which is that of Linux.
func errno(err error) uint32 {
	number, is := errors.AsType[syscall.Errno](err)
	switch {
	case err == nil:
		return 0
	case is:
		return uint32(number)
	}

	return uint32(syscall.EIO)
}
