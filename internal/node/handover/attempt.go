// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/lockfile"
)

// Attempt is a self-hosted agent with its kubelet, in one boot: it runs the
// node, or gives it up. It gathers the facts for DecideStart and DecideTenure,
// and carries out what they decide.
type Attempt struct {
	Limit time.Duration // how long no kubelet may be healthy (--give-up-after); 0: for ever
	Lock  string        // path of the node's lock
	Dir   string        // --dynamic-config-dir; empty: nothing is recorded
	ID    string        // an attempt with another ID is another attempt
	Log   *slog.Logger

	last Decision // of DecideTenure
}

// AttemptID returns the ID of an attempt with these parts.
func AttemptID(parts ...string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(parts, "\x00"))))
}

// CheckStart returns a GaveUp error if this attempt gave the node up not long
// ago.
func (a *Attempt) CheckStart(now time.Time) error {
	if a.Dir == "" {
		return nil
	}

	last, err := checkpoint.LastGivenUp(atomicfile.OS{}, a.Dir)
	if err != nil {
		a.Log.Warn("cannot read whether this kubelet has failed before", "err", err)
	}

	d := DecideStart(StartFacts{Now: now, Attempt: a.ID, Last: last})
	if d.Action == Run {
		return nil
	}

	return fail(GaveUp, fmt.Errorf("%s; correct the flags, the image or the local configuration; delete the pod to retry now", d.Reason))
}

// CheckTenure returns a GaveUp error once this agent is to leave the node to
// another one. It is for agent.Options.GiveUp.
func (a *Attempt) CheckTenure(now time.Time, healthy bool) error {
	d := DecideTenure(a.last.Next, TenureFacts{
		Now: now, Limit: a.Limit, Healthy: healthy, Waited: !healthy && a.Limit > 0 && lockfile.HasWaiters(a.Lock),
	})
	if d.Reason != a.last.Reason {
		a.Log.Debug("decided whether to give the node up", "action", d.Action.String(), "why", d.Reason)
	}

	a.last = d
	if d.Action == Run {
		return nil
	}

	return fail(GaveUp, fmt.Errorf("%s: the agent that waits for the lock takes over the node", d.Reason))
}

// Ended records whether the attempt gave the node up, and returns the error for
// the process to end with. Only the agent that has the node's lock may call
// Ended.
func (a *Attempt) Ended(err error, now time.Time) error {
	var failed *Error
	gaveUp := errors.As(err, &failed) && failed.Failure == GaveUp
	if a.Dir != "" {
		if err := a.remember(gaveUp, now); err != nil {
			a.Log.Error("cannot record whether this kubelet released the node; it may request the node again too soon", "err", err)
		}
	}

	if !gaveUp {
		return err
	}

	return fmt.Errorf("%w; see the kubelet's log above", err)
}

func (a *Attempt) remember(gaveUp bool, now time.Time) error {
	last, err := checkpoint.LastGivenUp(atomicfile.OS{}, a.Dir)
	next := nextGivenUp(last, a.ID, gaveUp, now)
	switch {
	case next != checkpoint.GivenUp{}:
		return checkpoint.SetGivenUp(atomicfile.OS{}, a.Dir, next)
	case err == nil && last == checkpoint.GivenUp{}:
		return nil
	}

	return checkpoint.ClearGivenUp(atomicfile.OS{}, a.Dir)
}
