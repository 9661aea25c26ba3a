// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/machine"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// shared is the machine that all tests use.
var shared struct {
	once sync.Once
	dir  string
	m    *machine.Machine
	err  error
}

// TestMain makes this test binary, under other names, the agent and the kubelet
// of a machine.
func TestMain(m *testing.M) {
	switch base := filepath.Base(os.Args[0]); {
	case strings.HasPrefix(base, "evenkeel-agent"):
		beAgent()
	case base == "kubelet":
		beKubelet()
	case base == "busy":
		beBusy()
	}

	code := m.Run()
	if shared.m != nil {
		if err := shared.m.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}

	_ = os.RemoveAll(shared.dir)
	os.Exit(code)
}

// mode returns how a stand-in must behave, from a file beside its program.
func mode(name string) string {
	raw, err := os.ReadFile(filepath.Join(filepath.Dir(os.Args[0]), name+".mode"))
	if err != nil {
		return ""
	}

	return strings.TrimSpace(string(raw))
}

// flagValue returns the value of a flag of a stand-in.
func flagValue(args []string, name string) string {
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			return value
		}
	}

	return ""
}

// beKubelet serves a health check.
func beKubelet() {
	if mode("kubelet") == "exit" {
		fmt.Println("kubelet: failed to run: no such thing")
		os.Exit(1)
	}

	address, deadline := flagValue(os.Args, "healthz"), time.Now().Add(10*time.Second)
	listener, err := net.Listen("tcp", address)
	for ; err != nil && time.Now().Before(deadline); listener, err = net.Listen("tcp", address) {
		time.Sleep(time.Millisecond) // the one before may still be there
	}

	must.OK(err)
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
	must.OK(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		with := map[bool]string{true: "unwell with agent", false: "unwell without agent"}[os.Getenv("AGENT") != ""]
		if is := mode("kubelet"); is == "unwell" || is == with {
			http.Error(w, "not well", http.StatusInternalServerError)
			return
		}

		fmt.Fprint(w, "ok")
	})))
}

// beAgent runs a kubelet, which ends with it.
func beAgent() {
	switch mode("agent") {
	case "exit":
		fmt.Println("evenkeel-agent: no, not here")
		os.Exit(1)
	case "never ready":
		time.Sleep(time.Hour) // select {} would be a deadlock, and an exit
	}

	kubelet := os.Args[slices.Index(os.Args, "--")+1:]
	cmd := exec.Command(kubelet[0], kubelet[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "AGENT=1", "NOTIFY_SOCKET=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must.OK(cmd.Start())
	must.Get(daemon.SdNotify(false, daemon.SdNotifyReady))
	_ = cmd.Wait()
	os.Exit(0)
}

// beBusy relays the two connections of a client to systemd's private socket,
// and delays the end of the authentication until more data follows: as if
// systemd had been busy until then.
func beBusy() {
	listener := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: os.Args[1]}))
	must.OK(listener.SetDeadline(time.Now().Add(time.Minute))) // in case the client never connects
	fmt.Println("listening")
	var relays sync.WaitGroup
	for range 2 {
		client := must.Get(listener.Accept())
		relays.Go(func() { relayBusy(client) })
	}

	relays.Wait()
	os.Exit(0)
}

func relayBusy(client net.Conn) {
	systemd := must.Get(net.Dial("unix", "/run/systemd/private"))
	go func() { _, _ = io.Copy(client, systemd) }()
	var pending []byte
	for buffer := make([]byte, 4096); ; {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		if pending = append(pending, buffer[:n]...); bytes.HasSuffix(pending, []byte("BEGIN\r\n")) {
			continue
		}

		must.Get(systemd.Write(pending))
		pending = nil
	}
}

// node is a unit on the machine, and the Host of its installer.
type node struct {
	Host
	t       *testing.T
	m       *machine.Machine
	unit    string
	dir     string // with the programs
	healthz string
	out     *strings.Builder
	manager *Systemd

	state   source.NodeState
	renews  bool // the Lease, each time that it is looked at
	turn    string
	events  []string
	lost    string // the pods that a restart would end
	lostErr error
}

// timing is for a machine whose programs start quickly.
var pace = Timing{Timeout: time.Minute, HealthyFor: 50 * time.Millisecond, Poll: 10 * time.Millisecond}

var units = 0

// newMachine returns the machine that all tests use.
func newMachine(t *testing.T) *machine.Machine {
	t.Helper()
	localcluster.SkipShort(t)
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "evki-"); shared.err == nil {
			shared.m, shared.err = machine.Start(context.Background(), shared.dir, machine.Outside)
		}
	})
	if errors.Is(shared.err, machine.ErrUnsupported) {
		t.Skip(shared.err)
	}

	assert.NoError(t, shared.err)
	return shared.m
}

