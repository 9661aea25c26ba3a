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

	"github.com/evenkeel/evenkeel/internal/source"
)

// The Events on the Node.
const (
	EventInstalled   = "EvenkeelInstalled"
	EventFailed      = "EvenkeelInstallFailed"
	EventUninstalled = "EvenkeelUninstalled"
)

// begin records a change and carries it out.
func (h *Host) begin(ctx context.Context, rec *record, pace Pace) error {
	if err := h.store().save(rec); err != nil {
		return fmt.Errorf("record what is to be done, nothing was changed: %w", err)
	}
	return h.finish(ctx, rec, pace, false)
}

// resume completes what was interrupted, or takes it back. It returns ErrTakenBack for the latter.
func (h *Host) resume(ctx context.Context, rec *record, pace Pace) error {
	there, err := readDropIn(h.FS, rec.DropIn)
	if err != nil {
		return err
	}
	switch {
	case !same(there, rec.From) && !same(there, rec.To):
		return fmt.Errorf("%s of %s was interrupted (begun %s), and %s was changed since by somebody else: make it what it is to be, remove %s, and begin again",
			rec.Operation, rec.Unit, rec.Begun.Format("2006-01-02 15:04:05Z"), rec.DropIn, h.store().path(rec.Unit))
	case !rec.Back && same(there, rec.From) && !same(rec.From, rec.To):
		return h.forget(rec)
	}
	if err := sweep(h.FS, rec.DropIn); err != nil {
		return err
	}
	h.say("%s of %s was interrupted (begun %s): going on with it", rec.Operation, rec.Unit, rec.Begun.Format("2006-01-02 15:04:05Z"))
	return h.finish(ctx, rec, pace, true)
}

// forget removes what is left of a change that had not begun: what systemd reads is as it was.
func (h *Host) forget(rec *record) error {
	if err := sweep(h.FS, rec.DropIn); err != nil {
		return err
	}
	if rec.From == nil {
		if err := putDropIn(h.FS, rec.DropIn, nil); err != nil { // its directory
			return err
		}
	}
	return h.store().drop(rec.Unit)
}

// finish carries a recorded change out, and takes it back if it fails.
func (h *Host) finish(ctx context.Context, rec *record, pace Pace, resumed bool) error {
	if !rec.Back {
		err := h.carry(ctx, rec, pace, resumed)
		if err == nil {
			return h.end(ctx, rec, done)
		}
		rec.Reason = err.Error()
		if rec.Operation == uninstalling && !rec.Healthy { // nor was it before: there is nothing to go back to
			return h.end(ctx, rec, done)
		}
		rec.Back = true
		h.say("%v: taking it back", err)
		if program := programOf(rec.From); isGone(program) {
			h.say("%s, which ran the kubelet before, is gone: the kubelet is started without an agent", program)
			rec.From = nil
		}
		// Not recorded, it would be found out again: that is no reason to leave the node as it is.
		_ = h.store().save(rec)
		resumed = true
	}
	// Whoever asked may be gone; the node is not left half-way.
	ctx = context.WithoutCancel(ctx)
	touched := h.touched(ctx, rec)
	if err := h.carry(ctx, rec, pace, resumed); err != nil {
		// The record stays as it is: the next run goes on with it.
		return fmt.Errorf("%s of %s: %s; %w, but what was there before does not come up healthy either: %w", rec.Operation, rec.Unit, rec.Reason, ErrTakenBack, err)
	}
	if !touched {
		if err := h.store().drop(rec.Unit); err != nil {
			return err
		}
		return fmt.Errorf("%s, nothing was changed: the kubelet was not restarted", rec.Reason)
	}
	return errors.Join(fmt.Errorf("%s of %s: %w: %s", rec.Operation, rec.Unit, ErrTakenBack, rec.Reason), h.end(ctx, rec, takenBack))
}

// programOf is the program that a drop-in starts; empty if there is no drop-in, or it starts none.
func programOf(dropIn *string) string {
	if dropIn == nil {
		return ""
	}
	start, err := startOf([]file{{DropInName, []byte(*dropIn)}})
	if err != nil {
		return ""
	}
	return strings.Fields(start.text)[0]
}

func isGone(program string) bool {
	_, err := os.Stat(program)
	return program != "" && errors.Is(err, fs.ErrNotExist)
}

// end tells and records how a change ended.
func (h *Host) end(ctx context.Context, rec *record, how outcome) error {
	rec.Outcome = how
	h.event(ctx, rec)
	return h.store().save(rec)
}

// touched tells whether the unit may have been started anew since a change began.
func (h *Host) touched(ctx context.Context, rec *record) bool {
	u, err := h.Manager.Unit(ctx, rec.Unit)
	return err != nil || u.Invocation != rec.Invocation || !u.Running()
}

