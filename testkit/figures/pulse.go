// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Pulse records when a process did not answer. Its methods are safe for
// concurrent use.
type Pulse struct {
	mu       sync.Mutex
	answered time.Time // the last time, or the begin of the record
	outages  []Outage
}

// Outage is a time without answers, from the last answer before it to the first
// one after it. To is zero while it lasts. Seen is when the first one was
// missing, and Why the error then.
type Outage struct {
	From, Seen, To time.Time
	Why            error
}

// Watch probes the process until ctx ends.
func (p *Pulse) Watch(ctx context.Context, every time.Duration, probe func(context.Context) error) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := probe(ctx)
		if ctx.Err() != nil {
			return
		}

		p.observe(time.Now(), err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Begin begins a new record.
func (p *Pulse) Begin(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answered, p.outages = now, nil
}

func (p *Pulse) observe(now time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.outages) - 1
	out := last >= 0 && p.outages[last].To.IsZero()
	switch {
	case err == nil && out:
		p.outages[last].To = now
	case err != nil && !out:
		p.outages = append(p.outages, Outage{From: p.answered, Seen: now, Why: err})
	}

	if err == nil {
		p.answered = now
	}
}

// Outages returns all outages of the record, in order.
func (p *Pulse) Outages() []Outage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.outages)
}

// Without returns the time from the last answer before the first outage of the
// record to the first one after the last, zero without an outage, and whether
// the process answers now.
func (p *Pulse) Without(now time.Time) (time.Duration, bool) {
	all := p.Outages()
	if len(all) == 0 {
		return 0, true
	}

	end := all[len(all)-1].To
	if end.IsZero() {
		return now.Sub(all[0].From), false
	}

	return end.Sub(all[0].From), true
}
