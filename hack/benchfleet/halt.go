// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// crashing makes the kubelets of hollow nodes crash with a configuration that has bad.
const (
	crashing = "--fault=crashloop,field=podPidsLimit:4000"
	bad      = `"podPidsLimit":4000`
)

// halting rolls out bad configurations without a budget, and measures how long after the first failure a rollout still assigns
// nodes.
func (b *bench) halting(ctx context.Context, f *fleet) (err error) {
	defer must.Catch(&err)

	must.Get(f.roll(ctx, usual, 0))
	c, _ := must.Get2(f.controller(ctx))
	defer func() { err = errors.Join(err, c.stop()) }()
	var last []time.Duration
	after, assigned := 0, 0
	for range b.halts {
		h := must.Get(f.halt(ctx, c))
		last = append(last, h.took)
		after, assigned = after+h.after, assigned+h.assigned
	}
	rounds := float64(b.halts)
	b.keep("first failure to last assignment (50%, 95%, 99%, most)", "%s of %d rollouts", spread(last), b.halts)
	b.keep("nodes that a bad rollout without a budget reaches", "%.1f of %d, %.1f of them after the first failure", float64(assigned)/rounds, f.nodes, float64(after)/rounds)
	return nil
}

// halt is one bad rollout.
type halt struct {
	took            time.Duration // from the first failure to the last assignment
	after, assigned int           // nodes that were assigned after the failure, and in all
}

func (f *fleet) halt(ctx context.Context, c *child) (h halt, err error) {
	defer must.Catch(&err)

	o := f.newRollout(unlimited, bad)
	begin := time.Now()
	must.OK(f.admin.Create(ctx, o))
	must.OK(eventually(ctx, 10*time.Minute+time.Duration(f.nodes)*nodeTimeout, 250*time.Millisecond, func() error {
		if err := f.admin.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if o.Status.Phase != v1alpha1.RolloutHalted {
			return fmt.Errorf("the rollout is %s: %s", o.Status.Phase, o.Status.Message)
		}
		return nil
	}, c.Done))
	must.OK(f.all(ctx, f.nodes, func(s seen) bool { return s.settled }))
	must.OK(f.quiet(ctx))
	failed := false
	if h.took, h.after, h.assigned, failed = lastAfterFailure(f.audit.Requests, o.Name, begin); !failed {
		return h, errors.New("no node has failed, although the rollout was halted")
	}
	note("", "%s: assigned for %s after the first failure, %d of %d nodes", o.Name, seconds(h.took), h.after, h.assigned)
	return h, f.admin.Delete(ctx, o)
}
