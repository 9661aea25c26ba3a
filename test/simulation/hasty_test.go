// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// TestOutagesStopNoRolloutOfHealthyNodes takes the API server away in the
// middle of rollouts whose nodes have hardly more time than their trial, for
// all clients and in every way.
func TestOutagesStopNoRolloutOfHealthyNodes(t *testing.T) {
	for kind := outageNone; kind <= outageSilent; kind++ {
		for i, length := range []time.Duration{3 * time.Second, 8 * time.Second, 14 * time.Second, 40 * time.Second} {
			if i == 0 && kind == outageErrors || i <= 1 && kind == outageBusy {
				continue // no outage: the watches go on, and a request for the Lease can succeed
			}

			t.Run(fmt.Sprintf("%d for %s", kind, length), func(t *testing.T) {
				p := hasty(uint64(100*int(kind)+i), kind, length)
				if o := play(t, p, false); len(o.failures) > 0 {
					t.Errorf("%s: %s\n%s", p, o.failures[0], o.trace)
				}
			})
			if kind == outageNone {
				break
			}
		}
	}
}

// hasty returns a history with outages of one kind.
func hasty(seed uint64, kind outageKind, length time.Duration) *plan {
	p := &plan{seed: seed, nodes: 4, first: 4, active: 20 * time.Minute, trial: 10 * time.Second, quiet: time.Minute, lease: 15 * time.Second, replicas: 2, own: -1, slow: 20 * time.Millisecond}
	do := func(at time.Duration, name string, do func(x *act)) {
		p.actions = append(p.actions, action{at: at, index: len(p.actions), name: name, seed: seed, do: do})
	}
	do(time.Minute, "create", func(x *act) {
		x.direct(x.server.Create("nodeconfigrollouts", "", map[string]any{"metadata": map[string]any{"name": "all"}, "spec": map[string]any{
			"nodeSelector": map[string]any{"matchLabels": map[string]any{"pool": "all"}}, "template": template(10, nil),
			"strategy": map[string]any{"maxUnavailable": 2, "steps": []any{map[string]any{"nodes": "100%"}}}, "nodeTimeoutSeconds": 60,
		}}))
	})
	r := dice(seed, "outages")
	for n := range int64(16) { // while nodes are assigned a revision, or on trial
		at := time.Duration(n+1) * time.Minute
		if n > 0 {
			do(at, "push", func(x *act) { x.patch("all", map[string]any{"template": template(10+10*n, nil)}) })
		}

		do(at+between(r, 0, 10*time.Second), "outage", func(x *act) {
			x.trouble.Store(int32(kind))
			x.later(length, func() { x.trouble.Store(int32(outageNone)) })
		})
	}

	const end = 19 * time.Minute
	for at := 2 * time.Minute; at <= end; at += 20 * time.Second {
		do(at, "look", func(x *act) {
			st := x.rollout().Status
			x.book.must(st.Halt == nil && (at != end || st.Phase == v1alpha1.RolloutComplete), "the rollout is %s: %s", st.Phase, st.Message)
		})
	}

	return p
}
