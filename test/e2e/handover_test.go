// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/nodetest"
)

func TestAnUnhealthySelfHostedKubeletReturnsTheNodeForGood(t *testing.T) {
	t.Parallel()
	flags := []string{"--health-timeout=2s", "--config-trial-duration=10m", "--crash-loop-threshold=0"}
	boot := newNode(t, "giveup", flags...)
	boot.contends("--bootstrap")
	self := boot.rival("self-hosted", append(flags, "--give-up-after=5s")...)
	boot.wrap(strict + "\n[ $mode = run ] && [ -e \"$dir/sick\" ] && exec sleep 1000")
	self.Kubelet[0] = boot.Kubelet[0]
	boot.Up()

	// A hand-over neither ends a trial nor counts as a crash in it.
	cm := boot.assignNew("a", map[string]any{"maxPods": 120})
	boot.is(allChecksPassed(cm))
	boot.healthyWith(cm)
	self.start()
	boot.exitsWith(0)
	self.healthyWith(cm)
	s := self.onDisk()
	assert.That(t, s.Trial != nil && len(s.Startups) == 1, "on disk are the starts %+v and the trial %+v", s.Startups, s.Trial)
	self.AssignMap(nil)
	self.is(localInit)
	self.stop()
	boot.Up()
	assert.NoError(t, os.WriteFile(boot.beside("sick"), nil, 0o600))

	// No other agent waits, so this one keeps the node.
	self.start()
	boot.exitsWith(0)
	self.holds(self.Pid())
	self.throughout(8*time.Second, "it keeps the node", func(context.Context) error {
		select {
		case <-self.Done():
			return errors.New("it has ended")
		default:
			return nil
		}
	})
	// The init system starts bootstrap, whose kubelet is healthy.
	boot.start()
	boot.waits(self.Pid(), "evenkeel-agent")
	assert.NoError(t, os.Remove(boot.beside("sick")))
	self.exitsWith(9)
	self.logged("no kubelet was healthy for 5s")
	boot.takesOver(v1alpha1.RunModeBootstrap)

	// The healthy kubelet would restart the container of the self-hosted agent.
	steady := boot.Steady()
	self.start()
	self.exitsWith(9)
	self.logged("this kubelet was never healthy and released the node at ")
	steady.End(t)
	// Another attempt is free to.
	self.Flags = append(self.Flags, "-v=1")
	self.start()
	boot.exitsWith(0)
	self.takesOver(v1alpha1.RunModeSelfHosted)
	boot.neverTwo()
}

// run starts a program on the node, besides agents.
func (n *node) run(name string, argv ...string) *localcluster.Process {
	n.t.Helper()
	p := assert.Value(localcluster.StartProcess(name, filepath.Join(n.Node.Dir(), name+".log"), exec.Command(argv[0], argv[1:]...)))(n.t)
	n.t.Cleanup(func() { _ = p.Stop(nodetest.Patience) })

	return p
}

// holds waits until a process has the node's lock.
func (n *node) holds(pid int) {
	n.t.Helper()
	n.Eventually("the lock's holder", func(context.Context) error {
		got := lockfile.WhoHolds(n.lockFile())
		return assert.Unless(got == pid, "it is process %d, want %d", got, pid)
	})
}

func TestAStockKubeletAndAnAgentWithTheSameLockFileExcludeEachOther(t *testing.T) {
	t.Parallel()
	n := newNode(t, "stocklock")
	n.contends()
	stock := slices.Concat(n.Kubelet, []string{"--lock-file=" + n.lockFile()})

	// The kubelet has it: the agent waits until it has ended.
	first := n.run("first", stock...)
	n.holds(first.Pid())
	n.Eventually("the stock kubelet is healthy", n.Healthy)
	n.start()
	n.waits(first.Pid(), "kubelet")
	n.stop()
	n.exitsWith(0) // while the lock is still held
	assert.Is(t, assert.Err(os.Stat(n.socket())), os.ErrNotExist, "it left its socket")
	n.start()
	n.waits(first.Pid(), "kubelet")
	assert.OK(t, n.Healthy(t.Context()))
	assert.NoError(t, first.Stop(nodetest.Patience))
	n.takesOver(v1alpha1.RunModeSelfHosted)

	// The agent has it: the kubelet waits. It leaves when another one comes, as
	// its own flag says.
	steady := n.SteadyFromNow()
	second := n.run("second", append(stock, "--exit-on-lock-contention")...)
	n.Eventually("the stock kubelet waits", func(context.Context) error {
		return assert.Unless(lockfile.Waiting(second.Pid()), "it does not")
	})
	steady.End(t)
	n.stop()
	n.holds(second.Pid())
	n.Eventually("the stock kubelet is healthy", n.Healthy)
	n.start()
	n.takesOver(v1alpha1.RunModeSelfHosted)
	n.holds(n.Pid())
	<-second.Done
	assert.Equal(t, second.Cmd.ProcessState.ExitCode(), 0, "the stock kubelet's exit code")
}

