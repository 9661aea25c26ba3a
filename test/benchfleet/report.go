package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/test/figures"
)

// report prints what rollouts have cost.
func (b *bench) report(ctx context.Context, f *fleet) error {
	n := float64(f.nodes)
	var byHand, rolled time.Duration
	for _, p := range f.hands {
		byHand += p.written
	}
	for _, p := range f.rollouts {
		rolled += p.written
	}
	ratio := rolled.Seconds() / byHand.Seconds()
	for i := range f.rollouts {
		h, r := &f.hands[i], &f.rollouts[i]
		note(fmt.Sprintf("round %d: last NodeConfig written", i+1), "by hand %.1f s, by a rollout %.1f s; all nodes done after %.1f s and %.1f s",
			h.written.Seconds(), r.written.Seconds(), h.settled.Seconds(), r.settled.Seconds())
	}
	rounds := time.Duration(len(f.rollouts))
	b.limited("unlimited rollout: created to last assignment", seconds(rolled/rounds), seconds(byHand/rounds),
		fmt.Sprintf("%.1f x (is %.2f x)", mostRatio, ratio), ratio <= mostRatio)
	b.writes(f)
	var most, now int64
	var started time.Duration
	for _, p := range f.rollouts {
		most, now, started = max(most, p.most), max(now, p.now), max(started, p.started)
	}
	b.limited("controller: most memory in a rollout (VmHWM)", figures.MiB(most), "-", figures.MiB(mostMemory), most <= mostMemory || f.nodes > memoryNodes)
	note("controller: memory after it (VmRSS)", "%s", figures.MiB(now))
	note("controller: from its start to having seen everything", "%s", seconds(started))
	for _, name := range slices.Sorted(maps.Keys(f.rollouts[0].used)) {
		var hand, roll time.Duration
		for i := range f.rollouts {
			hand += f.hands[i].used[name]
			roll += f.rollouts[i].used[name]
		}
		note("CPU of "+name, "%.2f ms per node and rollout (%.1f s in all); when patched by hand %.2f ms",
			roll.Seconds()*1000/n/float64(rounds), (roll / rounds).Seconds(), hand.Seconds()*1000/n/float64(rounds))
	}
	for name, pid := range map[string]int{"evenkeel-hollow": f.hollow.pid(), "kube-apiserver": f.servers["kube-apiserver"], "etcd": f.servers["etcd"]} {
		now, most, err := figures.Memory(pid)
		if err != nil {
			return err
		}
		note("memory of "+name, "%s, at most %s", figures.MiB(now), figures.MiB(most))
	}
	for _, r := range f.rests {
		requests := []string{}
		for _, k := range sorted(r.requests) {
			requests = append(requests, fmt.Sprintf("%.1f %s %s", float64(r.requests[k])/r.took.Minutes(), k.verb, k.resource))
		}
		note("at rest: the controller's share of a core", "%.3f %% over %s", r.share*100, r.took.Round(time.Second))
		note("at rest: its requests per minute", "%s", strings.Join(requests, ", "))
	}
	return f.storage(ctx, "hollow-0")
}

// writes prints what was written in rollouts, as the API server has counted it.
func (b *bench) writes(f *fleet) {
	counts, refused := map[key]int{}, map[key]int{}
	for _, p := range f.rollouts {
		for k, n := range p.counts {
			counts[k] += n
		}
		for k, n := range p.refused {
			refused[k] += n
		}
	}
	nodes := float64(f.nodes * len(f.rollouts))
	writes, events, own := 0, 0, 0
	for _, k := range sorted(counts) {
		n := counts[k]
		whose := "not evenkeel's"
		switch {
		case k.program != "evenkeel-agent" && k.program != "evenkeel-controller": // a simulated kubelet, or this program
		case k.program == "evenkeel-controller" && k.resource == "leases": // it leads, whether or not there is a rollout
			whose = "the controller's lease"
		case k.program == "evenkeel-controller" && k.resource != "nodeconfigs":
			whose = "the controller's own"
			own += n
		case k.resource == "events":
			whose = "event"
			events += n
		default:
			whose = "write"
			writes += n
		}
		note("  "+k.String(), "%9d  %.3f per node, %s, %d refused", n, float64(n)/nodes, whose, refused[k])
	}
	per := func(n int) float64 { return float64(n) / nodes }
	b.limited("API writes per node and rollout", fmt.Sprintf("%.3f", per(writes)), "-", fmt.Sprint(mostWrites), per(writes) <= mostWrites)
	b.limited("Events per node and rollout", fmt.Sprintf("%.3f", per(events)), "-", fmt.Sprint(mostEvents), per(events) <= mostEvents)
	var took time.Duration
	for _, p := range f.rollouts {
		took += p.settled
	}
	note("the controller's own writes per rollout, Events included", "%.1f, %.2f per second", float64(own)/float64(len(f.rollouts)), float64(own)/took.Seconds())
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
