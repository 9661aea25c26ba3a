// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/controller/gate"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// measurements evaluates the gates of rollouts in the background, and keeps the
// last result of each. It may be used concurrently. Its zero value has no
// servers and no results.
type measurements struct {
	servers *gate.Servers
	metrics *meters

	mu      sync.Mutex
	running sync.WaitGroup
	of      map[types.UID]map[string]*evaluation // by rollout and gate
}

// evaluation is the last evaluation of a gate.
type evaluation struct {
	result  rollout.Measurement // valid when the evaluation is done
	pending bool
}

// results returns the results for a rollout, and forgets those of gates that it
// no longer has.
func (m *measurements) results(uid types.UID, gates []v1alpha1.RolloutGate) []rollout.Measurement {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []rollout.Measurement
	maps.DeleteFunc(m.of[uid], func(name string, e *evaluation) bool {
		return !e.pending && !slices.ContainsFunc(gates, func(g v1alpha1.RolloutGate) bool { return g.Name == name })
	})
	for _, g := range gates {
		if e := m.of[uid][g.Name]; e != nil && !e.pending {
			out = append(out, e.result)
		}
	}

	return out
}

// forget removes what is known for a deleted rollout.
func (m *measurements) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, uid)
}

// start evaluates a gate unless it is being evaluated, and calls done with the
// result in place. now is the rollout's clock.
func (m *measurements) start(ctx context.Context, uid types.UID, g *v1alpha1.RolloutGate, now func() time.Time, done func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil {
		m.of = map[types.UID]map[string]*evaluation{}
	}
	if m.of[uid] == nil {
		m.of[uid] = map[string]*evaluation{}
	}
	if e := m.of[uid][g.Name]; e != nil && e.pending {
		return
	}

	e := &evaluation{pending: true}
	m.of[uid][g.Name] = e
	m.running.Go(func() {
		result := m.evaluate(ctx, g, now)
		m.mu.Lock()
		e.result, e.pending = result, false
		m.mu.Unlock()
		if ctx.Err() == nil {
			done()
		}
	})
}

// evaluate evaluates a gate. Its time is when the query was sent: what happened
// before has an effect on the result.
func (m *measurements) evaluate(ctx context.Context, g *v1alpha1.RolloutGate, now func() time.Time) rollout.Measurement {
	p := &g.Prometheus
	out := rollout.Measurement{Gate: g.Name, Server: p.Server, Query: p.Query}
	began := time.Now()
	result, err := m.servers.Query(ctx, p.Server, p.Query, func() { out.Time, began = now(), time.Now() })
	if out.Time.IsZero() {
		out.Time = now()
	}

	out.Time = out.Time.Truncate(time.Second)
	outcome := evaluatedOK
	switch {
	case err != nil:
		out.Error, outcome = err.Error(), evaluatedError
	case result.NoData:
		out.NoData, outcome = true, evaluatedNoData
	default:
		out.Value = result.Value
	}

	m.metrics.evaluated(p.Server, outcome, time.Since(began))

	return out
}

// measure starts the evaluation of gates that a plan asks for. The rollout is
// planned again with the results.
func (c *Controller) measure(ctx context.Context, r *rolloutEntry, in *planInput, result *rollout.Result) {
	offset := r.clockOffset
	now := func() time.Time { return c.fleet.now().Add(offset) }
	for _, name := range result.Measure {
		for _, g := range in.Spec.Strategy.Gates {
			if g.Name == name {
				c.measurements.start(ctx, in.object.UID, &g, now, func() { c.fleet.scheduleRollout(in.object.Name) })
			}
		}
	}
}
