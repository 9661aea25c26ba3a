// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// onTrial starts an agent that never becomes ready, with a guard and the lock,
// as a run that will be killed.
func (n *node) onTrial() (*change, *lockfile.Lock) {
	n.t.Helper()
	assert.NoError(n.t, atomicfile.MakeDir(atomicfile.OS{}, n.StateDir, 0o700))
	lock := assert.Value(lockfile.TryAcquire(n.lock()))(n.t)
	rec := &change{Version: recordVersion, Operation: installing, Unit: n.unit, DropIn: n.DropIn(n.unit), Trial: n.trial(n.unit)}
	content := sign("[Service]\nExecStart=\nExecStart=/bin/false\n")
	rec.To = &content
	n.startGuard(n.t.Context(), rec)
	assert.NoError(n.t, assert.Err(n.Host.write(n.t.Context(), rec)))
	_ = n.Manager.Restart(n.t.Context(), n.unit) // of a simple service systemd says that it has started

	return rec, lock
}

// unguarded waits until the guard has stopped.
func (n *node) unguarded(rec *change) {
	n.t.Helper()
	assert.Eventually(n.t, "the guard has stopped", func() bool {
		u := assert.Value(n.Manager.Unit(n.t.Context(), guardOf(rec)))(n.t)
		return u.LoadState == "not-found"
	})
}

func TestGuardTakesTrialBackIfInstallerIsKilled(t *testing.T) {
	n := newNode(t)
	tree, command := n.digest(), n.command()
	rec, lock := n.onTrial()
	assert.NoError(t, lock.Release()) // as its end does
	n.well()
	n.unguarded(rec)
	assert.NoError(t, n.discard(t.Context(), rec)) // as the next run does
	n.is(command, tree)
}

// failing is a file system that creates nothing below a directory.
type failing struct {
	atomicfile.OS
	below string
	err   error
}

func (f failing) fails(path string) error {
	if strings.HasPrefix(path, f.below+"/") {
		return &fs.PathError{Op: "change", Path: path, Err: f.err}
	}

	return nil
}

func (f failing) Create(name string, mode fs.FileMode) (atomicfile.File, error) {
	if err := f.fails(name); err != nil {
		return nil, err
	}

	return f.OS.Create(name, mode)
}

func (f failing) Mkdir(name string, mode fs.FileMode) error {
	if err := f.fails(name); err != nil {
		return err
	}

	return f.OS.Mkdir(name, mode)
}

func TestUnwritableDropInIsNotTried(t *testing.T) {
	for _, upgrade := range []bool{false, true} {
		for err, words := range map[error]string{
			syscall.EROFS:  "read-only file system: on this system, add the file the way its unit files are managed; --dry-run prints it",
			syscall.ENOSPC: "no space left on device",
		} {
			t.Run(fmt.Sprintf("%v, upgrade %t", err, upgrade), func(t *testing.T) {
				n := newNode(t)
				if upgrade {
					n.installs()
				}

				running, tree := n.invocation(), n.digest()
				r := n.request()
				r.Flags, r.Keep = []string{"--new"}, false
				for range 2 {
					n.FS = failing{below: n.UnitDir, err: err}
					_, err := n.Install(t.Context(), r)
					want := words + ", nothing was changed: the kubelet was not restarted"
					assert.That(t, err != nil && !errors.Is(err, ErrTakenBack) && strings.HasSuffix(err.Error(), want) && strings.HasPrefix(err.Error(), "write "+n.DropIn(n.unit)+": "), "error %v, want %s", err, want)
				}

				n.unchanged(running, tree)
			})
		}
	}
}

func TestGuardTakesBackWhatTheInstallerCannot(t *testing.T) {
	n := newNode(t)
	command := n.command()
	n.beside("agent.mode", "exit")
	n.atRestart(func() { n.mayNot("Reload") })
	_, err := n.install()
	assert.Is(t, err, ErrTakenBack)
	assert.ErrorHas(t, err, "but the previous state does not become healthy either: systemctl daemon-reload: denied by the policy of D-Bus")
	n.well()
	assert.That(t, n.command() == command, "it runs %s", n.command())
}

func TestGuardWithoutItsProgramsDoesNotStart(t *testing.T) {
	n := newNode(t)
	err := n.Manager.StartTransient(t.Context(), "none-"+n.unit, "", []string{"/bin/sh", "-c", "command -v no-such-program"}, []string{"/bin/sleep", "60"})
	want := "start the transient unit none-" + n.unit + `: the result of the job is "failed"`
	assert.That(t, err != nil && err.Error() == want, "error %v, want %s", err, want)
	assert.NoError(t, exec.CommandContext(t.Context(), "/bin/sh", "-c", guardCheck).Run(), "a program of the guard is missing here")
}

