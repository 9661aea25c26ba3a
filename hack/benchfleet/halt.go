package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// crashing makes the kubelets of hollow nodes crash with a configuration that has bad.
const (
	crashing = "--fault=crashloop,field=podPidsLimit:4000"
	bad      = `"podPidsLimit":4000`
)

// halting rolls out bad configurations without a budget, and measures how long after the first failure a rollout still assigns
// nodes.
func (b *bench) halting(ctx context.Context, f *fleet) (err error) {
	if _, err := f.roll(ctx, usual, 0); err != nil {
		return err
	}
	c, _, err := f.controller(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	var last []time.Duration
	after, assigned := 0, 0
	for range b.halts {
		h, err := f.halt(ctx, c)
		if err != nil {
			return err
		}
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
	o := f.newRollout(unlimited, bad)
	begin := time.Now()
	if err := f.admin.Create(ctx, o); err != nil {
		return h, err
	}
	err = eventually(ctx, 10*time.Minute+time.Duration(f.nodes)*nodeTimeout, 250*time.Millisecond, func() error {
		if err := f.admin.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if o.Status.Phase != v1alpha1.RolloutHalted {
			return fmt.Errorf("the rollout is %s: %s", o.Status.Phase, o.Status.Message)
		}
		return nil
	}, c.done)
	if err != nil {
		return h, err
	}
	if err := f.all(ctx, f.nodes, func(s seen) bool { return s.settled }); err != nil {
		return h, err
	}
	if err := f.quiet(ctx); err != nil {
		return h, err
	}
	failed := false
	if h.took, h.after, h.assigned, failed = lastAfterFailure(f.audit.Requests, o.Name, begin); !failed {
		return h, errors.New("no node has failed, although the rollout was halted")
	}
	note("", "%s: assigned for %s after the first failure, %d of %d nodes", o.Name, seconds(h.took), h.after, h.assigned)
	return h, f.admin.Delete(ctx, o)
}
