// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/figures"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// waitingFor is how long the CPU time of a waiting agent is measured, whose
// resolution is a hundredth of a second.
const waitingFor = time.Minute

// pair has the two agents of a node: the one of its init system, and a
// self-hosted one without its pod.
type pair struct {
	bed        *bed.Bed
	boot, self *bed.Agent
}

// handovers measures the time without a kubelet during a handover, and the cost
// of a waiting agent.
func handovers(ctx context.Context, b *bed.Bed, runs int) (err error) {
	defer must.Catch(&err)

	h := pair{}
	h.bed = must.Get(bed.On(ctx, b.Cluster, "bench-handover")) // without an assignment, so that no change happens during a handover
	h.boot = h.agent("bootstrap", "--bootstrap")
	h.self = h.agent("self-hosted")
	defer func() { err = errors.Join(err, h.self.Stop(time.Minute), h.boot.Stop(time.Minute)) }()
	var floors, there, back []time.Duration
	failures := 0
	for i := range runs + 1 { // the first one includes the agent's test of its dry runs
		// The floor is measured in each round, because the load of the machine
		// changes.
		floor := byHand(ctx, h.bed, 1)
		toSelf, toBoot, failed := h.round(ctx, i == 0)
		failures += failed
		if i > 0 {
			floors, there, back = append(floors, floor.downs...), append(there, toSelf), append(back, toBoot)
		}
	}

	showGap("hand-over to the self-hosted", there, floors)
	showGap("hand-over back to bootstrap", back, floors)
	want := 2 * (runs + 1)
	figures.PrintRow("hand-overs: times that the kubelet was away", fmt.Sprint(failures), "-", fmt.Sprintf("%d, once in each", want), failures == want)

	return nil
}

// round hands the node over and back, and returns both gaps and the number of
// outages of the kubelet. It can measure the agents' size in between.
func (h *pair) round(ctx context.Context, size bool) (toSelf, toBoot time.Duration, failed int) {
	start(ctx, h.bed, h.boot)
	p := feelPulse(ctx, h.bed.Node.HealthzPort())
	defer p.end()
	must.OK(bed.Pause(ctx, time.Second))
	must.About("to the self-hosted", func() { toSelf = gap(ctx, p, h.self.Start) })
	h.bootWaits(ctx)
	if size {
		must.OK(bed.Pause(ctx, 5*time.Second)) // because both have just started
		atRest(ctx, waitingFor, agent{"waiting for the lock", h.boot.Pid()}, agent{"beside it, the one that has it", h.self.Pid()})
	}

	must.About("back to bootstrap", func() { toBoot = gap(ctx, p, func() error { return h.self.Stop(time.Minute) }) })
	failed = len(p.Outages())
	must.OK(h.boot.Stop(time.Minute))

	return toSelf, toBoot, failed
}

func showGap(what string, gaps, floors []time.Duration) {
	gap, floor := figures.Median(gaps), figures.Median(floors)
	ratio := gap.Seconds() / floor.Seconds()
	figures.PrintRow(what+": time without a kubelet", ms(gap), ms(floor), fmt.Sprintf("1.25 x (is %.2f x)", ratio), ratio <= 1.25)
	gap, floor = slices.Max(gaps), slices.Max(floors)
	figures.PrintRow("the longest of these", ms(gap), ms(floor), fmt.Sprintf("- (is %.2f x)", gap.Seconds()/floor.Seconds()), true)
}

// agent returns one of the two agents, with its own log and runtime directory.
func (h *pair) agent(name string, flags ...string) *bed.Agent {
	dir := filepath.Join(h.bed.Node.Dir(), "run-"+name)
	must.OK(os.MkdirAll(dir, 0o700))
	lock := filepath.Join(h.bed.Node.Dir(), "lock")
	must.OK(os.MkdirAll(lock, 0o700))
	a := must.Get(h.bed.Agent(append(flags,
		"--lock-file="+filepath.Join(lock, "kubelet.lock"), "--probe-socket="+filepath.Join(dir, "probe.sock"))...))
	a.Env, a.Log = append(a.Env, "RUNTIME_DIRECTORY="+dir), filepath.Join(h.bed.Node.Dir(), name+".log")

	return a
}

// gap measures how long the kubelet is away after an action on an agent. It
// returns when the other agent runs stably.
func gap(ctx context.Context, p *pulse, do func() error) time.Duration {
	begin := time.Now()
	must.OK(do())
	_, down := p.next(ctx, begin)
	must.OK(bed.Pause(ctx, time.Second))

	return down
}

// bootWaits restarts the bootstrap agent after its end, as its init system
// does, and returns when it waits for the lock.
func (h *pair) bootWaits(ctx context.Context) {
	select {
	case <-h.boot.Done():
	case <-ctx.Done():
		must.OK(ctx.Err())
	}

	code := h.boot.ExitCode()
	must.That(code == 0, "the bootstrap agent left with exit code %d, see %s", code, h.boot.Log)
	must.OK(h.boot.Start())
	bed.Await(ctx, time.Minute, func(context.Context) {
		must.That(lockfile.Waiting(h.boot.Pid()), "the bootstrap agent does not wait for the lock")
	})
	must.OK(bed.Pause(ctx, time.Second))
}
