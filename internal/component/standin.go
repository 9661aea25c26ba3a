// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// standInMethods are the requests that a stand-in passes on: those with which a kubelet builds itself. They change nothing.
var standInMethods = []string{"RuntimeService/Version", "RuntimeService/RuntimeConfig", "ImageService/ImageFsInfo"}

// startStandIn starts a stand-in for a container runtime, for one dry run, and returns its endpoint. It knows only standInMethods, so
// a kubelet that continues where it should have stopped reaches no container. It does not start its container manager either, because
// the runtime never reports its status. stop ends the stand-in.
func startStandIn(runtime, dir string) (endpoint string, stop func(), err error) {
	handle, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	name := "runtime.sock"
	if strings.HasSuffix(runtime, "crio.sock") { // the kubelet measures with another program if its runtime's socket has this name
		name = "crio.sock"
	}
	// The path of a socket is limited to 107 bytes, and the directory's own can be longer.
	path := fmt.Sprintf("/proc/%d/fd/%d/%s", os.Getpid(), handle.Fd(), name)
	listener, err := net.Listen("unix", path)
	if err != nil {
		return "", nil, errors.Join(atomicfile.WithStableName(err, path, name), handle.Close())
	}
	server := &http.Server{Protocols: &http.Protocols{}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := strings.TrimPrefix(r.URL.Path, "/runtime.v1.")
		answer, err := Message(nil), errors.ErrUnsupported
		if slices.Contains(standInMethods, method) {
			answer, err = CallRuntime(r.Context(), runtime, method, nil)
		}
		w.Header().Set("Content-Type", "application/grpc")
		status := func(code, message string) {
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", code)
			w.Header().Set(http.TrailerPrefix+"Grpc-Message", url.PathEscape(message))
		}
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			status("12", "unknown to this stand-in of the container runtime")
		case err != nil:
			status("14", err.Error())
		default:
			_, _ = w.Write(frame(answer)) // a kubelet that has ended needs no answer
			status("0", "")
		}
	})}
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(listener) }() // until stop
	return "unix://" + path, func() { _ = errors.Join(server.Close(), handle.Close()) }, nil
}