// lockFile is what this node's agents, and kubelets, contend for.
func (n *node) lockFile() string {
	n.t.Helper()
	dir := filepath.Join(n.Node.Dir(), "lock")
	assert.NoError(n.t, os.MkdirAll(dir, 0o700))
	return filepath.Join(dir, "kubelet.lock")
}

// socket is where the agent answers probes.
func (n *node) socket() string { return n.Log + ".sock" }

// contends gives the agent the node's lock, and a socket for probes.
func (n *node) contends(flags ...string) {
	n.t.Helper()
	n.Flags = append(n.Flags, append(flags, "--lock-file="+n.lockFile(), "--probe-socket="+n.socket())...)
}

// rival is another agent of the same node, with the same directory and kubelet;
// it is not started yet.
func (n *node) rival(name string, flags ...string) *node {
	n.t.Helper()
	a := assert.Value(n.Bed.Agent(flags...))(n.t)
	run := filepath.Join(n.Node.Dir(), "run-"+name)
	assert.NoError(n.t, os.MkdirAll(run, 0o700))
	a.Env = append(a.Env, "RUNTIME_DIRECTORY="+run)
	a.Log = filepath.Join(n.Node.Dir(), name+".log")
	a.Kubelet[0] = n.Kubelet[0]
	r := &node{&nodetest.Subject{Bed: n.Bed, Agent: a, T: n.t}, n.t}
	r.contends()
	n.t.Cleanup(func() {
		assert.OK(n.t, a.Stop(time.Minute))
		if n.t.Failed() {
			n.t.Log("the agent ", name)
			r.ShowLog()
		}
	})

	return r
}

// strict makes each kubelet hold a second lock for its whole life, without
// waiting for it, and record every failure to get the lock.
const strict = `if [ $mode = run ]; then
	exec 9>>"$dir/strict"
	flock -n 9 || echo $$ >>"$dir/two"
fi
`

// neverTwo requires that no kubelet was started while another one lived.
func (n *node) neverTwo() {
	n.t.Helper()
	if two, err := os.ReadFile(n.beside("two")); !errors.Is(err, os.ErrNotExist) {
		n.t.Errorf("these kubelets were started beside another one, %v: %s", err, two)
	}

	assert.OK(n.t, assert.Err(os.Stat(n.beside("strict"))), "no kubelet took the second lock")
}

// takesOver waits until the agent's kubelet is healthy, and the API says which
// kind of agent runs it.
func (n *node) takesOver(mode v1alpha1.RunMode) {
	n.t.Helper()
	n.Awaits("the kubelet of "+filepath.Base(n.Log)+" is healthy, and the node is run as "+string(mode), func(nc *v1alpha1.NodeConfig) error {
		return errors.Join(assert.Err(n.KubeletPID()), n.Healthy(n.t.Context()),
			assert.Unless(nc.Status.RunMode == mode, "the run mode is %s", nc.Status.RunMode))
	})
}

// waits waits until the agent waits for its turn, behind a process, and
// requires that it does nothing else.
func (n *node) waits(behind int, name string) {
	n.t.Helper()
	want := fmt.Sprintf("waiting for the lock %s, held by process %d (%s)\n", n.lockFile(), behind, name)
	n.Eventually("the agent waits", func(ctx context.Context) error {
		out, code := n.Run(ctx, "", "probe", "--ready", "--socket="+n.socket())
		return assert.Unless(code == 0 && out == want, "it says %q, exit code %d, want %q", out, code, want)
	})
	children := n.Children()
	assert.That(n.t, len(children) == 0, "it has the children %v", children)
	assert.That(n.t, assert.Err(n.AskAgent(n.t.Context(), "/healthz")) != nil, "it has bound its port")
}
