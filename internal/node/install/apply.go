// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/node/source"
)

// The reasons of the Events on the Node.
const (
	EventInstalled   = "EvenkeelInstalled"
	EventFailed      = "EvenkeelInstallFailed"
	EventUninstalled = "EvenkeelUninstalled"
)

// apply records a change and makes it.
func (h *Host) apply(ctx context.Context, c *change, timing Timing) error {
	if err := h.save(c); err != nil {
		return fmt.Errorf("write the install record, nothing was changed: %w", err)
	}

	return h.finish(ctx, c, timing, false)
}

// resume completes an interrupted change, or takes it back. It returns nil if
// the caller can go on: the change is complete, or was taken back because of
// the interruption. If the change fails now, it returns ErrTakenBack.
func (h *Host) resume(ctx context.Context, c *change, timing Timing) error {
	there, err := c.readFiles(h.FS)
	if err != nil {
		return err
	}

	begun := c.Begun.Format("2006-01-02 15:04:05Z")
	changed := func(path string) error {
		return fmt.Errorf("%s of %s was interrupted (begun %s), and %s was changed since by someone else: edit it as needed, remove %s, and "+
			"run the command again",
			c.Operation, c.Unit, begun, path, h.record(c.Unit))
	}
	begins := c.desired()
	switch {
	case !same(there.lasting, c.From) && !same(there.lasting, c.To):
		return changed(c.DropIn)
	case c.Operation == installing && there.trial != nil && !same(there.trial, c.To):
		return changed(c.Trial)
	case c.Back || c.Proven || same(there.lasting, begins.lasting) && same(there.trial, begins.trial):
		h.printf("%s of %s was interrupted (begun %s): continuing", c.Operation, c.Unit, begun)
	case !h.mayHaveRestarted(ctx, c):
		return h.discard(ctx, c)
	case c.Operation == installing:
		c.Back, c.Reason = true, fmt.Sprintf("begun %s, and interrupted: the node was rebooted, or the installer killed, which took it back",
			begun)
	}

	decided := c.Back
	err = h.finish(ctx, c, timing, true)
	if err == nil || !decided {
		return err
	}
	// The caller can go on only if the record says that the node has its
	// previous state again.
	if left, loadErr := h.load(c.Unit); loadErr != nil || left.open() {
		return errors.Join(err, loadErr)
	}

	h.printf("%v", err)

	return nil
}

// tidy removes temporary files that interrupted runs left in a directory. They
// are harmless, so a failure is only printed.
func (h *Host) tidy(dir, prefix string) {
	if err := sweep(h.FS, dir, prefix); err != nil {
		h.printf("cannot remove temporary files of an earlier run: %v", err)
	}
}

// discard removes what is left of a change that had not begun: systemd has not
// read it.
func (h *Host) discard(ctx context.Context, c *change) error {
	if err := c.writeFiles(h.FS, dropIns{lasting: c.From}); err != nil {
		return err
	}

	h.stopGuard(ctx, c)

	return h.drop(c.Unit)
}

// finish makes a recorded change, and takes it back if it fails.
func (h *Host) finish(ctx context.Context, c *change, timing Timing, resumed bool) error {
	if !c.Back {
		h.startGuard(ctx, c)
		err := h.converge(ctx, c, timing, resumed)
		if err == nil {
			err = h.persist(ctx, c)
		}
		if err == nil {
			return h.end(ctx, c, done)
		}

		c.Reason = err.Error()
		if c.Operation == uninstalling && !c.Healthy { // it was not healthy before either: there is no good state to return to
			return h.end(ctx, c, done)
		}

		c.Back = true
		h.printf("%v: taking it back", err)
		if program := programOf(c.From); isGone(program) {
			h.printf("%s, which ran the kubelet before, no longer exists: starting the kubelet without an agent", program)
			c.From = nil
		}

		// If this write fails, the next run finds out the same; the node must
		// be repaired now.
		_ = h.save(c)
		resumed = true
	}

	// The caller may be gone, but the node must not stay half-changed.
	ctx = context.WithoutCancel(ctx)
	restarted := h.mayHaveRestarted(ctx, c)
	if err := h.converge(ctx, c, timing, resumed); err != nil {
		// The record and the guard stay: the next run, or the guard, continues.
		return fmt.Errorf("%s of %s: %s; %w, but the previous state does not become healthy either: %w", c.Operation, c.Unit, c.Reason,
			ErrTakenBack, err)
	}

	if !restarted {
		h.stopGuard(ctx, c)
		if err := h.drop(c.Unit); err != nil {
			return err
		}

		return fmt.Errorf("%s, nothing was changed: the kubelet was not restarted", c.Reason)
	}

	return errors.Join(fmt.Errorf("%s of %s: %w: %s", c.Operation, c.Unit, ErrTakenBack, c.Reason), h.end(ctx, c, takenBack))
}

