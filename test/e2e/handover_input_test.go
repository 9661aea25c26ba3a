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

	// The agent has it: the kubelet waits. It leaves when another one comes, as
	// its own flag says.
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