// newNode starts a kubeadm node.
func newNode(t *testing.T) *node {
	n := bareNode(t)
	n.unpack("testdata/platforms/kubeadm.txtar")
	n.beside("kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"--healthz=HEALTHZ --label='a b'\"") // a last line without its end
	n.start()

	return n
}

// unpack writes the unit files of a file in testdata, and returns its want.
func (n *node) unpack(units string) (want string) {
	n.t.Helper()
	dirs := map[string]string{"etc": n.m.Path(machine.Etc), "run": n.m.Path(machine.Run), "lib": n.m.Path(machine.Lib), "files": n.dir}
	for _, f := range assert.Value(txtar.ParseFile(units))(n.t).Files {
		dir, name, found := strings.Cut(f.Name, "/")
		if !found {
			want = strings.TrimSpace(string(f.Data))
			continue
		}

		n.put(filepath.Join(dirs[dir], strings.Replace(name, "kubelet.service", n.unit, 1)), string(f.Data))
	}

	return want
}

// bareNode has programs, but no unit yet.
func bareNode(t *testing.T) *node {
	t.Helper()
	m := newMachine(t)
	units++
	n := &node{t: t, m: m, unit: fmt.Sprintf("kubelet%d.service", units), dir: filepath.Join(shared.dir, fmt.Sprintf("node%d", units)), out: &strings.Builder{}}
	self := assert.Value(os.Executable())(t)
	assert.NoError(t, os.Mkdir(n.dir, 0o755))
	for _, name := range []string{"kubelet", "evenkeel-agent"} {
		assert.NoError(t, os.Link(self, filepath.Join(n.dir, name)))
	}

	n.healthz = localcluster.FreeAddressForTest(t)
	n.manager = assert.Value(Dial(t.Context(), m.Bus(), "/nonexistent"))(t)
	n.state = source.NodeState{Reachable: true, Complete: true, Exists: true, Ready: true, LeaseRenewed: "0"}
	n.renews = true
	n.Host = Host{
		Manager: n.manager, Check: n.check, API: func(Target) (API, error) { return n, nil }, Healthy: healthy,
		Journal:  func(context.Context, Unit) string { return "" },
		Volatile: func(string) bool { return false },
		Place:    Program{Path: filepath.Join(n.dir, "evenkeel-agent"), BinDir: n.dir}.Place,
		FS:       atomicfile.OS{}, UnitDir: m.Path(machine.Etc), TrialDir: m.Path(machine.Run), StateDir: filepath.Join(n.dir, "record"), Proc: m.Proc(), Out: n.out,
		DefaultAgentDir: filepath.Join(n.dir, "memory"),
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		n.manager.Close()
		_, _ = m.Systemctl(ctx, "stop", n.unit)
		for _, d := range []string{machine.Etc, machine.Run, machine.Lib} {
			_ = os.Remove(m.Path(d + "/" + n.unit))
			_ = os.RemoveAll(m.Path(d + "/" + n.unit + ".d"))
		}

		_ = os.RemoveAll(n.dir)
		if t.Failed() {
			t.Log(n.out.String())
		}
	})

	return n
}

// write writes a file of the machine.
func (n *node) write(inside, content string) {
	n.t.Helper()
	n.put(n.m.Path(inside), content)
}

// beside writes a file beside the programs, or removes it if content is empty.
func (n *node) beside(name, content string) {
	n.t.Helper()
	n.put(filepath.Join(n.dir, name), content)
}

func (n *node) put(path, content string) {
	n.t.Helper()
	assert.NoError(n.t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(n.filled(content)), 0o644)))
}

// filled puts the directory and the address of this node into a text.
func (n *node) filled(text string) string {
	return strings.NewReplacer("DIR", n.dir, "HEALTHZ", n.healthz).Replace(text)
}

func (n *node) systemctl(args ...string) string {
	n.t.Helper()
	out := assert.Value(n.m.Systemctl(n.t.Context(), args...))(n.t)
	return strings.TrimSpace(out)
}

// start starts the unit, and waits until the kubelet is healthy.
func (n *node) start() {
	n.t.Helper()
	n.systemctl("daemon-reload")
	n.systemctl("restart", n.unit)
	n.well()
}

// well waits until the kubelet is healthy.
func (n *node) well() {
	n.t.Helper()
	assert.Eventually(n.t, "the kubelet is healthy", func() bool { return healthy(n.t.Context(), n.healthz) == nil })
}

