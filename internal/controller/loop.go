// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	cleanUpInterval = time.Minute
	longestRetry    = 10 * time.Second // between two steps of a rollout that fails
	lastingFailures = 3                // failed steps in a row after which the controller is not ready
)

// loop runs the steps of rollouts that are due until ctx ends.
func (c *Controller) loop(ctx context.Context) {
	cleanUp := time.NewTicker(cleanUpInterval)
	defer cleanUp.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.fleet.changed:
		case <-timer.C:
		case <-cleanUp.C:
			c.cleanUp(ctx, c.fleet.now())
		}

		if c.reportDeleted() {
			c.cleanUp(ctx, c.fleet.now())
		}

		if !c.watches.complete() || c.silent() {
			c.releaseStartup(ctx, false)
			continue // all rollouts become due when the watches are complete and the API server answers
		}

		due, sources := c.fleet.takeDue()
		c.sources.watch(ctx, sources)
		for _, r := range due {
			if ctx.Err() != nil {
				return
			}

			began := time.Now()
			c.process(ctx, r)
			c.metrics.pass.Observe(time.Since(began).Seconds())
		}

		c.stepPreflights(ctx)
		startup := c.releaseStartup(ctx, true)
		if next := earliest(c.fleet.nextDue(), startup); !next.IsZero() {
			timer.Reset(next.Sub(c.fleet.now()))
		}
	}
}

// process runs one step of a rollout and schedules the next one. After a
// failure, it waits longer each time.
func (c *Controller) process(ctx context.Context, r *rolloutEntry) {
	next, err := c.step(ctx, r)
	if ctx.Err() != nil {
		return
	}

	notBefore := r.notBefore
	unread, unwritten := errors.Is(err, errUnread), r.failures >= lastingFailures
	switch {
	case err == nil:
		r.failures, r.reportedError, notBefore = 0, "", time.Time{}
	case unread:
		next = c.fleet.now().Add(longestRetry)
	default:
		if r.failures++; r.failures == 1 {
			r.failedAt = c.fleet.now()
		}

		next = c.fleet.now().Add(min(longestRetry, 250*time.Millisecond<<min(r.failures, 10)))
		notBefore = next
	}

	exists := c.fleet.reschedule(r, next, notBefore)
	switch {
	case !exists || unread: // a watch makes the rollout due when the ConfigMap was read
	case err == nil:
		if unwritten {
			c.fleet.endUnwritten(r.name)
		}
		if err = r.uncreated; err != nil {
			err = fmt.Errorf("rollout %s: %w", r.name, err)
		}

		c.writeErrors.set(r.name, err)
	default:
		c.log.Warn("rollout step failed; retrying", "rollout", r.name, "err", err, "failures", r.failures)
		if r.failures >= lastingFailures {
			c.writeErrors.set(r.name, fmt.Errorf("rollout %s: %w", r.name, err))
		}
	}
}
