package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/testkit/localcluster/sweep"
	sdmachine "github.com/evenkeel/evenkeel/testkit/machine"
)

// host is a node whose kubelet a real systemd runs.
type host struct {
	*node
	m   *sdmachine.Machine
	bin string // where install puts the agent
}

const (
	nodeUnit = `[Unit]
Description=kubelet: The Kubernetes Node Agent

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=1
`
	nodeDropIn = `[Service]
Environment="KUBELET_KUBECONFIG_ARGS=%s"
EnvironmentFile=-%s
ExecStart=
ExecStart=%s $KUBELET_KUBECONFIG_ARGS $KUBELET_EXTRA_ARGS
`
)

// newHost makes a node as kubeadm does, and waits until it is Ready.
func newHost(t *testing.T, name string) *host {
	t.Helper()
	n := newNode(t, name)
	cgroup, err := os.ReadFile(filepath.Join(n.Node.Dir(), sweep.CgroupFile))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "evkh-")
	if err != nil {
		t.Fatal(err)
	}
	m, err := sdmachine.Start(t.Context(), dir, sdmachine.Inside, strings.TrimSpace(string(cgroup)))
	if err != nil {
		_ = os.RemoveAll(dir)
	}
	if errors.Is(err, sdmachine.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	h := &host{n, m, filepath.Join(dir, "bin")}
	t.Cleanup(func() {
		if t.Failed() {
			raw, _ := os.ReadFile(m.Log())
			t.Logf("systemd, agent and kubelet said last:\n%s", raw[max(0, len(raw)-6000):])
		}
		if err := errors.Join(m.Stop(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	h.write(sdmachine.Lib+"/kubelet.service", nodeUnit)
	h.write(sdmachine.Lib+"/kubelet.service.d/10-kubeadm.conf", fmt.Sprintf(nodeDropIn, strings.Join(n.Node.KubeletArgs(), " "), filepath.Join(dir, "kubelet.env"), n.Node.KubeletPath()))
	h.systemctl("daemon-reload")
	h.systemctl("start", "kubelet")
	n.eventually("the node is Ready", n.ready)
	return h
}

func (h *host) write(inside, content string) {
	h.t.Helper()
	path := h.m.Path(inside)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) systemctl(args ...string) string {
	h.t.Helper()
	out, err := h.m.Systemctl(h.t.Context(), args...)
	if err != nil {
		h.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// agent runs evenkeel-agent on the machine, and returns what it said and its exit code.
func (h *host) agent(args ...string) (string, int) {
	h.t.Helper()
	out, err := h.m.Command(h.t.Context(), h.Binary, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		h.t.Fatal(err)
	}
	if exit != nil {
		return string(out), exit.ExitCode()
	}
	return string(out), 0
}

// does runs evenkeel-agent, and wants an exit code and words.
func (h *host) does(code int, words string, args ...string) {
	h.t.Helper()
	said, got := h.agent(args...)
	if got != code || !strings.Contains(said, words) {
		h.t.Fatalf("evenkeel-agent %s: exit code %d, want %d; it said\n%swant %s", strings.Join(args, " "), got, code, said, words)
	}
}

// killedOnTrial runs evenkeel-agent on the machine, and kills it when the kubelet is away.
func (h *host) killedOnTrial(args ...string) {
	h.t.Helper()
	cmd := h.m.Command(h.t.Context(), h.Binary, args...)
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); h.Healthy(h.t.Context()) == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			h.t.Fatal("the kubelet is not restarted")
		}
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid)) // nsenter stays outside
	if err != nil {
		h.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(children)))
	if err != nil {
		h.t.Fatalf("the installer has ended by itself: %v", err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		h.t.Fatal(err)
	}
	_ = cmd.Wait()
}

// event waits for an Event on the node.
func (h *host) event(reason, words string) {
	h.t.Helper()
	h.eventually("the Event "+reason, func(ctx context.Context) error {
		list, err := h.Kube.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + h.Node.Name() + ",reason=" + reason})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if strings.Contains(e.Message, words) {
				return nil
			}
		}
		return fmt.Errorf("there are %d, none with %q", len(list.Items), words)
	})
}

func (h *host) invocation() string {
	return h.systemctl("show", "kubelet", "--property=InvocationID", "--value")
}

