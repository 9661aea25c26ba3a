// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/nodetest"
)

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
