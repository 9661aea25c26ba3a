// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// cluster has the node whose containerd all tests use. TestMain stops it.
var cluster *localcluster.Cluster

var startNode = sync.OnceValues(func() (_ *localcluster.Node, err error) {
	ctx := context.Background()
	if cluster, err = localcluster.Start(ctx, localcluster.Options{APIServerLater: true}); err != nil {
		return nil, err
	}

	return cluster.NewNode(ctx, "node-a")
})

func sharedNode(t *testing.T) *localcluster.Node {
	t.Helper()
	localcluster.SkipShort(t)
	n, err := startNode()
	if errors.Is(err, localcluster.ErrNoNode) {
		t.Skip(err)
	}

	assert.NoError(t, err)

	return n
}

// startContainerd returns the endpoint of a containerd.
func startContainerd(t *testing.T) string {
	t.Helper()
	return sharedNode(t).RuntimeEndpoint()
}

func TestVerdictsOfTheRealKubeletAtStage2(t *testing.T) {
	endpoint := "containerRuntimeEndpoint: " + startContainerd(t) + "\n"
	tests := []struct {
		name, data string
		stage      int
		message    string // a part; "" for accepted
	}{
		{"the defaults", "", 2, ""},
		{"JSON logging", "logging: {format: json}\n", 2, ""},
		{"webhooks, as a real node has them", "authentication: {webhook: {enabled: true}}\nauthorization: {mode: Webhook}\nserverTLSBootstrap: true\nrotateCertificates: true\n", 2, ""},
		{"an eviction threshold", "evictionHard: {memory.available: banana}\n", 2, "quantities must match the regular expression"},
		{"an unknown CPU manager policy", "cpuManagerPolicy: nope\n", 2, `unknown policy: "nope"`},
		{"a static CPU manager without reservation", "cpuManagerPolicy: static\n", 2, "[cpumanager] unable to determine reserved CPU resources for static policy"},
		{"CPUs that are not there", "reservedSystemCPUs: 0-99\n", 2, "reserved-cpus: 0-99 is not a subset of online-cpus: "},
		{"a client CA that is not there", "authentication: {x509: {clientCAFile: /nonexistent/ca}}\n", 0, "authentication.x509.clientCAFile: /nonexistent/ca does not exist"},
		{"a cgroup that is not there", "cgroupRoot: /nonexistent\n", 2, `invalid configuration: cgroup ["nonexistent"] has some missing paths: `},
		{"a runtime that is none", "containerRuntimeEndpoint: unix:///etc/hostname\n", 2,
			"containerRuntimeEndpoint: /etc/hostname is not a socket"},
		{"a sysctl that has no namespace", "allowedUnsafeSysctls: [kernel.pid_max]\n", 2, `the sysctls "kernel.pid_max" are not known to be namespaced`},
		{"the name of a sysctl", "allowedUnsafeSysctls: ['a\"b', net.core.somaxconn]\n", 2, `sysctl "a\"b" must have at most 253 characters`},
		{"sysctls", "allowedUnsafeSysctls: [net.core.somaxconn, 'kernel.msg*']\n", 2, ""},
	}
	before := nodeState(t)
	for _, path := range realKubelets(t) {
		k := kubeletWith(t, endpoint, "--node-ip=127.0.0.1", "--hostname-override=n1")
		k.Path = path
		h := dryRunner(t, k)
		for _, tt := range tests {
			t.Run(filepath.Base(filepath.Dir(path))+" "+tt.name, func(t *testing.T) {
				data := tt.data
				if !strings.Contains(data, "containerRuntimeEndpoint") {
					data += endpoint
				}

				v := h.Check(context.Background(), Candidate{Data: config(data)}, "")
				assert.That(t, v.Effective != nil || v.Stage <= 0, "no effective configuration")
				if tt.message == "" {
					checkVerdict(t, v, Accepted, 2, "")
					return
				}

				assert.That(t, v.Outcome == Rejected && v.Stage == tt.stage &&
					strings.Contains(v.Message, tt.message) && !strings.HasPrefix(v.Message, "failCgroupV1"),
					"got %s at stage %d: %s", v.Outcome, v.Stage, v.Message)
			})
		}
	}

	assert.NoDiff(t, cmp.Diff(before, nodeState(t)), "the dry runs left something on the node")
}

// nodeState describes what a dry run must not change, as long as no other
// kubelet runs on this machine: mounts, and files where a kubelet stores its
// state, except for an empty directory that stage 2 creates like every kubelet.
func nodeState(t *testing.T) map[string][]string {
	t.Helper()
	state := map[string][]string{}
	_ = filepath.WalkDir("/var/lib/kubelet", func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != "/var/lib/kubelet" && !strings.HasPrefix(path, "/var/lib/kubelet/device-plugins") {
			state["files"] = append(state["files"], path)
		}

		return nil
	})
	mounts := assert.Value(os.ReadFile("/proc/self/mounts"))(t)
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, "dryrun-") {
			state["mounts"] = append(state["mounts"], line)
		}
	}

	return state
}