func TestStoppedGuardDoesNothing(t *testing.T) {
	n := newNode(t)
	rec, lock := n.onTrial()
	n.startGuard(t.Context(), rec) // as the next run does, where it comes before the guard
	assert.That(t, n.out.Len() == 0, "it says %s", n.out)
	n.stopGuard(t.Context(), rec)
	assert.NoError(t, lock.Release())
	n.unguarded(rec)
	assert.NoError(t, assert.Err(os.Stat(rec.Trial)))
}

func (n *node) dropIn() string {
	n.t.Helper()
	raw := assert.Value(os.ReadFile(n.DropIn(n.unit)))(n.t)
	return string(raw)
}

func TestInstallAndUninstallKeepTheKubeletsCommandLine(t *testing.T) {
	n := newNode(t)
	before, tree := n.command(), n.digest()
	assert.Must(t, strings.HasSuffix(before, "|--label=a b"), "the kubelet runs as %s", before)
	n.installs()
	assert.Equal(t, n.command(), n.dir+"/evenkeel-agent|--|"+before)
	assert.Equal(t, strings.Join(n.events, "\n"), "Normal EvenkeelInstalled evenkeel-agent runs the kubelet of "+n.unit, "events")

	running := n.invocation()
	assert.Returns(t, "evenkeel-agent runs the kubelet of "+n.unit+" already ("+n.DropIn(n.unit)+"): nothing to do", "again")(n.install())
	assert.That(t, n.invocation() == running, "the second install has restarted the unit")

	assert.Returns(t, "the kubelet of "+n.unit+" runs without evenkeel-agent: healthy, node n Ready", "uninstall")(n.uninstall())
	n.is(before, tree)
	running = n.invocation()
	assert.Returns(t, n.DropIn(n.unit)+" does not exist: nothing to do", "uninstall again")(n.uninstall())
	assert.Equal(t, n.invocation(), running, "the invocation")
}

func TestInstallRestartsReplacedProgram(t *testing.T) {
	n := newNode(t)
	n.atWork(func(*node) {}) // with the program of a package
	n.installs()
	tree, before := n.digest(), n.invocation()
	raw, err := os.ReadFile(filepath.Join(n.dir, "evenkeel-agent"))
	err = errors.Join(err, os.Remove(filepath.Join(n.dir, "evenkeel-agent")), os.WriteFile(filepath.Join(n.dir, "evenkeel-agent"), raw, 0o755))
	assert.NoError(t, err)
	n.installs()
	running := n.invocation()
	assert.That(t, running != before && n.digest() == tree,
		"it was restarted: %t, unit files changed: %t", running != before, n.digest() != tree)
	n.ends(": nothing to do")(n.install())
	assert.Equal(t, n.invocation(), running, "the invocation")
}

func TestExistingAgentIsChangedAtTheNodesTurn(t *testing.T) {
	n := newNode(t)
	r := n.request()
	r.Turn = "new"
	assert.NoError(t, assert.Err(n.Install(t.Context(), r)), "a node without an agent")
	tree, running := n.digest(), n.invocation()
	n.ends(": nothing to do")(n.Install(t.Context(), r))

	r.Keep, r.Flags = false, []string{"--listen="}
	for turn, words := range map[string]string{
		"":     "not this node's turn: this node has another agent, or one with other flags, which stays until the node's turn: kubectl evenkeel install",
		"old":  "not this node's turn: this node has another agent, or one with other flags, which stays until the node's turn: kubectl evenkeel install",
		"away": "not this node's turn: the Node cannot be read, nothing was changed: connection refused",
	} {
		n.turn, n.state.Reachable, n.state.Cause = turn, turn != "away", "connection refused"
		_, err := n.Install(t.Context(), r)
		assert.That(t, errors.Is(err, ErrNotItsTurn) && err.Error() == words, "turn %q: %v, want %s", turn, err, words)
	}

	n.unchanged(running, tree)
	n.turn, n.state.Reachable = "new", true
	_, err := n.Install(t.Context(), r)
	assert.That(t, err == nil && n.invocation() != running && n.digest() != tree, "at the turn of the node: %v", err)
}

func TestAgentWithoutProgramIsNotRestored(t *testing.T) {
	n := newNode(t)
	plain, before := n.digest(), n.command()
	n.installs()
	next := filepath.Join(n.dir, "next")
	old := programOf(new(n.dropIn()))
	assert.NoError(t, errors.Join(os.Mkdir(next, 0o755), os.Link(old, filepath.Join(next, "evenkeel-agent")),
		os.WriteFile(filepath.Join(next, "agent.mode"), []byte("exit"), 0o644)))
	n.Place = func(dry bool) (string, error) {
		if !dry {
			assert.NoError(t, os.Remove(old))
		}

		return filepath.Join(next, "evenkeel-agent"), nil
	}
	_, err := n.install()
	assert.That(t, errors.Is(err, ErrTakenBack) && strings.Contains(n.out.String(), old+", which ran the kubelet before, no longer exists: starting the kubelet without an agent\n"),
		"error %v, said %s", err, n.out)
	n.well()
	n.is(before, plain)
}