// carry makes the unit what is wanted, from wherever an interrupted run has left it, and watches it. Each step does
// nothing if it was done.
func (h *Host) carry(ctx context.Context, rec *record, pace Pace, resumed bool) error {
	wanted := rec.wanted()
	there, err := readDropIn(h.FS, rec.DropIn)
	if err != nil {
		return err
	}
	if !same(there, wanted) || wanted == nil { // that may be left half-way: without the file, with its directory
		if err := putDropIn(h.FS, rec.DropIn, wanted); err != nil {
			return fmt.Errorf("write %s: %w", rec.DropIn, explainReadOnly(err))
		}
	}
	u, err := h.Manager.Unit(ctx, rec.Unit)
	if err != nil {
		return err
	}
	if stale := slices.Contains(u.DropIns, rec.DropIn) != (wanted != nil); stale || u.NeedDaemonReload || !resumed {
		if err := h.Manager.Reload(ctx); err != nil {
			return err
		}
		if u, err = h.Manager.Unit(ctx, rec.Unit); err != nil {
			return err
		}
	}
	if !rec.Back && wanted != nil {
		if err := h.verify(ctx, rec, u); err != nil {
			return err
		}
	}
	if !resumed || !h.runs(u) || !rec.Back && u.Invocation == rec.Invocation {
		h.say("restarting %s", rec.Unit)
		restart, cancel := context.WithTimeoutCause(ctx, pace.Timeout, fmt.Errorf("not within %s", pace.Timeout))
		defer cancel()
		if err := h.Manager.Restart(restart, rec.Unit); err != nil {
			return h.withJournal(ctx, rec, err)
		}
	}
	if err := h.watch(ctx, rec, pace); err != nil {
		return h.withJournal(ctx, rec, err)
	}
	return nil
}

// verify makes sure, before anything is restarted, that systemd reads the drop-in as it is meant.
func (h *Host) verify(ctx context.Context, rec *record, u Unit) error {
	if u.LoadState != "loaded" || len(u.Exec) != 1 {
		return fmt.Errorf("systemd does not take %s (%s): %s", rec.DropIn, u.LoadState, u.LoadError)
	}
	agent := append(slices.Clone(rec.Agent), "--")
	if !strings.Contains(rec.Prefix, ":") {
		for i, word := range agent {
			agent[i] = strings.ReplaceAll(word, "$", "$$") // as it is before variables are put in
		}
	}
	if len(u.Exec[0]) <= len(agent) || !slices.Equal(u.Exec[0][:len(agent)], agent) {
		return fmt.Errorf("systemd reads the command line as %q, which does not begin with %q", u.Exec[0], agent)
	}
	kubelet := u.Exec[0][len(agent):]
	switch {
	case slices.Equal(kubelet, rec.Kubelet):
		return nil
	case rec.From == nil:
		return fmt.Errorf("systemd reads the kubelet's command line as %q behind the agent, and as %q without", kubelet, rec.Kubelet)
	}
	// The kubelet's own unit has changed since the agent was put in front of it.
	kubelet, err := u.expand(kubelet, rec.Prefix)
	if err == nil {
		_, err = h.Check(ctx, rec.Agent[1:], kubelet)
	}
	if err != nil {
		return fmt.Errorf("the agent would not take the kubelet's new command line: %w", err)
	}
	return nil
}

// runs tells whether the process that runs is the one that systemd would start.
func (h *Host) runs(u Unit) bool {
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
			break // what follows may be any number of words
		}
		if i >= len(have) || have[i] != word {
			return false
		}
	}
	return true
}

// withJournal adds what the unit itself said.
func (h *Host) withJournal(ctx context.Context, rec *record, err error) error {
	u, asked := h.Manager.Unit(ctx, rec.Unit)
	if asked != nil {
		return err
	}
	if text := h.Journal(ctx, u); text != "" {
		return fmt.Errorf("%w; it said last:\n%s", err, text)
	}
	return err
}

// event tells the cluster how it ended. That nobody there listens changes nothing.
func (h *Host) event(ctx context.Context, rec *record) {
	if rec.Target.Kubeconfig == "" {
		return
	}
	severity, reason, message := source.Normal, EventInstalled, "evenkeel-agent runs the kubelet of "+rec.Unit
	switch {
	case rec.Outcome == takenBack:
		severity, reason = source.Warning, EventFailed
		message = fmt.Sprintf("%s of evenkeel-agent in front of %s was taken back: %s", rec.Operation, rec.Unit, rec.Reason)
	case rec.Operation == uninstalling:
		reason, message = EventUninstalled, "the kubelet of "+rec.Unit+" runs without evenkeel-agent"
	}
	api, err := h.API(rec.Target)
	if err == nil {
		err = api.Event(ctx, severity, reason, message)
	}
	if err != nil {
		h.say("the Event %s cannot be written: %v", reason, err)
	}
}
