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
	there, err := rec.found(h.FS)
	if err != nil {
		return err
	}
	begun := rec.Begun.Format("2006-01-02 15:04:05Z")
	changed := func(path string) error {
		return fmt.Errorf("%s of %s was interrupted (begun %s), and %s was changed since by somebody else: make it what it is to be, remove %s, and begin again",
			rec.Operation, rec.Unit, begun, path, h.store().path(rec.Unit))
	}
	begins := rec.wanted()
	switch {
	case !same(there.lasting, rec.From) && !same(there.lasting, rec.To):
		return changed(rec.DropIn)
	case rec.Operation == installing && there.trial != nil && !same(there.trial, rec.To):
		return changed(rec.Trial)
	case rec.Back || rec.Proven || same(there.lasting, begins.lasting) && same(there.trial, begins.trial):
		h.say("%s of %s was interrupted (begun %s): going on with it", rec.Operation, rec.Unit, begun)
	case !h.touched(ctx, rec):
		return h.forget(ctx, rec)
	case rec.Operation == installing:
		rec.Back, rec.Reason = true, fmt.Sprintf("begun %s, and interrupted: the node was rebooted, or the installer killed, which took it back", begun)
	}
	return h.finish(ctx, rec, pace, true)
}

// forget removes what is left of a change that had not begun: what systemd reads is as it was.
func (h *Host) forget(ctx context.Context, rec *record) error {
	if err := rec.put(h.FS, dropIns{lasting: rec.From}); err != nil {
		return err
	}
	h.release(ctx, rec)
	return h.store().drop(rec.Unit)
}

// finish carries a recorded change out, and takes it back if it fails.
func (h *Host) finish(ctx context.Context, rec *record, pace Pace, resumed bool) error {
	if !rec.Back {
		h.guard(ctx, rec)
		err := h.carry(ctx, rec, pace, resumed)
		if err == nil {
			err = h.keep(ctx, rec)
		}
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
		// The record stays as it is, and the guard does: the next run goes on with it, and that may be able to.
		return fmt.Errorf("%s of %s: %s; %w, but what was there before does not come up healthy either: %w", rec.Operation, rec.Unit, rec.Reason, ErrTakenBack, err)
	}
	if !touched {
		h.release(ctx, rec)
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
	h.release(ctx, rec)
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
	u, err := h.write(ctx, rec)
	if err != nil {
		return err
	}
	if !rec.Back && rec.To != nil {
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

// write makes the files what is wanted, and has systemd read them.
func (h *Host) write(ctx context.Context, rec *record) (Unit, error) {
	wanted := rec.wanted()
	if err := rec.put(h.FS, wanted); err != nil {
		return Unit{}, err
	}
	u, err := h.Manager.Unit(ctx, rec.Unit)
	if err != nil {
		return u, err
	}
	read := func(path string) bool { return slices.Contains(u.DropIns, path) }
	if read(rec.DropIn) == (wanted.lasting != nil) && read(rec.Trial) == (wanted.trial != nil) && !u.NeedDaemonReload {
		return u, nil
	}
	if err := h.Manager.Reload(ctx); err != nil {
		return u, err
	}
	return h.Manager.Unit(ctx, rec.Unit)
}

// keep makes what was tried last beyond a reboot. Nothing is restarted for it.
func (h *Host) keep(ctx context.Context, rec *record) error {
	if rec.Proven = rec.Operation == installing; !rec.Proven {
		return nil
	}
	err := h.store().save(rec)
	if err == nil {
		_, err = h.write(ctx, rec)
	}
	rec.Proven = err == nil
	return err
}

// What the guard needs, and what it does once it has the lock of an installer that was killed: it must not give up. In braces
// systemd would expand variables.
const (
	canTakeBack = `for program in flock rm rmdir dirname sleep systemctl; do command -v "$program" || exit; done`
	takeBack    = `exec flock "$1" /bin/sh -c '
rm -f "$1"; rmdir "$(dirname "$1")" 2>/dev/null
until systemctl daemon-reload; do sleep 1; done
until systemctl --no-block restart "$2"; do sleep 1; done' "$0" "$2" "$3"`
)

func guardOf(rec *record) string { return "evenkeel-guard-" + rec.Unit }

// guard has systemd take back what is tried if this process is killed: who would begin it again may be an installer in a pod,
// for which there is no kubelet then.
func (h *Host) guard(ctx context.Context, rec *record) {
	if rec.Operation != installing {
		return
	}
	err := h.Manager.StartTransient(ctx, guardOf(rec), "Takes evenkeel-agent from "+rec.Unit+" if its install is killed",
		[]string{"/bin/sh", "-c", canTakeBack},
		[]string{"/bin/sh", "-c", takeBack, "evenkeel-guard", h.store().lock(), rec.Trial, rec.Unit})
	if err != nil {
		h.say("nobody will take it back if this is killed: %v", err)
	}
}

// release ends what guard began, here or in a run that was killed, while the lock still keeps it from doing anything.
func (h *Host) release(ctx context.Context, rec *record) {
	_ = h.Manager.Stop(context.WithoutCancel(ctx), guardOf(rec)) // there may be none; one that stays restarts the unit once more
}

// verify makes sure, before anything is restarted, that systemd reads the drop-in as it is meant.
func (h *Host) verify(ctx context.Context, rec *record, u Unit) error {
	if u.LoadState != "loaded" || len(u.Exec) != 1 {
		return fmt.Errorf("systemd does not take %s (%s): %s", rec.Trial, u.LoadState, u.LoadError)
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
