package component

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// startContainerd starts a containerd for the test and returns its endpoint.
func startContainerd(t testing.TB) string {
	t.Helper()
	program, err := exec.LookPath("containerd")
	if err != nil {
		t.Skip("stage 2 needs a container runtime: there is no containerd in PATH")
	}
	if os.Getuid() != 0 {
		t.Skip("stage 2 needs a container runtime, and containerd needs root")
	}
	dir, err := os.MkdirTemp("", "ek-containerd") // short, because the length of a socket path is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "containerd.sock")
	text := fmt.Sprintf(`version = 2
root = %q
state = %q
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = %q
[plugins."io.containerd.internal.v1.opt"]
  path = %q
`, dir+"/root", dir+"/state", socket, dir+"/cni", dir+"/opt")
	if err := os.WriteFile(dir+"/config.toml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(program, "--config", dir+"/config.toml")
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-done
		}
	})
	deadline := time.Now().Add(20 * time.Second)
	for {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
			return "unix://" + socket
		}
		select {
		case <-done:
			t.Fatalf("containerd ended: %s", log.String())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("containerd does not listen: %v", err)
		}
		<-time.After(20 * time.Millisecond) // poll interval
	}
}

func TestVerdictsOfTheRealKubeletAtStage2(t *testing.T) {
	endpoint := "containerRuntimeEndpoint: " + startContainerd(t) + "\n"
	tests := []struct {
		name    string
		data    string
		stage   int
		message string // prefix; "" for accepted
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
		{"JSON logging and a bad value", "logging: {format: json}\ncpuManagerPolicy: nope\n", 2, `unknown policy: "nope"`},
	}
	before := nodeState(t)
	h := dryRunner(t, kubeletWith(t, endpoint, "--node-ip=127.0.0.1", "--hostname-override=n1"))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data := tt.data
			if !strings.Contains(data, "containerRuntimeEndpoint") {
				data += endpoint
			}
			v := h.Check(context.Background(), Candidate{Data: config(data)}, "")
			if tt.message == "" {
				checkVerdict(t, v, Accepted, 2, "")
			} else if v.Outcome != Rejected || v.Stage != tt.stage || !strings.HasPrefix(v.Message, tt.message) {
				t.Errorf("got %s at stage %d: %s", v.Outcome, v.Stage, v.Message)
			}
			if v.Effective == nil && v.Stage > 0 {
				t.Error("no effective configuration")
			}
		})
	}
	if diff := cmp.Diff(before, nodeState(t)); diff != "" {
		t.Errorf("the dry runs left something on the node: -before +after\n%s", diff)
	}
}

// nodeState describes what a dry run must not change, as long as no other kubelet runs on this machine: mounts, and
// files where a kubelet stores its state, except for an empty directory that stage 2 creates like every kubelet.
func nodeState(t *testing.T) map[string][]string {
	t.Helper()
	state := map[string][]string{}
	_ = filepath.WalkDir("/var/lib/kubelet", func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != "/var/lib/kubelet" && !strings.HasPrefix(path, "/var/lib/kubelet/device-plugins") {
			state["files"] = append(state["files"], path)
		}
		return nil
	})
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, "dryrun-") {
			state["mounts"] = append(state["mounts"], line)
		}
	}
	return state
}

func TestADryRunChangesNothingOnTheNode(t *testing.T) {
	endpoint := "containerRuntimeEndpoint: " + startContainerd(t) + "\n"
	tools, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	for _, tool := range []string{"mount", "umount", "iptables", "ip6tables", "iptables-save", "iptables-restore", "nft",
		"ip", "sysctl", "modprobe", "systemd-run", "systemctl", "losetup", "mkfs.ext4", "du", "nsenter"} {
		write(t, filepath.Join(tools, tool), "#!/bin/sh\necho "+tool+" \"$@\" >>"+log+"\nexit 1\n", 0o755)
	}
	h := dryRunner(t, kubeletWith(t, endpoint))
	t.Setenv("PATH", tools)
	checkVerdict(t, h.Check(context.Background(), Candidate{Data: config(endpoint)}, ""), Accepted, 2, "")
	calls, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for call := range strings.Lines(string(calls)) {
		// umount reports "not mounted" for an empty directory in TMPDIR, which belongs to the test.
		if !strings.HasPrefix(call, "umount "+h.scratch+"/dryrun-") {
			t.Errorf("the dry run called %s", call)
		}
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
		entries, err := os.ReadDir(root)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDir() {
				t.Errorf("the dry run made the control group %s/%s", root, e.Name())
			}
		}
	}
}

