// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
)

// Uninstall removes the drop-in, so that the kubelet runs as before the
// install. It returns a message for the user. An error that is not ErrTakenBack
// means that nothing was changed.
func (h *Host) Uninstall(ctx context.Context, r Request) (string, error) {
	return h.locked(ctx, r, h.uninstall)
}

func (h *Host) uninstall(ctx context.Context, r Request) (string, error) {
	u, before, err := h.begin(ctx, r, uninstalling, h.Manager.Unit)
	if err != nil {
		return "", err
	}

	c := h.newChange(uninstalling, u, r)
	there, err := c.readFiles(h.FS)
	if err != nil {
		return "", err
	}
	if err := errors.Join(checkRemovable(c.DropIn, there.lasting, r.Force), checkRemovable(c.Trial, there.trial, r.Force)); err != nil {
		return "", err
	}

	c.From = there.lasting
	ours := c.DropIn
	if c.From == nil && there.trial != nil {
		ours = c.Trial
	}

	agentDir := h.DefaultAgentDir
	read := slices.Contains(u.DropIns, c.DropIn) || slices.Contains(u.DropIns, c.Trial)
	interrupted := before.open() && !r.DryRun // an interrupted install is undone here
	switch {
	case c.From == nil && there.trial == nil && !read && !(interrupted && h.mayHaveRestarted(ctx, before)):
		if interrupted {
			if err := h.discard(ctx, before); err != nil {
				return "", err
			}
		}

		words, err := h.purge(r, agentDir)

		return fmt.Sprintf("%s does not exist: nothing to do%s", c.DropIn, words), err
	case c.From == nil:
		if interrupted {
			c.Target = before.Target
		}
	default:
		with, checked, err := h.withoutAgent(ctx, u, *c.From)
		if err != nil && !r.Force {
			return "", fmt.Errorf("without evenkeel the kubelet of %s would not work, nothing was changed (--force uninstalls anyway): %w", u.Name,
				err)
		}

		if err == nil {
			c.Target, agentDir = checked.Target, checked.Limits.StateDir
		}

		if err == nil && !r.Force && u.Running() {
			if err := r.checkPods(ctx, checked); err != nil {
				return "", err
			}
		}

		c.Healthy = err == nil && !r.Force && u.Running() && (h.healthz(ctx, c.Target) == nil || h.healthz(ctx, with) == nil)
	}

	if r.DryRun {
		return fmt.Sprintf("%s would be removed, then systemctl daemon-reload, systemctl restart %s. Nothing was changed.", ours, u.Name), nil
	}
	if u.LoadState != "loaded" || u.ActiveState == "inactive" {
		return h.removeStopped(ctx, u, r, &c, ours, agentDir)
	}
	if err := h.apply(ctx, &c, r.Timing); err != nil {
		return "", err
	}

	words, err := h.purge(r, agentDir)
	if c.Reason != "" {
		return fmt.Sprintf("%s was removed, and %s is as unhealthy as before: %s%s", ours, u.Name, c.Reason, words), err
	}

	return fmt.Sprintf("the kubelet of %s runs without evenkeel-agent%s%s", u.Name, c.Target.description(), words), err
}

// checkRemovable returns why a drop-in must stay.
func checkRemovable(path string, content *string, force bool) error {
	switch {
	case content == nil:
	case originOf(*content) == foreign:
		return fmt.Errorf("%s was not written by evenkeel and stays; remove it yourself if you do not need it", path)
	case originOf(*content) == edited && !force:
		return fmt.Errorf("%s was edited after evenkeel wrote it: save what you need, then uninstall with --force", path)
	}

	return nil
}

// withoutAgent checks the kubelet as it would start without the agent. It also
// returns the present target, with the agent.
func (h *Host) withoutAgent(ctx context.Context, u Unit, content string) (with Target, checked Checked, err error) {
	flags, err := flagsOf(content)
	if err != nil {
		return with, checked, err
	}

	files, err := h.filesOf(u)
	if err != nil {
		return with, checked, err
	}

	start, err := execStartOf(files)
	if err != nil {
		return with, checked, err
	}

	words, err := u.kubelet(true)
	if err != nil {
		return with, checked, err
	}

	kubelet, err := u.expand(words, start.prefix)
	if err != nil {
		return with, checked, err
	}
	if checked, err = h.Check(ctx, flags, kubelet, true); err != nil {
		return with, checked, err
	}

	with = checked.Target
	if as, err := h.Check(ctx, flags, kubelet, false); err == nil { // otherwise the agent refuses the kubelet, and is removed anyway
		with = as.Target
	}

	return with, checked, nil
}

// removeStopped removes the drop-ins of a unit that does not run, without
// starting it.
func (h *Host) removeStopped(ctx context.Context, u Unit, r Request, c *change, ours, agentDir string) (string, error) {
	if err := c.writeFiles(h.FS, c.desired()); err != nil {
		return "", err
	}
	if err := h.Manager.Reload(ctx); err != nil {
		return "", err
	}

	h.stopGuard(ctx, c)
	if err := h.drop(u.Name); err != nil {
		return "", err
	}

	words, err := h.purge(r, agentDir)

	return fmt.Sprintf("%s was removed; %s does not run (%s), and was not started%s", ours, u.Name, u.state(), words), err
}

// purge removes the agent's state directory, if it is one.
func (h *Host) purge(r Request, agentDir string) (string, error) {
	if !r.Purge || r.DryRun || agentDir == "" {
		return "", nil
	}

	if _, err := os.Lstat(checkpoint.AgentLock(agentDir)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Sprintf("; %s is not an agent's directory, or does not exist: not removed", agentDir), nil
	} else if err != nil {
		return "", err
	}

	if err := os.RemoveAll(agentDir); err != nil {
		return "", fmt.Errorf("the agent was removed, but not its state: %w", err)
	}

	return "; " + agentDir + " was removed", nil
}
