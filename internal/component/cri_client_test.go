// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// shortDir returns a directory whose sockets have short paths.
func shortDir(t *testing.T) string {
	t.Helper()
	dir := assert.Value(os.MkdirTemp("", "ek"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestErrorsOfTheRuntimeAreReturned(t *testing.T) {
	socket := shortDir(t) + "/s"
	runtime := startCRI(t, socket)
	for _, tt := range []struct {
		err         error
		want        string
		unsupported bool
	}{
		{nil, "<nil>", false},
		{status.Error(codes.Unimplemented, "an old runtime"), "unsupported operation: an old runtime", true},
		{status.Error(codes.Internal, "100% broken, ü"), "100% broken, ü (gRPC code 13)", false},
		{status.Error(codes.NotFound, ""), "no reason was given (gRPC code 5)", false},
	} {
		runtime["RuntimeService/RuntimeConfig"] = tt.err
		_, err := CallRuntime(t.Context(), socket, "RuntimeService/RuntimeConfig", nil)
		got := fmt.Sprint(err)
		assert.That(t, got == tt.want && errors.Is(err, errors.ErrUnsupported) == tt.unsupported, "got %q, want %q", got, tt.want)
	}

	_, err := CallRuntime(t.Context(), socket, "RuntimeService/NoSuchRequest", nil)
	assert.Is(t, err, errors.ErrUnsupported, "a request that nobody knows")
}

// serveH2 serves HTTP/2 without TLS at a socket.
func serveH2(t *testing.T, socket string, handler http.HandlerFunc) {
	t.Helper()
	server := &http.Server{Handler: handler, Protocols: &http.Protocols{}}
	server.Protocols.SetUnencryptedHTTP2(true)
	listener := assert.Value(net.Listen("unix", socket))(t)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
}

func TestAnAnswerThatIsNotOfGRPCIsAnError(t *testing.T) {
	for what, tt := range map[string]struct {
		status          int
		body, code, err string
	}{
		"a message":            {200, "\x00\x00\x00\x00\x02\x0a\x00", "0", "<nil>"},
		"an empty message":     {200, "\x00\x00\x00\x00\x00", "0", "<nil>"},
		"no status":            {200, "\x00\x00\x00\x00\x00", "", "HTTP status 200 OK with 5 bytes is no answer of gRPC"},
		"no message":           {200, "", "0", "HTTP status 200 OK with 0 bytes is no answer of gRPC"},
		"a compressed message": {200, "\x01\x00\x00\x00\x00", "0", "HTTP status 200 OK with 5 bytes is no answer of gRPC"},
		"a very long message":  {200, "\x00\xff\xff\xff\xff\x0a", "0", "HTTP status 200 OK with 6 bytes is no answer of gRPC"},
		"two messages":         {200, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "0", "HTTP status 200 OK with 10 bytes is no answer of gRPC"},
		"a huge message":       {200, "\x00\x01\x00\x00\x00" + strings.Repeat("x", maxAnswer), "0", "the answer has more than 16 MiB"},
		"another server":       {404, "404 page not found", "", "HTTP status 404 Not Found with 18 bytes is no answer of gRPC"},
	} {
		socket := shortDir(t) + "/s"
		serveH2(t, socket, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, tt.body)
			if tt.code != "" {
				w.Header().Set(http.TrailerPrefix+"Grpc-Status", tt.code)
			}
		})
		err := assert.Err(CallRuntime(t.Context(), socket, "RuntimeService/Version", nil))
		assert.Equal(t, fmt.Sprint(err), tt.err, what)
	}
}

// The agent asks every few seconds.
func TestAHungRuntimeKeepsNoConnections(t *testing.T) {
	socket := shortDir(t) + "/s"
	listener := assert.Value(net.Listen("unix", socket))(t)
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := CallRuntime(ctx, socket, "RuntimeService/Version", nil)
	assert.Is(t, err, context.DeadlineExceeded)
	conn := assert.Value(listener.Accept())(t)
	defer conn.Close()
	assert.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	assert.NoError(t, assert.Err(io.Copy(io.Discard, conn)), "the connection is still open")
}

func TestMessagesAreDecodedAsTheirFieldsAre(t *testing.T) {
	encoded := assert.Value(proto.Marshal(&runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{
		{Id: "1", CreatedAt: 1 << 40, Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
		{Id: "2", State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}}))(t)
	list := Message(encoded).All(1)
	assert.That(t, len(list) == 2, "%d containers", len(list))
	labels := list[0].All(8)
	assert.That(t, len(labels) == 1 && string(labels[0].Get(1)) == "a" && string(labels[0].Get(2)) == "b", "labels %q", labels)
	assert.That(t, string(list[1].Get(1)) == "2" && string(list[1].Get(6)) == "\x01" && len(list[0].Get(6)) == 0 && list[1].All(8) == nil, "%q", list)
}

func FuzzAMessageOfTheRuntime(f *testing.F) {
	f.Add([]byte{0x0a, 4, 0x12, 2, 8, 1})
	f.Add([]byte{0x0b, 0x0c, 0x0d, 1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, data []byte) {
		total := 0
		for _, value := range Message(data).All(1) {
			total += len(value)
		}
		assert.That(t, total <= len(data) && len(Message(data).Get(1)) == total, "%d bytes of %d", total, len(data))
	})
}