// programOf returns the program that a drop-in starts; empty if there is none.
func programOf(dropIn *string) string {
	if dropIn == nil {
		return ""
	}

	start, err := execStartOf([]file{{DropInName, []byte(*dropIn)}})
	if err != nil {
		return ""
	}

	return strings.Fields(start.text)[0]
}

func isGone(program string) bool {
	_, err := os.Stat(program)
	return program != "" && errors.Is(err, fs.ErrNotExist)
}

// end records and reports the outcome of a change.
func (h *Host) end(ctx context.Context, c *change, how outcome) error {
	c.Outcome = how
	h.stopGuard(ctx, c)
	h.event(ctx, c)
	return h.save(c)
}

// mayHaveRestarted reports whether the unit may have been started since the
// change began.
func (h *Host) mayHaveRestarted(ctx context.Context, c *change) bool {
	u, err := h.Manager.Unit(ctx, c.Unit)
	return err != nil || u.Invocation != c.Invocation || !u.Running()
}

// converge brings the unit to the desired state from any state that an
// interrupted run left, and waits until it is healthy. Steps that are already
// done are skipped.
func (h *Host) converge(ctx context.Context, c *change, timing Timing, resumed bool) error {
	u, err := h.write(ctx, c)
	if err != nil {
		return err
	}

	if !c.Back && c.To != nil {
		if err := h.verify(ctx, c, u); err != nil {
			return err
		}
	}

	if !resumed || !h.runsDesired(u) || !c.Back && u.Invocation == c.Invocation {
		h.printf("restarting %s", c.Unit)
		restart, cancel := context.WithTimeoutCause(ctx, timing.Timeout, fmt.Errorf("not within %s", timing.Timeout))
		defer cancel()
		if err := h.Manager.Restart(restart, c.Unit); err != nil {
			return h.withJournal(ctx, c, err)
		}
	}

	if err := h.watch(ctx, c, timing); err != nil {
		return h.withJournal(ctx, c, err)
	}

	return nil
}

// write writes the desired files, and makes systemd read them.
func (h *Host) write(ctx context.Context, c *change) (Unit, error) {
	desired := c.desired()
	if err := c.writeFiles(h.FS, desired); err != nil {
		return Unit{}, err
	}

	u, err := h.Manager.Unit(ctx, c.Unit)
	if err != nil {
		return u, err
	}

	read := func(path string) bool { return slices.Contains(u.DropIns, path) }
	if read(c.DropIn) == (desired.lasting != nil) && read(c.Trial) == (desired.trial != nil) && !u.NeedDaemonReload {
		return u, nil
	}
	if err := h.Manager.Reload(ctx); err != nil {
		return u, err
	}

	return h.Manager.Unit(ctx, c.Unit)
}

// persist moves a tried drop-in to its final path. It restarts nothing.
func (h *Host) persist(ctx context.Context, c *change) error {
	if c.Proven = c.Operation == installing; !c.Proven {
		return nil
	}

	err := h.save(c)
	if err == nil {
		_, err = h.write(ctx, c)
	}

	c.Proven = err == nil

	return err
}

// The commands of the guard. The first checks that the needed programs exist.
// The second waits for the lock of an installer that was killed, and then must
// not give up. systemd would expand variables in braces.
const (
	guardCheck   = `for program in flock rm rmdir dirname sleep systemctl; do command -v "$program" || exit; done`
	guardCommand = `exec flock "$1" /bin/sh -c '
rm -f "$1"; rmdir "$(dirname "$1")" 2>/dev/null
until systemctl daemon-reload; do sleep 1; done
until systemctl --no-block restart "$2"; do sleep 1; done' "$0" "$2" "$3"`
)

func guardOf(c *change) string { return "evenkeel-guard-" + c.Unit }

