// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// cri is a container runtime that only answers the requests of a starting
// kubelet. Its fields are the errors that it returns; set them before the first
// request.
type cri struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	version, config error
	hangs           bool // blocks the request for its cgroup driver
}

func (c *cri) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "test", RuntimeVersion: "1", RuntimeApiVersion: "v1"}, c.version
}

func (c *cri) RuntimeConfig(ctx context.Context, _ *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	if c.hangs {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err() // an answer could still reach the client before its own deadline
	}

	linux := &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}

	return &runtimeapi.RuntimeConfigResponse{Linux: linux}, c.config
}

func (c *cri) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{}, nil
}

// What no dry run asks: stand-ins know none of these.
func (c *cri) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{}, nil
}

func (c *cri) StopPodSandbox(context.Context, *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (c *cri) UpdateRuntimeConfig(context.Context, *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// startCRI starts a container runtime at a socket.
func startCRI(t testing.TB, socket string) *cri {
	t.Helper()
	listener := assert.Value(net.Listen("unix", socket))(t)
	c, server := &cri{}, grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, c)
	runtimeapi.RegisterImageServiceServer(server, c)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	return c
}

// The errors in runtimeErrors are no API of the kubelet, so every supported
// version is tested.
func TestRuntimeErrorsOfEachKubeletAreRecognized(t *testing.T) {
	dir := shortDir(t)
	unavailable := status.Error(codes.Unavailable, "gone")
	for _, path := range realKubelets(t) {
		name := filepath.Base(filepath.Dir(path))
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, tt := range []struct {
				what    string
				make    func(socket string)
				more    string // more configuration
				message string // prefix of the message
			}{
				{"none", func(string) {}, "", "validate service connection: validate CRI v1 runtime API for endpoint "},
				{"one that hangs", func(socket string) {
					listener := assert.Value(net.Listen("unix", socket))(t)
					t.Cleanup(func() { _ = listener.Close() })
				}, "runtimeRequestTimeout: 1s\n", "validate service connection: validate CRI v1 runtime API for endpoint "},
				{"one that goes away after the first answer", func(socket string) { startCRI(t, socket).config = unavailable }, "", "rpc error: code = Unavailable desc = gone"},
				{"one that hangs after it", func(socket string) { startCRI(t, socket).hangs = true }, "runtimeRequestTimeout: 3s\n", "rpc error: code = DeadlineExceeded desc = "},
			} {
				socket := filepath.Join(dir, name+strings.ReplaceAll(tt.what, " ", ""))
				tt.make(socket)
				data := config("containerRuntimeEndpoint: unix://" + socket + "\n" + tt.more)
				k := assert.Value(ParseKubelet([]string{path, "--config=" + filepath.Join(t.TempDir(), "none")}))(t)
				h := dryRunner(t, k)
				h.Deadline = time.Minute // the kubelet tries three times
				a := h.run(t.Context(), dryRun{stage: 2, config: wholeConfig(data), runtime: "unix://" + socket})
				assert.That(t, a.outcome == Rejected && a.runtimeFailed && strings.HasPrefix(a.message, tt.message), "%s: %s, runtimeFailed %v: %s", tt.what, a.outcome, a.runtimeFailed, a.message)
			}
		})
	}
}