func healthy(ctx context.Context, address string) error {
	return localcluster.Probe(ctx, "http://"+address)
}

// check stands in for the agent's checks.
func (n *node) check(_ context.Context, flags, kubelet []string, _ bool) (Checked, error) {
	if flagValue(kubelet, "bad") != "" {
		return Checked{}, errors.New("bad is no flag of a kubelet")
	}

	return Checked{
		Target: Target{Node: "n", Kubeconfig: flagValue(kubelet, "kubeconfig"), Healthz: flagValue(kubelet, "healthz")},
		Limits: Limits{StopGrace: 30 * time.Second, HealthTimeout: 2 * time.Minute, StateDir: flagValue(flags, "dynamic-config-dir")},
		Losses: func(context.Context) (string, error) { return n.lost, n.lostErr },
	}, nil
}

// Snapshot, NodeAnnotation and Event implement API.
func (n *node) Snapshot(context.Context, string) source.NodeState {
	state := n.state
	if n.renews {
		n.state.LeaseRenewed += "+"
	}

	return state
}

func (n *node) NodeAnnotation(context.Context, string, string) (string, error) {
	if !n.state.Reachable {
		return "", errors.New(n.state.Cause)
	}

	return n.turn, nil
}

func (n *node) Event(_ context.Context, _, _ string, severity source.Severity, reason, message string) error {
	n.events = append(n.events, fmt.Sprintf("%s %s %s", severity, reason, message))
	return nil
}

func (n *node) request() Request { return Request{Unit: n.unit, Keep: true, Timing: pace} }

func (n *node) install() (string, error) {
	return n.Install(n.t.Context(), n.request())
}

func (n *node) uninstall() (string, error) {
	return n.Uninstall(n.t.Context(), n.request())
}

// atWork calls a function when an install has made its checks, and changes
// something.
func (n *node) atWork(do func(*node)) {
	n.Place = func(dry bool) (string, error) {
		if !dry {
			do(n)
		}

		return filepath.Join(n.dir, "evenkeel-agent"), nil
	}
}

// restarting calls a function before each restart of a unit.
type restarting struct {
	Manager
	before func()
}

func (r restarting) Restart(ctx context.Context, name string) error {
	r.before()
	return r.Manager.Restart(ctx, name)
}

func (n *node) atRestart(do func()) { n.Manager = restarting{n.Manager, do} }

// installs requires a successful install.
func (n *node) installs() {
	n.t.Helper()
	words, err := n.install()
	assert.Must(n.t, err == nil && words == "evenkeel-agent runs the kubelet of "+n.unit+": healthy, node n Ready", "%q, %v", words, err)
}

// ends requires success, with words that end so.
func (n *node) ends(words string) func(said string, err error) {
	return func(said string, err error) {
		n.t.Helper()
		assert.That(n.t, err == nil && strings.HasSuffix(said, words), "%q, %v, want %q", said, err, words)
	}
}

// command returns the command line of the unit's main process.
func (n *node) command() string {
	n.t.Helper()
	pid := n.systemctl("show", n.unit, "--property=MainPID", "--value")
	raw := assert.Value(os.ReadFile(filepath.Join(n.m.Proc(), pid, "cmdline")))(n.t)
	return strings.ReplaceAll(strings.TrimSuffix(string(raw), "\x00"), "\x00", "|")
}

// is requires that the unit runs a command, and the digest of all unit files.
func (n *node) is(command, tree string) {
	n.t.Helper()
	assert.Equal(n.t, n.command(), command, "the command")
	assert.Equal(n.t, n.digest(), tree, "the digest of the unit files")
}

// unchanged requires that the unit was not restarted, and the digest of all
// unit files.
func (n *node) unchanged(invocation, tree string) {
	n.t.Helper()
	assert.Equal(n.t, n.invocation(), invocation, "the invocation")
	assert.Equal(n.t, n.digest(), tree, "the digest of the unit files")
}

func (n *node) invocation() string {
	n.t.Helper()
	return n.systemctl("show", n.unit, "--property=InvocationID", "--value")
}

// digest returns the digest of all unit files of the machine.
func (n *node) digest() string {
	n.t.Helper()
	h := sha256.New()
	for _, dir := range []string{machine.Etc, machine.Run, machine.Lib} {
		err := filepath.WalkDir(n.m.Path(dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				fmt.Fprintln(h, path)
				return err
			}

			raw, err := os.ReadFile(path)
			info, statErr := d.Info()
			fmt.Fprintln(h, path, string(raw), info.Mode())

			return errors.Join(err, statErr)
		})
		assert.NoError(n.t, err)
	}

	return fmt.Sprintf("%x", h.Sum(nil))
}