func TestTheAgentIsInstalledAndUninstalledOnANode(t *testing.T) {
	t.Parallel()
	h := newHost(t, "install")
	plain := h.invocation()
	h.does(0, "Nothing was changed.\n", "install", "--dry-run", "--bin-dir="+h.bin)
	h.does(1, `the agent refuses the kubelet of kubelet.service: its local configuration (`+h.Node.KubeletConfig()+`) is rejected: `,
		h.withFlag("--feature-gates=NoSuchGate=true", "install", "--bin-dir="+h.bin)...)
	h.withFlag("")
	if h.invocation() != plain {
		t.Fatal("the kubelet was restarted")
	}

	// An agent that does not come up.
	h.does(2, "install of kubelet.service: taken back: systemctl restart kubelet.service: the result of the job is \"failed\"",
		"install", "--bin-dir="+h.bin, "--attempt=first", "--", "--dynamic-config-dir=/proc/none")
	h.event("EvenkeelInstallFailed", "taken back")
	h.eventually("the kubelet is healthy", h.Healthy)
	if _, err := os.Stat(h.m.Path(sdmachine.Etc + "/kubelet.service.d")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the drop-in is left: %v", err)
	}
	plain = h.invocation()
	h.does(2, "this attempt (first) has failed before and is not repeated", "install", "--bin-dir="+h.bin, "--attempt=first")
	if h.invocation() != plain {
		t.Error("the same attempt has restarted the kubelet")
	}

	// And its installer is killed before it has taken that back.
	killed := []string{"install", "--bin-dir=" + h.bin, "--attempt=killed", "--", "--dynamic-config-dir=/proc/none"}
	h.killedOnTrial(killed...)
	h.eventually("the trial is taken back", func(ctx context.Context) error {
		if guard, err := h.m.Systemctl(ctx, "show", "evenkeel-guard-kubelet", "--property=LoadState", "--value"); err != nil || guard != "not-found\n" {
			return fmt.Errorf("the guard is %s, %w", guard, err)
		}
		return errors.Join(h.Healthy(ctx), h.ready(ctx))
	})
	h.does(2, "install of kubelet.service: taken back: ", killed...)
	plain = h.invocation()
	h.does(2, "this attempt (killed) has failed before and is not repeated", killed...)
	if h.invocation() != plain {
		t.Error("the attempt that was killed has restarted the kubelet again")
	}

	h.does(0, "evenkeel-agent runs the kubelet of kubelet.service: healthy, node "+h.Node.Name()+" Ready\n",
		"install", "--bin-dir="+h.bin, "--attempt=second", "--", "--listen="+h.Listen, "--config-trial-duration=2s")
	h.event("EvenkeelInstalled", "evenkeel-agent runs the kubelet of kubelet.service")
	h.eventually("the agent has made the node's NodeConfig", func(ctx context.Context) error {
		_, err := h.Get(ctx)
		return err
	})
	wrapped := h.invocation()

	// As a pod does it: it is done already, and stays.
	socket := h.m.Path("/run/probe.sock")
	stay := h.m.Command(t.Context(), h.Binary, "install", "--bin-dir="+h.bin, "--stay", "--probe-socket=/run/probe.sock", "--attempt=pod")
	if err := stay.Start(); err != nil {
		t.Fatal(err)
	}
	h.eventually("the one that stays is ready", func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, h.Binary, "probe", "--ready", "--socket="+socket).CombinedOutput()
		if err == nil && !strings.Contains(string(out), "nothing to do") {
			err = errors.New("the message differs")
		}
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if err := stay.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = stay.Wait()
	if h.invocation() != wrapped {
		t.Error("an install with nothing to do has restarted the kubelet")
	}

	// It is an agent like any other.
	cm := h.configMap("a", map[string]any{"maxPods": 120})
	h.assign(cm)
	h.lastKnownGood(cm)

	// Without a bus systemd is asked by its own socket.
	h.systemctl("stop", "dbus.socket", "dbus.service")
	h.does(0, "the kubelet of kubelet.service runs without evenkeel-agent: healthy, node "+h.Node.Name()+" Ready\n", "uninstall")
	h.event("EvenkeelUninstalled", "runs without evenkeel-agent")
	h.eventually("the node is Ready", h.ready)
	h.eventually("its own configuration is back", func(ctx context.Context) error {
		if pods, err := h.MaxPods(ctx); err != nil || pods == 120 {
			return fmt.Errorf("maxPods is %d, %w", pods, err)
		}
		return nil
	})
	h.does(0, "nothing to do; /var/lib/evenkeel was removed\n", "uninstall", "--purge")
}

// withFlag gives the kubelet a flag at its next start, and returns args.
func (h *host) withFlag(flag string, args ...string) []string {
	h.t.Helper()
	env := filepath.Join(filepath.Dir(h.bin), "kubelet.env")
	if err := os.WriteFile(env, []byte("KUBELET_EXTRA_ARGS="+flag+"\n"), 0o644); err != nil {
		h.t.Fatal(err)
	}
	return args
}
