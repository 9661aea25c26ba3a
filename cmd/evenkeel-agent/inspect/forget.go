// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// Forget makes the agent of a directory forget that a revision is bad, and prints how: it asks a running agent, and otherwise
// changes the records. It returns an error if there is no record of the revision.
func Forget(out io.Writer, dir, revision string) error {
	view, err := checkpoint.ReadOnly(atomicfile.OS{}, dir, "")
	if err != nil {
		return err
	}
	found := view.State.Trial != nil && view.State.Trial.Revision == revision
	for _, b := range view.State.Bad {
		found = found || b.Revision == revision
	}
	if !found {
		return fmt.Errorf("no record of revision %s being bad in %s (kubelet %s); see evenkeel-agent status --dynamic-config-dir=%s", revision,
			dir, view.Version, dir)
	}
	lock, err := lockfile.TryAcquire(checkpoint.AgentLock(dir))
	if errors.Is(err, lockfile.ErrHeld) {
		if err := checkpoint.RequestForget(atomicfile.OS{}, dir, revision); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "the running agent was asked to forget that %s is bad\n", revision)
		return err
	}
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release() }() // the kernel releases it when this process exits
	store, err := checkpoint.Open(atomicfile.OS{}, dir, view.Version, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	state, _ := store.Load()
	if err := store.Save(trial.Forget(state, revision)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "forgot that %s is bad; no agent runs, the next one will try it again if it is assigned\n", revision)
	return err
}