// startGuard makes systemd take a trial back if this process is killed: an
// installer in a pod could not start again, without a kubelet.
func (h *Host) startGuard(ctx context.Context, c *change) {
	if c.Operation != installing {
		return
	}

	err := h.Manager.StartTransient(ctx, guardOf(c), "Takes evenkeel-agent from "+c.Unit+" if its install is killed",
		[]string{"/bin/sh", "-c", guardCheck},
		[]string{"/bin/sh", "-c", guardCommand, "evenkeel-guard", h.lock(), c.Trial, c.Unit})
	if err != nil {
		h.printf("no guard will take the change back if this process is killed: %v", err)
	}
}

// stopGuard stops the guard of this or an earlier run, while the lock still
// blocks it.
func (h *Host) stopGuard(ctx context.Context, c *change) {
	_ = h.Manager.Stop(context.WithoutCancel(ctx), guardOf(c)) // it may not exist; one that stays only restarts the unit once more
}

// verify checks, before any restart, that systemd reads the drop-in as
// intended.
func (h *Host) verify(ctx context.Context, c *change, u Unit) error {
	if u.LoadState != "loaded" || len(u.Exec) != 1 {
		return fmt.Errorf("systemd does not accept %s (%s): %s", c.Trial, u.LoadState, u.LoadError)
	}

	agent := append(slices.Clone(c.Agent), "--")
	if !strings.Contains(c.Prefix, ":") {
		for i, word := range agent {
			agent[i] = strings.ReplaceAll(word, "$", "$$") // not expanded
		}
	}

	if len(u.Exec[0]) <= len(agent) || !slices.Equal(u.Exec[0][:len(agent)], agent) {
		return fmt.Errorf("systemd reads the command line as %q, which does not begin with %q", u.Exec[0], agent)
	}

	kubelet := u.Exec[0][len(agent):]
	switch {
	case slices.Equal(kubelet, c.Kubelet):
		return nil
	case c.From == nil:
		return fmt.Errorf("systemd reads the kubelet's command line as %q behind the agent, and as %q without", kubelet, c.Kubelet)
	}

	// The kubelet's own unit changed after the agent was installed.
	kubelet, err := u.expand(kubelet, c.Prefix)
	if err == nil {
		_, err = h.Check(ctx, c.Agent[1:], kubelet, false)
	}
	if err != nil {
		return fmt.Errorf("the agent refuses the kubelet's new command line: %w", err)
	}

	return nil
}

// runsDesired reports whether the running process is the one that systemd would
// start.
func (h *Host) runsDesired(u Unit) bool {
	if !u.Running() || len(u.Exec) != 1 {
		return false
	}

	line, err := os.ReadFile(filepath.Join(h.Proc, fmt.Sprint(u.MainPID), "cmdline"))
	if err != nil {
		return false
	}

	have := strings.Split(string(bytes.TrimSuffix(line, []byte{0})), "\x00")
	for i, word := range u.Exec[0] {
		if strings.Contains(word, "$") {
			break // it may expand to any number of words
		}
		if i >= len(have) || have[i] != word {
			return false
		}
	}

	return true
}

// withJournal adds the last log lines of the unit.
func (h *Host) withJournal(ctx context.Context, c *change, err error) error {
	u, asked := h.Manager.Unit(ctx, c.Unit)
	if asked != nil {
		return err
	}
	if text := h.Journal(ctx, u); text != "" {
		return fmt.Errorf("%w; its last log lines:\n%s", err, text)
	}

	return err
}

// event writes the outcome as an Event on the Node. A failure has no
// consequence.
func (h *Host) event(ctx context.Context, c *change) {
	if c.Target.Kubeconfig == "" {
		return
	}

	severity, reason, message := source.Normal, EventInstalled, "evenkeel-agent runs the kubelet of "+c.Unit
	switch {
	case c.Outcome == takenBack:
		severity, reason = source.Warning, EventFailed
		message = fmt.Sprintf("%s of evenkeel-agent in front of %s was taken back: %s", c.Operation, c.Unit, c.Reason)
	case c.Operation == uninstalling:
		reason, message = EventUninstalled, "the kubelet of "+c.Unit+" runs without evenkeel-agent"
	}

	api, err := h.API(c.Target)
	if err == nil {
		err = api.Event(ctx, c.Target.Node, "evenkeel-agent", severity, reason, message)
	}
	if err != nil {
		h.printf("the Event %s cannot be written: %v", reason, err)
	}
}