// The ports of the configuration are those of servers that must go on to
// answer.
func TestADryRunChangesNothingOnTheNode(t *testing.T) {
	var servers []*httptest.Server
	local := "containerRuntimeEndpoint: " + startContainerd(t) + "\naddress: 127.0.0.1\n"
	for _, field := range []string{"port", "healthzPort"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
		t.Cleanup(s.Close)
		local += fmt.Sprintf("%s: %d\n", field, s.Listener.Addr().(*net.TCPAddr).Port)
		servers = append(servers, s)
	}

	tools, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	plugins, mounter := filepath.Join(tools, "plugins"), filepath.Join(tools, "mounter")
	for _, dir := range []string{filepath.Join(plugins, "evenkeel.test~driver"), filepath.Join(mounter, "rootfs", "etc")} {
		assert.NoError(t, os.MkdirAll(dir, 0o700))
	}

	write(t, filepath.Join(plugins, "evenkeel.test~driver", "driver"), "#!/bin/sh\necho a volume plugin >>"+log+"\n", 0o755)
	for _, tool := range []string{"mount", "umount", "iptables", "ip6tables", "iptables-save", "iptables-restore", "nft",
		"ip", "sysctl", "modprobe", "systemd-run", "systemctl", "losetup", "mkfs.ext4", "du", "nsenter"} {
		write(t, filepath.Join(tools, tool), "#!/bin/sh\necho "+tool+" \"$@\" >>"+log+"\nexit 1\n", 0o755)
	}

	h := dryRunner(t, kubeletWith(t, local, "--experimental-mounter-path="+mounter))
	t.Setenv("PATH", tools)
	checkVerdict(t, h.Check(context.Background(), Candidate{Data: config(local + "volumePluginDir: " + plugins + "\npodCIDR: 192.0.2.0/24\nclusterDNS: [192.0.2.1]\n")}, ""),
		Accepted, 2, "")
	assert.That(t, len(assert.Value(os.ReadDir(filepath.Join(mounter, "rootfs", "etc")))(t)) == 0, "the dry run wrote into the directory of the mounter")
	for _, s := range servers {
		health := NewHealth(s.URL + "/healthz")
		assert.NoError(t, health.Healthz(context.Background()), s.URL)
		health.Close()
	}

	calls := assert.Value(os.ReadFile(log))(t)
	for call := range strings.Lines(string(calls)) {
		// umount reports "not mounted" for an empty directory in TMPDIR, which
		// belongs to the test.
		assert.That(t, strings.HasPrefix(call, "umount "+h.scratch+"/dryrun-"), "the dry run called %s", call)
	}
}

func TestADryRunMakesNoControlGroups(t *testing.T) {
	// A cgroup root that only this test uses.
	endpoint := "containerRuntimeEndpoint: " + startContainerd(t) + "\n"
	name := fmt.Sprintf("evenkeel-test-%d", os.Getpid())
	hierarchies, _ := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.procs"); err == nil {
		hierarchies = []string{"/sys/fs/cgroup/cgroup.procs"}
	}

	var roots []string
	for _, procs := range hierarchies {
		root := filepath.Join(filepath.Dir(procs), name)
		if err := os.Mkdir(root, 0o755); err != nil {
			t.Skipf("control groups cannot be made here: %v", err)
		}

		t.Cleanup(func() { _ = os.Remove(root) })
		roots = append(roots, root)
	}

	h := dryRunner(t, kubeletWith(t, endpoint))
	v := h.Check(context.Background(), Candidate{Data: config(endpoint + "cgroupRoot: /" + name + "\n")}, "")
	if v.Outcome == Rejected && strings.Contains(v.Message, "controllers") {
		t.Skipf("a new control group has not all controllers here: %s", v.Message)
	}

	checkVerdict(t, v, Accepted, 2, "")
	for _, root := range roots {
		entries := assert.Value(os.ReadDir(root))(t)
		for _, e := range entries {
			assert.That(t, !e.IsDir(), "the dry run made the control group %s/%s", root, e.Name())
		}
	}
}

// Whatever a kubelet asks a stand-in, the runtime hears only what a starting
// kubelet must know.
func TestAStandInPassesOnNothingThatChangesTheRuntime(t *testing.T) {
	dir := shortDir(t)
	errs, deep := startCRI(t, filepath.Join(dir, "crio.sock")), filepath.Join(dir, strings.Repeat("long", 30))
	assert.NoError(t, os.Mkdir(deep, 0o700))
	endpoint, stop, err := startStandIn("unix://"+filepath.Join(dir, "crio.sock"), deep)
	assert.NoError(t, err)
	for method, want := range map[string]error{
		"RuntimeService/Version": nil, "RuntimeService/RuntimeConfig": nil, "ImageService/ImageFsInfo": nil, "RuntimeService/Status": errors.ErrUnsupported,
		"RuntimeService/UpdateRuntimeConfig": errors.ErrUnsupported, "RuntimeService/StopPodSandbox": errors.ErrUnsupported, "": errors.ErrUnsupported,
	} {
		answer, err := CallRuntime(t.Context(), endpoint, method, nil)
		assert.That(t, errors.Is(err, want) && (method != "RuntimeService/Version" || string(answer.Get(2)) == "test"), "%s: %q, %v", method, answer, err)
	}

	errs["RuntimeService/Version"] = status.Error(codes.Internal, "50% broken")
	_, err = CallRuntime(t.Context(), endpoint, "RuntimeService/Version", nil)
	assert.That(t, err != nil && strings.HasPrefix(err.Error(), "50% broken"), "got %v", err)
	assert.That(t, strings.HasSuffix(endpoint, "/crio.sock"), "the stand-in is at %s", endpoint)
	stop()
	assert.That(t, assert.Err(CallRuntime(t.Context(), endpoint, "RuntimeService/Version", nil)) != nil, "it answers after its end")
	_, _, err = startStandIn("unix:///x", filepath.Join(dir, "none"))
	assert.That(t, errors.Is(err, fs.ErrNotExist), "got %v", err)
	write(t, filepath.Join(deep, "runtime.sock"), "", 0o600)
	_, _, err = startStandIn("unix:///x", deep)
	assert.That(t, err != nil && strings.Contains(err.Error(), "listen unix runtime.sock"), "got %v", err)
}
