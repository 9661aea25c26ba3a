package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/lockfile"
	"github.com/evenkeel/evenkeel/test/bed"
	"github.com/evenkeel/evenkeel/test/figures"
)

// waitingFor is how long processor time is taken of an agent that waits: a hundredth of a second is all that can be told.
const waitingFor = time.Minute

// pair is the two agents of a node: the one of its init system, and a self-hosted one without its pod.
type pair struct {
	bed        *bed.Bed
	boot, self *bed.Agent
	p          *pulse
}

// handovers measures the time without a kubelet when agents hand a node over, and what an agent costs that waits for it.
func handovers(ctx context.Context, b *bed.Bed, runs int) error {
	b, err := bed.On(ctx, b.Cluster, "bench-handover") // with nothing assigned: no other change may fall into a gap
	if err != nil {
		return err
	}
	// The floor is taken on both sides, half and half, so that it has the same share in what else the machine does.
	floor, err := byHand(ctx, b, (runs+1)/2)
	if err != nil {
		return fmt.Errorf("the floor: %w", err)
	}
	toSelf, toBoot, err := betweenAgents(ctx, b, runs)
	if err != nil {
		return err
	}
	after, err := byHand(ctx, b, (runs+1)/2)
	if err != nil {
		return fmt.Errorf("the floor: %w", err)
	}
	floor.downs = append(floor.downs, after.downs...)
	showGap("hand-over to the self-hosted", toSelf, floor.downs)
	showGap("hand-over back to bootstrap", toBoot, floor.downs)
	return nil
}

func showGap(what string, gaps, floors []time.Duration) {
	gap, floor := figures.Median(gaps), figures.Median(floors)
	ratio := gap.Seconds() / floor.Seconds()
	figures.Row(what+": time without a kubelet", ms(gap), ms(floor), fmt.Sprintf("1.25 x (is %.2f x)", ratio), ratio <= 1.25)
	gap, floor = slices.Max(gaps), slices.Max(floors)
	figures.Row("the longest of these", ms(gap), ms(floor), fmt.Sprintf("- (is %.2f x)", gap.Seconds()/floor.Seconds()), true)
}

// betweenAgents hands the node over and back, and returns the gaps.
func betweenAgents(ctx context.Context, b *bed.Bed, runs int) (toSelf, toBoot []time.Duration, err error) {
	h := pair{bed: b}
	if h.boot, err = h.agent("bootstrap", "--bootstrap"); err != nil {
		return nil, nil, err
	}
	if h.self, err = h.agent("self-hosted"); err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, h.self.Stop(time.Minute), h.boot.Stop(time.Minute)) }()
	if err := start(ctx, b, h.boot); err != nil {
		return nil, nil, err
	}
	h.p = feelPulse(ctx, b.Node.HealthzPort())
	defer h.p.end()
	for i := range runs + 1 { // the first ones prove the harness to the agents
		there, err := h.gap(ctx, h.self.Start)
		if err != nil {
			return nil, nil, fmt.Errorf("to the self-hosted: %w", err)
		}
		if err := h.bootWaits(ctx); err != nil {
			return nil, nil, err
		}
		if i == 0 {
			if err := waiting(ctx, h.boot.Pid(), h.self.Pid()); err != nil {
				return nil, nil, err
			}
		}
		back, err := h.gap(ctx, func() error { return h.self.Stop(time.Minute) })
		if err != nil {
			return nil, nil, fmt.Errorf("back to bootstrap: %w", err)
		}
		if i > 0 {
			toSelf, toBoot = append(toSelf, there), append(toBoot, back)
		}
	}
	failures, want := h.p.failed(), 2*(runs+1)
	figures.Row("hand-overs: times that the kubelet was away", fmt.Sprint(failures), "-", fmt.Sprintf("%d, once in each", want), failures == want)
	return toSelf, toBoot, nil
}

// agent is one of the two, with a log and a runtime directory of its own.
func (h *pair) agent(name string, flags ...string) (*bed.Agent, error) {
	dir := filepath.Join(h.bed.Node.Dir(), "run-"+name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock := filepath.Join(h.bed.Node.Dir(), "lock")
	if err := os.MkdirAll(lock, 0o700); err != nil {
		return nil, err
	}
	a, err := h.bed.Agent(append(flags, "--lock-file="+filepath.Join(lock, "kubelet.lock"), "--probe-socket="+filepath.Join(dir, "probe.sock"))...)
	if err != nil {
		return nil, err
	}
	a.Env, a.Log = append(a.Env, "RUNTIME_DIRECTORY="+dir), filepath.Join(h.bed.Node.Dir(), name+".log")
	return a, nil
}

// gap is how long the kubelet is away when something is done to an agent. It returns when the next one has settled.
func (h *pair) gap(ctx context.Context, do func() error) (time.Duration, error) {
	begin := time.Now()
	if err := do(); err != nil {
		return 0, err
	}
	_, down, err := h.p.next(ctx, begin)
	return down, errors.Join(err, pause(ctx, time.Second))
}

// bootWaits starts the bootstrap agent again when it has gone, as its init system does, and returns when it waits.
func (h *pair) bootWaits(ctx context.Context) error {
	select {
	case <-h.boot.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	if code := h.boot.ExitCode(); code != 0 {
		return fmt.Errorf("the bootstrap agent left with exit code %d, see %s", code, h.boot.Log)
	}
	if err := h.boot.Start(); err != nil {
		return err
	}
	return bed.Eventually(ctx, time.Minute, func(context.Context) error {
		if !lockfile.Waiting(h.boot.Pid()) {
			return errors.New("the bootstrap agent does not wait for the lock")
		}
		return nil
	})
}

// waiting takes the size of an agent that waits, and of the agent that it waits for.
func waiting(ctx context.Context, waiter, holder int) error {
	if err := pause(ctx, 5*time.Second); err != nil { // both have just been started
		return err
	}
	agents := []struct {
		what string
		pid  int
	}{{"waiting for the lock", waiter}, {"beside it, the one that has it", holder}}
	var before []time.Duration
	for _, a := range agents {
		cpu, err := figures.CPUTime(a.pid)
		if err != nil {
			return err
		}
		before = append(before, cpu)
	}
	if err := pause(ctx, waitingFor); err != nil {
		return err
	}
	for i, a := range agents {
		cpu, err := figures.CPUTime(a.pid)
		if err != nil {
			return err
		}
		rss, _, err := figures.Memory(a.pid)
		if err != nil {
			return err
		}
		share := (cpu - before[i]).Seconds() / waitingFor.Seconds() * 100
		figures.Row(a.what+": share of a core", fmt.Sprintf("%.3f %%", share), "-", "0.2 %", share <= 0.2)
		figures.Row(a.what+": resident memory (VmRSS)", figures.MiB(rss), "-", "25 MiB", rss <= 25<<20)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err()
}
