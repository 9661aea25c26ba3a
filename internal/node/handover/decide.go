// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
)

// Action is what an agent does about the node's lock.
type Action int

// The actions.
const (
	Run       Action = iota // ask for the node's lock, or go on running the node
	StandBack               // do not ask for the lock: this attempt gave the node up not long ago
	GiveUp                  // stop the kubelet, and release the lock to the agent that waits for it
)

func (a Action) String() string { return [...]string{"Run", "StandBack", "GiveUp"}[a] }

// Decision is an Action with its reason.
type Decision struct {
	Action Action
	Reason string
	Next   Tenure // to be passed to the next DecideTenure; kept in memory only
}

const (
	// firstPause is how long an attempt leaves the node alone after it gave the
	// node up for the first time. The pause doubles with each further time in a
	// row, because a kubelet that was never healthy rarely recovers by itself.
	firstPause   = time.Hour
	longestPause = 24 * time.Hour
	// steady is how long a kubelet must be healthy to count as healthy: a
	// kubelet that crashes repeatedly is healthy in between.
	steady = 30 * time.Second
)

// StartFacts are what an agent knows before it asks for the node's lock.
type StartFacts struct {
	Now     time.Time // by the wall clock, as Last.At
	Attempt string    // identifies this agent with its kubelet, in this boot
	Last    checkpoint.GivenUp
}

// DecideStart decides whether an agent asks for the node's lock: Run or
// StandBack. An attempt that gave the node up is not repeated at once, because
// the bootstrap kubelet, healthy again, restarts its container. A clock that
// was set back does not prolong the pause.
func DecideStart(f StartFacts) Decision {
	again := f.Last.At.Add(pauseAfter(f.Last.Times))
	switch {
	case f.Last == checkpoint.GivenUp{}:
		return Decision{Action: Run, Reason: "no attempt gave the node up"}
	case f.Last.By != f.Attempt:
		return Decision{Action: Run, Reason: "another attempt gave the node up"}
	case f.Now.Before(f.Last.At):
		return Decision{Action: Run, Reason: "the clock was set back since this attempt gave the node up"}
	case !f.Now.Before(again):
		return Decision{Action: Run, Reason: "the pause since this attempt gave the node up is over"}
	}

	return Decision{Action: StandBack, Reason: fmt.Sprintf("this kubelet was never healthy and released the node at %s; next attempt at %s",
		f.Last.At.Format(time.RFC3339), again.Format(time.RFC3339))}
}

// pauseAfter returns how long an attempt leaves the node alone that gave it up
// this many times in a row.
func pauseAfter(times int) time.Duration {
	return min(firstPause<<min(max(times-1, 0), 10), longestPause)
}

// TenureFacts are what an agent that has the node's lock knows. They leave out
// whether the container runtime answers: the cause may be this kubelet's
// configuration, which names the wrong endpoint.
type TenureFacts struct {
	Now     time.Time     // by the monotonic clock
	Limit   time.Duration // how long no kubelet may be healthy (--give-up-after); 0: for ever
	Healthy bool          // the kubelet is healthy
	Waited  bool          // another agent waits for the node's lock; false if Healthy, or without a Limit
}

// Tenure is the history of one agent's hold of the lock. The zero value is its
// beginning.
type Tenure struct {
	HealthySince time.Time // zero: the kubelet is not healthy
	CountedSince time.Time // the time without a healthy kubelet counts from here; never later than HealthySince + steady
}

// DecideTenure decides whether an agent goes on running the node: Run or
// GiveUp. A kubelet can pass every dry run and never become healthy, and the
// cluster cannot repair a node without a kubelet. If no other agent waits, this
// agent goes on: the node has no alternative.
func DecideTenure(t Tenure, f TenureFacts) Decision {
	switch {
	case !f.Healthy:
		t.HealthySince = time.Time{}
	case t.HealthySince.IsZero():
		t.HealthySince = f.Now
	}

	isSteady := f.Healthy && f.Now.Sub(t.HealthySince) >= steady
	if t.CountedSince.IsZero() || isSteady {
		t.CountedSince = f.Now
	}

	switch {
	case isSteady:
		return Decision{Run, "the kubelet is healthy", t}
	case f.Healthy:
		return Decision{Run, fmt.Sprintf("the kubelet is healthy, for less than %s", steady), t}
	case f.Limit <= 0:
		return Decision{Run, "the kubelet is not healthy; the node is never given up (limit 0)", t}
	case f.Now.Sub(t.CountedSince) < f.Limit:
		return Decision{Run, fmt.Sprintf("the kubelet is not healthy, for less than the limit of %s", f.Limit), t}
	case !f.Waited:
		t.CountedSince = f.Now
		return Decision{Run, fmt.Sprintf("no kubelet was healthy for %s, but no other agent waits for the lock: the limit starts again", f.Limit),
			t}
	}

	return Decision{GiveUp, fmt.Sprintf("no kubelet was healthy for %s", f.Limit), t}
}

// nextGivenUp returns the record of an attempt that has ended: the zero value
// removes earlier records.
func nextGivenUp(last checkpoint.GivenUp, attempt string, gaveUp bool, now time.Time) checkpoint.GivenUp {
	switch {
	case !gaveUp:
		return checkpoint.GivenUp{}
	case last.By != attempt:
		last = checkpoint.GivenUp{By: attempt}
	}

	last.At, last.Times = now.UTC(), last.Times+1

	return last
}
