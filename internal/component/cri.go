// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"bytes"
	"cmp"
	"context"
	be "encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// maxAnswer is how much the runtime may answer, in bytes: the kubelet's own
// limit.
const maxAnswer = 16 << 20

// CallRuntime makes a request of the CRI, such as RuntimeService/Version, and
// returns the answer. It speaks as much of gRPC as evenkeel's few requests
// need: the library and the generated code of the whole CRI would cost each
// agent 2.5 MiB of memory. Like the kubelet on Linux, it supports only unix
// sockets. The error is errors.ErrUnsupported if the runtime does not know the
// request.
func CallRuntime(ctx context.Context, endpoint, method string, message Message) (Message, error) {
	path, err := socketPath(endpoint)
	if err != nil {
		return nil, err
	}

	transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true, Protocols: &http.Protocols{}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	// a valid URL
	request, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/runtime.v1."+method, bytes.NewReader(frame(message)))
	request.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}

	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	trailer := func(name string) string { return cmp.Or(response.Trailer.Get(name), response.Header.Get(name)) }
	text, _ := url.PathUnescape(trailer("Grpc-Message")) // empty if it is not encoded as it should be
	switch code := trailer("Grpc-Status"); {
	case err != nil:
		return nil, err
	case len(answer) > maxAnswer:
		return nil, fmt.Errorf("the answer has more than %d MiB", maxAnswer>>20)
	case code == "12":
		return nil, fmt.Errorf("%w: %s", errors.ErrUnsupported, text)
	case code != "" && code != "0":
		return nil, fmt.Errorf("%s (gRPC code %s)", cmp.Or(text, "no reason was given"), code)
	case code == "" || len(answer) < 5 || !bytes.Equal(answer, frame(answer[5:])):
		return nil, fmt.Errorf("HTTP status %s with %d bytes is no answer of gRPC", response.Status, len(answer))
	}

	return answer[5:], nil
}

// frame returns a message as gRPC sends it: not compressed, and behind its
// size.
func frame(m Message) []byte {
	return append(be.BigEndian.AppendUint32([]byte{0}, uint32(len(m))), m...)
}

// Message is an encoded message of the CRI, a string or, as protobuf encodes
// it, a number.
type Message []byte

// All returns the values of a repeated field.
func (m Message) All(field protowire.Number) (values []Message) {
	for len(m) > 0 {
		number, kind, header := protowire.ConsumeTag(m)
		size := protowire.ConsumeFieldValue(number, kind, m[max(0, header):])
		if header < 0 || size < 0 {
			break // it is damaged
		}

		value := m[header : header+size]
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		if m = m[header+size:]; number == field {
			values = append(values, value)
		}
	}

	return values
}

// Get returns the value of a field; empty if it has the default.
func (m Message) Get(field protowire.Number) Message { return slices.Concat(m.All(field)...) }
