// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/testkit/auditlog"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// rush is a change of many nodes at once, until all are done or the time is over.
type rush struct {
	took    time.Duration
	done    int
	refused int // requests of agents that the API server refused
}

// crowded compares a rollout to thousands of nodes at once with the same change by hand. Each has a new cluster: nodes that are
// late with one change would disturb the next.
func (b *bench) crowded(ctx context.Context, nodes int) error {
	var by [2]rush
	for i, change := range []struct {
		what string
		make func(context.Context, *fleet) (rush, error)
	}{{"by hand", b.rushByHand}, {"by a rollout", b.rushByRollout}} {
		var err error
		if err = b.withFleet(ctx, nodes, func(ctx context.Context, f *fleet) error {
			by[i], err = f.rush(ctx, change.make)
			return err
		}); err != nil {
			return fmt.Errorf("%s: %w", change.what, err)
		}
		b.keep("all at once, "+change.what, "%d of %d nodes done after %s, %d writes refused", by[i].done, nodes, seconds(by[i].took), by[i].refused)
	}
	hand, rolled := by[0], by[1]
	f := figure{What: "all at once: time of a rollout, over patching by hand", Value: rolled.took.Seconds() / hand.took.Seconds()}
	if hand.done < nodes || rolled.done < nodes {
		// One of them is not finished: compare how many nodes are done.
		f.Value = float64(hand.done) / float64(max(1, rolled.done))
		f.What = "all at once: nodes done by hand, over those of a rollout"
	}
	f.Text, f.Limit, f.Over = fmt.Sprintf("%.2f x", f.Value), fmt.Sprintf("%.1f x", maxCrowd), f.Value > maxCrowd
	b.limited(f, "-")
	return nil
}

// rush makes a change of nodes that have proven another configuration.
func (f *fleet) rush(ctx context.Context, change func(context.Context, *fleet) (rush, error)) (r rush, err error) {
	defer must.Catch(&err)

	must.Get(f.roll(ctx, usual, 0))
	begin := time.Now()
	r = must.Get(change(ctx, f))
	must.OK(f.audit.Read())
	for _, n := range f.audit.Count(begin, time.Now(), func(r *auditlog.Request) bool {
		return r.Program == "evenkeel-agent" && r.Write() && !r.Succeeded()
	}) {
		r.refused += n
	}
	return r, nil
}

func (b *bench) rushByHand(ctx context.Context, f *fleet) (_ rush, err error) {
	defer must.Catch(&err)

	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, b.within)
	defer cancel()
	ref := must.Get(f.handMade(ctx))
	nodes := f.known()
	err = f.assignAll(ctx, ref, nodes, slices.Collect(maps.Keys(nodes)))
	if err != nil && ctx.Err() == nil {
		return rush{}, err
	}
	return f.watchRush(ctx, begin, ref.Name)
}

func (b *bench) rushByRollout(ctx context.Context, f *fleet) (r rush, err error) {
	defer must.Catch(&err)

	c, _ := must.Get2(f.controller(ctx))
	defer func() { err = errors.Join(err, c.stop()) }()
	o := f.newRollout(unlimited, "")
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, b.within)
	defer cancel()
	must.OK(f.admin.Create(ctx, o))
	r = must.Get(f.watchRush(ctx, begin, o.Name))
	// What the rollout says, for the log: nodes that failed would make the comparison worthless.
	must.OK(f.admin.Get(context.WithoutCancel(ctx), client.ObjectKeyFromObject(o), o))
	note("the rollout", "%s: %s", o.Status.Phase, o.Status.Message)
	if o.Status.Nodes.Failed > 0 {
		return r, fmt.Errorf("%d failed, although the configuration is good", o.Status.Nodes.Failed)
	}
	return r, nil
}

// watchRush waits until all nodes have the configuration of a rollout, or ctx is over, and prints the number every minute.
func (f *fleet) watchRush(ctx context.Context, begin time.Time, rollout string) (rush, error) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	printed := begin
	for {
		r := rush{took: time.Since(begin), done: f.count(func(s seen) bool { return s.has(rollout) })}
		if r.done == f.nodes || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return r, nil
		}
		if time.Since(printed) > time.Minute {
			printed = time.Now()
			note("", "%d nodes are done after %s", r.done, seconds(r.took))
		}
		select {
		case <-ctx.Done():
			if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
				return r, err
			}
		case <-tick.C:
		}
	}
}
