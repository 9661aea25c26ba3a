package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
)

// Uninstall takes the agent away: the drop-in goes, and the kubelet runs as it did before. It returns what is to be said
// of it. An error that is not ErrTakenBack means that nothing was changed.
func (h *Host) Uninstall(ctx context.Context, r Request) (string, error) {
	return h.locked(ctx, r, func() (string, error) { return h.uninstall(ctx, r) })
}

func (h *Host) uninstall(ctx context.Context, r Request) (string, error) {
	if !strings.HasSuffix(r.Unit, ".service") {
		r.Unit += ".service"
	}
	u, err := h.Manager.Unit(ctx, r.Unit)
	if err != nil {
		return "", err
	}
	before, err := h.load(u.Name)
	if err != nil {
		return "", err
	}
	if before.open() && before.Operation == uninstalling && !r.DryRun {
		if err := h.resume(ctx, before, r.Pace); err != nil {
			return "", err
		}
		if u, err = h.Manager.Unit(ctx, u.Name); err != nil {
			return "", err
		}
	}
	if err := before.repeats(uninstalling, r.Attempt); err != nil {
		return "", err
	}
	rec := &record{
		Version: recordVersion, Operation: uninstalling, Unit: u.Name, Attempt: r.Attempt, Begun: time.Now().UTC(),
		DropIn: h.DropIn(u.Name), Trial: h.trial(u.Name), Invocation: u.Invocation,
	}
	there, err := rec.found(h.FS)
	if err != nil {
		return "", err
	}
	if err := errors.Join(mayGo(rec.DropIn, there.lasting, r.Force), mayGo(rec.Trial, there.trial, r.Force)); err != nil {
		return "", err
	}
	rec.From = there.lasting
	ours := rec.DropIn
	if rec.From == nil && there.trial != nil {
		ours = rec.Trial
	}
	memory := h.Memory
	read := slices.Contains(u.DropIns, rec.DropIn) || slices.Contains(u.DropIns, rec.Trial)
	interrupted := before.open() && !r.DryRun // an install: what there is of it is undone here
	switch {
	case rec.From == nil && there.trial == nil && !read && !(interrupted && h.touched(ctx, before)):
		if interrupted {
			if err := h.forget(ctx, before); err != nil {
				return "", err
			}
		}
		return h.gone(u, r, memory)
	case rec.From == nil:
		if interrupted {
			rec.Target = before.Target
		}
	default:
		with, checked, err := h.without(ctx, u, *rec.From)
		if err != nil && !r.Force {
			return "", fmt.Errorf("without evenkeel the kubelet of %s would not do, nothing was changed (--force uninstalls all the same): %w", u.Name, err)
		}
		if err == nil {
			rec.Target, memory = checked.Target, checked.Limits.StateDir
		}
		rec.Healthy = err == nil && !r.Force && u.Running() && h.anyHealthy(ctx, rec.Target, with)
	}
	if r.DryRun {
		return fmt.Sprintf("%s would be removed, then systemctl daemon-reload, systemctl restart %s. Nothing was changed.", ours, u.Name), nil
	}
	if u.LoadState != "loaded" || u.ActiveState == "inactive" {
		return h.removeQuietly(ctx, u, r, rec, ours, memory)
	}
	if err := h.begin(ctx, rec, r.Pace); err != nil {
		return "", err
	}
	words, err := h.purge(r, memory)
	if rec.Reason != "" {
		return fmt.Sprintf("%s is gone, and %s is as unwell as before: %s%s", ours, u.Name, rec.Reason, words), err
	}
	return fmt.Sprintf("the kubelet of %s runs without evenkeel-agent%s%s", u.Name, rec.Target.words(), words), err
}

// mayGo returns why a drop-in stays.
func mayGo(path string, content *string, force bool) error {
	switch {
	case content == nil:
	case originOf(*content) == foreign:
		return fmt.Errorf("%s is not evenkeel's: it stays; move it yourself if it is to go", path)
	case originOf(*content) == edited && !force:
		return fmt.Errorf("%s was edited since evenkeel wrote it: look whether it has something to keep, then uninstall with --force", path)
	}
	return nil
}

// anyHealthy tells whether a kubelet answers as one of these.
func (h *Host) anyHealthy(ctx context.Context, as ...Target) bool {
	return slices.ContainsFunc(as, func(t Target) bool { return h.healthz(ctx, t) == nil })
}

// without has the kubelet judged as it would be started without the agent. It also returns what it is with it, for as long
// as that is there.
func (h *Host) without(ctx context.Context, u Unit, content string) (with Target, checked Checked, err error) {
	flags, err := flagsOf(content)
	if err != nil {
		return with, checked, err
	}
	files, err := h.filesOf(u)
	if err != nil {
		return with, checked, err
	}
	start, err := startOf(files)
	if err != nil {
		return with, checked, err
	}
	if len(u.Exec) != 1 || len(u.Exec[0]) == 0 {
		return with, checked, errors.New("systemd has no command for it")
	}
	argv := u.Exec[0]
	if inner := wrapped(argv); inner != nil {
		argv = inner
	}
	kubelet, err := u.expand(argv, start.prefix)
	if err != nil {
		return with, checked, err
	}
	if checked, err = h.Plain(ctx, flags, kubelet); err != nil {
		return with, checked, err
	}
	with = checked.Target
	if as, err := h.Check(ctx, flags, kubelet); err == nil { // else the agent does not take it any more, and is to go
		with = as.Target
	}
	return with, checked, nil
}

// removeQuietly removes what there is of a unit that does not run, which is not started for it.
func (h *Host) removeQuietly(ctx context.Context, u Unit, r Request, rec *record, ours, memory string) (string, error) {
	if err := rec.put(h.FS, rec.wanted()); err != nil {
		return "", err
	}
	if err := h.Manager.Reload(ctx); err != nil {
		return "", err
	}
	h.release(ctx, rec)
	if err := h.store().drop(u.Name); err != nil {
		return "", err
	}
	words, err := h.purge(r, memory)
	return fmt.Sprintf("%s is gone; %s does not run (%s), and was not started%s", ours, u.Name, u.state(), words), err
}

// gone is what is said where there is no drop-in.
func (h *Host) gone(u Unit, r Request, memory string) (string, error) {
	if r.DryRun {
		return fmt.Sprintf("there is no %s: nothing to do", h.DropIn(u.Name)), nil
	}
	words, err := h.purge(r, memory)
	return fmt.Sprintf("there is no %s: nothing to do%s", h.DropIn(u.Name), words), err
}

// purge removes what the agent remembers, if that is what it is.
func (h *Host) purge(r Request, memory string) (string, error) {
	if !r.Purge || memory == "" {
		return "", nil
	}
	if _, err := os.Lstat(checkpoint.AgentLock(memory)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Sprintf("; %s is no agent's directory, or not there: it was left alone", memory), nil
	} else if err != nil {
		return "", err
	}
	if err := os.RemoveAll(memory); err != nil {
		return "", fmt.Errorf("the agent is gone, but not what it remembers: %w", err)
	}
	return "; " + memory + " is gone", nil
}
