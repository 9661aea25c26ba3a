package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// run starts a program on the node, besides agents.
func (n *node) run(name string, argv ...string) *exec.Cmd {
	n.t.Helper()
	log := assert.Value(os.Create(filepath.Join(n.Node.Dir(), name+".log")))(n.t)
	defer log.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	assert.NoError(n.t, cmd.Start())
	n.t.Cleanup(func() { n.end(cmd) })
	return cmd
}

// end ends a program, and waits. Again, it does nothing.
func (n *node) end(cmd *exec.Cmd) {
	n.t.Helper()
	if cmd.ProcessState == nil {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // however it ends
	}
}

// holds waits until a process has the node's lock.
func (n *node) holds(pid int) {
	n.t.Helper()
	n.Eventually("the lock's holder", func(context.Context) error {
		if got := lockfile.WhoHolds(n.lockFile()); got != pid {
			return fmt.Errorf("it is process %d, want %d", got, pid)
		}
		return nil
	})
}

func TestAStockKubeletAndAnAgentWithTheSameLockFileExcludeEachOther(t *testing.T) {
	t.Parallel()
	n := newNode(t, "stocklock")
	n.contends()
	stock := slices.Concat(n.Kubelet, []string{"--lock-file=" + n.lockFile()})

	// The kubelet has it: the agent waits until it has ended.
	first := n.run("first", stock...)
	n.holds(first.Process.Pid)
	n.Eventually("the stock kubelet is healthy", n.Healthy)
	n.start()
	n.waits(first.Process.Pid, "kubelet")
	n.stop()
	n.exitsWith(0) // while the lock is still held
	assert.Is(t, assert.Err(os.Stat(n.socket())), os.ErrNotExist, "it left its socket")
	n.start()
	n.waits(first.Process.Pid, "kubelet")
	assert.OK(t, n.Healthy(t.Context()))
	n.end(first)
	n.takesOver(v1alpha1.RunModeSelfHosted)

	// The agent has it: the kubelet waits. It leaves when another one comes, as its own flag says.
	steady := n.SteadyFromNow()
	second := n.run("second", append(stock, "--exit-on-lock-contention")...)
	n.Eventually("the stock kubelet waits", func(context.Context) error {
		if !lockfile.Waiting(second.Process.Pid) {
			return errors.New("it does not")
		}
		return nil
	})
	steady.End(t)
	n.stop()
	n.holds(second.Process.Pid)
	n.Eventually("the stock kubelet is healthy", n.Healthy)
	n.start()
	n.takesOver(v1alpha1.RunModeSelfHosted)
	n.holds(n.Pid())
	err := second.Wait()
	assert.That(t, err == nil, "the stock kubelet ended with %v, want exit code 0", err)
}

func TestAKubeletsOwnLockFlagsAreTheAgents(t *testing.T) {
	t.Parallel()
	n := newNode(t, "ownlock")
	other := n.rival("other")
	n.Kubelet = append(n.Kubelet, "--lock-file="+n.lockFile(), "--exit-on-lock-contention")
	n.start()
	n.takesOver(v1alpha1.RunModeBootstrap)
	n.holds(n.Pid())
	argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", n.RunningPID()))
	if err != nil || !strings.Contains(string(argv), "\x00--lock-file="+n.Dir+"/kubelet.lock\x00") || strings.Contains(string(argv), "contention") {
		t.Errorf("the kubelet's command line is %q, %v", argv, err)
	}
	other.start()
	n.exitsWith(0)
	other.takesOver(v1alpha1.RunModeSelfHosted)
}

func TestAnAgentThatCannotRunAKubeletDoesNotTakeTheLock(t *testing.T) {
	t.Parallel()
	boot, self := handover(t, newNode(t, "handinput"))
	boot.Up()
	steady := boot.Steady()
	flags, argv := self.Flags, self.Kubelet
	without := func(prefix string) []string {
		return slices.DeleteFunc(slices.Clone(flags), func(f string) bool { return strings.HasPrefix(f, prefix) })
	}
	missing := filepath.Join(boot.Node.Dir(), "not", "there")
	config := filepath.Join(boot.Node.Dir(), "broken.yaml")
	assert.NoError(t, os.WriteFile(config,
		[]byte("kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\nmaxPods: -1\n"), 0o600))
	for _, c := range []struct {
		name    string
		flags   []string
		kubelet []string
		code    int
		words   string
	}{
		{"bootstrap without a lock", append(without("--lock-file"), "--bootstrap"), argv, 3, "evenkeel-agent: --bootstrap needs --lock-file"},
		{"a directory as lock file", append(without("--lock-file"), "--lock-file="+boot.Node.Dir()), argv, 7, "evenkeel-agent: --lock-file cannot be used: lock file: "},
		{"a lock file whose directory is missing", append(without("--lock-file"), "--lock-file="+missing+"/lock"), argv, 7, "its directory does not exist"},
		{"no such kubelet", flags, slices.Concat([]string{missing}, argv[1:]), 1, "there is no kubelet at " + missing},
		{"an invalid local configuration", flags, append(slices.Clone(argv), "--config="+config), 4, "the node has no other fallback: correct " + config},
		{"without the lock", without("--lock-file"), argv, 5, "evenkeel-agent: another agent works on " + boot.Dir},
	} {
		self.Flags, self.Kubelet = c.flags, c.kubelet
		self.in(t).ends(c.code, c.words)
		if t.Failed() {
			t.Fatal(c.name)
		}
	}
	steady.End(t)
	boot.holds(boot.Pid())
	boot.runs(1, "", []string{"probe", "--socket=" + self.socket()}, "evenkeel-agent: no agent answers on "+self.socket())
	boot.runs(0, "", []string{"probe", "--socket=" + boot.socket(), "--ready"}, "running\n")
	boot.runs(0, "", []string{"--help"}, "--lock-file", "--bootstrap", "--probe-socket", "cannot be used, 8 the lock file was replaced")
	boot.runs(0, "", []string{"probe", "--help"}, "Exit codes: 0 alive (with --ready: ready), 1 not, or no answer, 3 usage.", "maxSurge")
}