func TestDryRunPrintsTheDropInAndWritesNothing(t *testing.T) {
	n := newNode(t)
	tree, running := n.digest(), n.invocation()
	r := n.request()
	r.DryRun = true
	words := assert.Value(n.Install(t.Context(), r))(t)
	for _, want := range []string{
		"# The kubelet of " + n.unit + ", from " + n.m.Path("/usr/lib/systemd/system/"+n.unit+".d/10-kubeadm.conf") + ": " + strings.ReplaceAll(n.command(), "|", " ") + "\n",
		"# This would be tried from " + n.TrialDir + ": systemctl daemon-reload, systemctl restart " + n.unit + ". When the kubelet is healthy again " + n.DropIn(n.unit) + "\n" +
			"# would be written. Nothing was changed.\n",
		"\nExecStart=\nExecStart=" + n.dir + "/evenkeel-agent -- ",
	} {
		assert.That(t, strings.Contains(words, want), "output lacks %q:\n%s", want, words)
	}

	assert.Is(t, assert.Err(os.Stat(n.StateDir)), os.ErrNotExist, "a record was written")
	n.unchanged(running, tree)
}

func TestUnhealthyInstallIsTakenBackByteForByte(t *testing.T) {
	for _, tt := range []struct{ name, agent, kubelet, words string }{
		{"an agent that exits", "exit", "", `the result of the job is "failed"`},
		{"an agent that is never ready", "never ready", "", "the job has not ended: not within 3s"},
		{"a kubelet that is never healthy", "", "unwell with agent", "not healthy within 3s: http://HEALTHZ answers 500 "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			tree, before := n.digest(), n.command()
			n.beside("agent.mode", tt.agent)
			n.beside("kubelet.mode", tt.kubelet)
			r := n.request()
			r.Attempt, r.Timing.Timeout = "pod-1", 3*time.Second
			_, err := n.Install(t.Context(), r)
			assert.Is(t, err, ErrTakenBack)
			assert.ErrorHas(t, err, n.filled(tt.words))
			n.well()
			n.is(before, tree)
			event := "Warning EvenkeelInstallFailed install of evenkeel-agent in front of " + n.unit + " was taken back: "
			assert.That(t, len(n.events) == 1 && strings.HasPrefix(n.events[0], event), "events %q", n.events)

			n.beside("agent.mode", "")
			n.beside("kubelet.mode", "")
			running := n.invocation()
			_, err = n.Install(t.Context(), r)
			assert.Is(t, err, ErrTakenBack, "the same attempt again")
			assert.ErrorHas(t, err, "this attempt (pod-1) has failed before and is not repeated: ")
			assert.Equal(t, n.invocation(), running, "the invocation")
			r.Attempt, r.Timing = "pod-2", pace
			assert.NoError(t, assert.Err(n.Install(t.Context(), r)), "another attempt")
		})
	}
}

func TestOnlyOneInstallerRuns(t *testing.T) {
	n := newNode(t)
	tree := n.digest()
	assert.NoError(t, os.Mkdir(n.StateDir, 0o700))
	var second error
	n.atWork(func(n *node) {
		other := n.Host
		second = assert.Err(other.Install(t.Context(), n.request()))
	})
	n.installs()
	assert.Is(t, second, ErrBusy, "the second one")
	assert.That(t, tree != n.digest(), "nothing was installed")
}

func TestTheCommandLineOfAUnitIsReadWithAndWithoutAnAgent(t *testing.T) {
	n := newNode(t)
	kubelet := strings.Split(n.command(), "|")
	reads := func(r Request, flags ...string) {
		t.Helper()
		agent, argv, err := n.CommandLine(t.Context(), r)
		assert.That(t, err == nil && slices.Equal(agent, flags) && slices.Equal(argv, kubelet), "got %q and %q, %v; want %q and %q", agent, argv, err, flags, kubelet)
	}
	r := n.request()
	r.Flags = []string{"--default=1"}
	reads(r, "--default=1")
	installed := n.request()
	installed.Keep, installed.Flags = false, []string{"--own=1"}
	assert.NoError(t, assert.Err(n.Install(t.Context(), installed)))
	reads(r, "--own=1")

	fails := func(r Request, words string) {
		t.Helper()
		_, _, err := n.CommandLine(t.Context(), r)
		assert.ErrorHas(t, err, words)
	}
	r.Unit = "none"
	fails(r, "none.service does not exist")
	n.beside("kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=--bad=1\n")
	fails(n.request(), "bad is no flag of a kubelet")
	assert.NoError(t, n.save(&change{Version: recordVersion, Operation: installing, Unit: n.unit}))
	fails(n.request(), "install of "+n.unit+" was interrupted (begun ")
	assert.NoError(t, os.WriteFile(n.record(n.unit), nil, 0o600))
	fails(n.request(), "record "+n.record(n.unit))
}
