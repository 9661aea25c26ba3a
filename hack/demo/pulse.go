// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"
	"time"
)

// probePeriod is how often the health of the kubelet is observed. It is the
// precision of the times that the demo prints.
const probePeriod = 50 * time.Millisecond

// pulse records when the node's kubelet was not healthy. Its methods are safe
// for concurrent use.
type pulse struct {
	mu       sync.Mutex
	good     time.Time // of the newest successful probe, or the begin of the record if none followed
	from, to time.Time // from the last successful probe before the first failure to the first one after the last failure
	failing  bool
}

// watch observes the kubelet until ctx ends.
func (p *pulse) watch(ctx context.Context, probe func(context.Context) error) {
	tick := time.NewTicker(probePeriod)
	defer tick.Stop()
	for {
		err := probe(ctx)
		if ctx.Err() != nil {
			return
		}

		p.observe(time.Now(), err == nil)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// begin begins a new record.
func (p *pulse) begin(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.good, p.from, p.to, p.failing = now, time.Time{}, time.Time{}, false
}

func (p *pulse) observe(now time.Time, healthy bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !healthy:
		if p.failing = true; p.from.IsZero() {
			p.from = p.good
		}
	case p.failing:
		p.failing, p.good, p.to = false, now, now
	default:
		p.good = now
	}
}

// unhealthy returns the time between the first failure in the record and the
// return of health, zero without a failure, and whether the kubelet is healthy
// now.
func (p *pulse) unhealthy(now time.Time) (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.failing:
		return now.Sub(p.from), false
	case p.from.IsZero():
		return 0, true
	}

	return p.to.Sub(p.from), true
}
