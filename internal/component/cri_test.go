// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// answers are those of a container runtime to the requests of a starting
// kubelet, and to three that no dry run makes: stand-ins do not know them.
var answers = map[string]proto.Message{
	"RuntimeService/Version": &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "test", RuntimeVersion: "1", RuntimeApiVersion: "v1"},
	"RuntimeService/RuntimeConfig": &runtimeapi.RuntimeConfigResponse{
		Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS},
	},
	"ImageService/ImageFsInfo":           &runtimeapi.ImageFsInfoResponse{},
	"RuntimeService/Status":              &runtimeapi.StatusResponse{},
	"RuntimeService/StopPodSandbox":      &runtimeapi.StopPodSandboxResponse{},
	"RuntimeService/UpdateRuntimeConfig": &runtimeapi.UpdateRuntimeConfigResponse{},
}

// errHangs is the error of a request that is not answered.
var errHangs = errors.New("hangs")

// startCRI starts a container runtime at a socket. The caller may set, between
// requests, the errors with which it answers.
func startCRI(t testing.TB, socket string) (errs map[string]error) {
	t.Helper()
	errs = map[string]error{}
	listener := assert.Value(net.Listen("unix", socket))(t)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		path, _ := grpc.MethodFromServerStream(stream)
		method := strings.TrimPrefix(path, "/runtime.v1.")
		switch answer, known := answers[method]; {
		case !known:
			return status.Error(codes.Unimplemented, method)
		case errs[method] == errHangs:
			<-stream.Context().Done()
			return status.FromContextError(stream.Context().Err()).Err() // an answer could still reach the client before its own deadline
		case errs[method] != nil:
			return errs[method]
		default:
			return stream.SendMsg(answer)
		}
	}))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	return errs
}

// The errors in runtimeErrors are no API of the kubelet, so every supported
// version is tested.
func TestRuntimeErrorsOfEachKubeletAreRecognized(t *testing.T) {
	dir := shortDir(t)
	const asked = "RuntimeService/RuntimeConfig" // after the version
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
				{"one that goes away after the first answer", func(socket string) { startCRI(t, socket)[asked] = status.Error(codes.Unavailable, "gone") }, "", "rpc error: code = Unavailable desc = gone"},
				{"one that hangs after it", func(socket string) { startCRI(t, socket)[asked] = errHangs }, "runtimeRequestTimeout: 3s\n", "rpc error: code = DeadlineExceeded desc = "},
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