func TestADryRunDoesNotDisturbAServerOnTheKubeletsPorts(t *testing.T) {
	var ports []int
	for range 2 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { _ = server.Close() })
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	local := fmt.Sprintf("containerRuntimeEndpoint: %s\nport: %d\nhealthzPort: %d\naddress: 127.0.0.1\n", startContainerd(t), ports[0], ports[1])
	h := dryRunner(t, kubeletWith(t, local))
	checkVerdict(t, h.Check(context.Background(), Candidate{Data: config(local)}, ""), Accepted, 2, "")
	for _, port := range ports {
		health := NewHealth(fmt.Sprintf("http://127.0.0.1:%d/healthz", port))
		if err := health.Healthz(context.Background()); err != nil {
			t.Errorf("port %d: %v", port, err)
		}
		health.Close()
	}
}

func TestARuntimeThatStopsRejectsNoCandidate(t *testing.T) {
	// The socket is a symbolic link, so that the runtime can disappear while containerd runs.
	target := strings.TrimPrefix(startContainerd(t), "unix://")
	dir, err := os.MkdirTemp("", "ek")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	if err := os.Symlink(target, socket); err != nil {
		t.Fatal(err)
	}
	endpoint := "containerRuntimeEndpoint: unix://" + socket + "\n"
	h := dryRunner(t, kubeletWith(t, endpoint))
	checkVerdict(t, h.Check(context.Background(), Candidate{Data: config(endpoint)}, ""), Accepted, 2, "")
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	v := h.Check(context.Background(), Candidate{Data: config(endpoint)}, "")
	if v.Outcome != Accepted || v.Stage != 1 || !strings.HasPrefix(v.Message, "stage 2 of the dry run was not used: validate service connection: ") {
		t.Errorf("got %s at stage %d: %s", v.Outcome, v.Stage, v.Message)
	}
}

func BenchmarkDryRun(b *testing.B) {
	endpoint := "containerRuntimeEndpoint: " + startContainerd(b) + "\n"
	h := NewDryRunner(kubeletWith(b, endpoint, "--max-pods=50"), b.TempDir(), slogDiscard())
	ctx := context.Background()
	candidate := Candidate{Data: config(endpoint + "maxPods: 77\n")}
	if v := h.Check(ctx, candidate, ""); v.Stage != 2 {
		b.Fatalf("%+v", v)
	}
	b.Run("stage 1", func(b *testing.B) {
		for b.Loop() {
			h.run(ctx, dryRun{stage: 1, config: wholeConfig(candidate.Data), withFlags: true})
		}
	})
	b.Run("stage 2", func(b *testing.B) {
		for b.Loop() {
			h.run(ctx, dryRun{stage: 2, config: wholeConfig(candidate.Data), withFlags: true})
		}
	})
	b.Run("check accepted", func(b *testing.B) {
		for b.Loop() {
			h.Check(ctx, candidate, "")
		}
	})
	b.Run("drop-in accepted", func(b *testing.B) {
		for b.Loop() {
			h.Check(ctx, Candidate{Data: config("maxPods: 77\n"), Dropin: true}, "")
		}
	})
	b.Run("check rejected at stage 1", func(b *testing.B) {
		for b.Loop() {
			h.Check(ctx, Candidate{Data: config("bogus: 1\n")}, "")
		}
	})
	b.Run("check rejected at stage 2", func(b *testing.B) {
		for b.Loop() {
			h.Check(ctx, Candidate{Data: config(endpoint + "cpuManagerPolicy: nope\n")}, "")
		}
	})
	b.Run("check local", func(b *testing.B) {
		for b.Loop() {
			h.CheckLocal(ctx, "")
		}
	})
}
