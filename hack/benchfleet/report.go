// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/testkit/auditlog"
	"github.com/evenkeel/evenkeel/testkit/figures"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// report prints and keeps the cost of rollouts.
func (b *bench) report(ctx context.Context, f *fleet) error {
	if len(f.rollouts) > 0 {
		b.ratio(f)
	}
	fmt.Printf("\nwrites of a rollout, %s at a time\n", usual)
	b.writes(f.nodes, []phase{f.paced}, true)
	if len(f.rollouts) > 0 {
		fmt.Printf("\nwrites of a rollout, all at once: a saturated API server refuses some, and agents say that they cannot tell\n")
		b.writes(f.nodes, f.rollouts, false)
	}
	fmt.Println()
	var most, now int64
	var started time.Duration
	for _, p := range append(f.rollouts, f.paced) {
		most, now, started = max(most, p.most), max(now, p.now), max(started, p.started)
	}
	b.limitMemory("controller: most memory in a rollout (VmHWM)", most, f.nodes)
	b.keep("controller: memory after it (VmRSS)", "%s", figures.MiB(now))
	b.keep("controller: from its start to having seen everything", "%s", seconds(started))
	b.pace(f)
	if len(f.rollouts) > 0 {
		b.usage("by hand", f.nodes, f.hands...)
		b.usage("rolled out at once", f.nodes, f.rollouts...)
	}
	b.usage("rolled out "+usual+" at a time", f.nodes, f.paced)
	if err := b.reportMemory(f); err != nil {
		return err
	}
	requests := []string{}
	for _, k := range sorted(f.idle.requests) {
		requests = append(requests, fmt.Sprintf("%.1f %s %s", float64(f.idle.requests[k])/f.idle.took.Minutes(), k.Verb, k.Resource))
	}
	var shares []string
	for _, name := range slices.Sorted(maps.Keys(f.idle.used)) {
		shares = append(shares, fmt.Sprintf("%s %.4f", name, f.idle.used[name].Seconds()/f.idle.took.Seconds()))
	}
	b.keep("at rest: of a processor", "%s over %s", strings.Join(shares, ", "), f.idle.took.Round(time.Second))
	b.keep("at rest: its requests per minute", "%s", strings.Join(requests, ", "))
	return b.storage(ctx, f.world, "hollow-0")
}

// limitMemory prints and keeps the most memory of a controller, in bytes.
func (b *bench) limitMemory(what string, most int64, nodes int) {
	f := figure{What: what, Text: figures.MiB(most), Value: float64(most)}
	for _, limit := range []struct {
		nodes int
		bytes int64
	}{{memoryNodes, maxMemory}, {largeNodes, maxLarge}} {
		if nodes <= limit.nodes {
			f.Limit, f.Over = figures.MiB(limit.bytes), most > limit.bytes
			break
		}
	}
	b.limited(f, "-")
}

// timePerNode and handTimePerNode are the times of a change with the usual budget, divided by the number of nodes.
const (
	timePerNode     = "a rollout, " + usual + " at a time: time per node"
	handTimePerNode = "by hand, " + usual + " at a time: time per node"
)

// pace prints and keeps the time of a rollout with the usual budget. The limit of the time per node is relative to that with memoryNodes.
func (b *bench) pace(f *fleet) {
	b.keep("a rollout, "+usual+" at a time", "%s", seconds(f.paced.settled))
	per, smaller := b.perNode(timePerNode, f.nodes, f.paced)
	if smaller > 0 {
		per.Limit, per.Over = fmt.Sprintf("%.1f x", maxSlower), per.Value > maxSlower*smaller
	}
	b.limited(per, "-")
}

// perNode returns a time per node in milliseconds, and that with memoryNodes; 0 if it is not to be compared.
func (b *bench) perNode(what string, nodes int, p phase) (figure, float64) {
	each := p.settled.Seconds() * 1000 / float64(nodes)
	per := figure{What: what, Text: fmt.Sprintf("%.1f ms", each), Value: each}
	if nodes <= memoryNodes {
		return per, 0
	}
	smaller, ok := b.results.value(b.measured.Part, memoryNodes, what)
	if !ok {
		note("", "not compared: measure -nodes=%d -only=rollout first", memoryNodes)
		return per, 0
	}
	per.Text += fmt.Sprintf(" (%.2f x that with %d)", each/smaller, memoryNodes)
	return per, smaller
}

// reportFloor prints and keeps the time of the same change by hand: the part of a rollout's time that is not the controller's.
func (b *bench) reportFloor(f *fleet) {
	per, _ := b.perNode(handTimePerNode, f.nodes, f.pacedHand)
	b.limited(per, "-")
	b.keep("a rollout, "+usual+" at a time, over patching by hand", "%.2f x", f.paced.settled.Seconds()/f.pacedHand.settled.Seconds())
	b.usage("by hand, "+usual+" at a time", f.nodes, f.pacedHand)
}

// usage prints and keeps what the programs used, and how long kubelets took, on average of these changes.
func (b *bench) usage(what string, nodes int, changes ...phase) {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(changes[0].used)) {
		var all time.Duration
		for _, p := range changes {
			all += p.used[name]
		}
		parts = append(parts, fmt.Sprintf("%s %.2f", name, all.Seconds()*1000/float64(nodes*len(changes))))
	}
	b.keep("CPU, ms per node, "+what, "%s", strings.Join(parts, ", "))
	var healthy []time.Duration
	for _, p := range changes {
		healthy = append(healthy, p.healthy...)
	}
	b.keep("assignment to healthy kubelet (50%, 95%, 99%, most), "+what, "%s", spread(healthy))
}

// reportMemory prints and keeps the memory of the nodes, the API server and etcd.
func (b *bench) reportMemory(f *fleet) (err error) {
	defer must.Catch(&err)

	_, most := must.Get2(figures.Memory(f.hollow.Pid()))
	each := float64(most) / float64(f.nodes)
	few := f.nodes < 500 // the program itself is larger than its nodes
	b.limited(figure{What: "evenkeel-hollow: most memory, for each node", Text: fmt.Sprintf("%.3f MiB", each/(1<<20)), Value: each,
		Limit: "0.8 MiB", Over: each > maxHollow && !few}, "-")
	for _, server := range []string{"kube-apiserver", "etcd"} {
		now, most := must.Get2(figures.Memory(f.servers[server]))
		b.keep("memory of "+server, "%s, at most %s", figures.MiB(now), figures.MiB(most))
	}
	return nil
}

// ratio prints and keeps the time of unlimited rollouts. The floor is patching without a controller.
func (b *bench) ratio(f *fleet) {
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
		note(fmt.Sprintf("round %d: last NodeConfig written", i+1), "by hand %.1f s, by a rollout %.1f s (the first after %.1f s); all nodes done after %.1f s and %.1f s",
			h.written.Seconds(), r.written.Seconds(), r.first.Seconds(), h.settled.Seconds(), r.settled.Seconds())
	}
	rounds := time.Duration(len(f.rollouts))
	b.limited(figure{What: "unlimited rollout: created to last assignment", Text: fmt.Sprintf("%s (%.2f x by hand)", seconds(rolled/rounds), ratio), Value: ratio,
		Limit: fmt.Sprintf("%.1f x", maxRatio), Over: ratio > maxRatio}, seconds(byHand/rounds))
}

// writes prints and keeps the number of writes in rollouts, from the audit log. What the API server refused because of its load changed
// nothing, and is counted separately.
func (b *bench) writes(fleet int, rollouts []phase, limited bool) {
	counts, refused := map[auditlog.Key]int{}, map[auditlog.Key]int{}
	var took time.Duration
	for _, p := range rollouts {
		took += p.settled
		for k, n := range p.counts {
			counts[k] += n
		}
		for k, n := range p.refused {
			refused[k] += n
		}
	}
	nodes := float64(fleet * len(rollouts))
	writes, progress, events, own, no := 0, 0, 0, 0, 0
	for _, k := range sorted(counts) {
		n := counts[k]
		whose := "not evenkeel's"
		switch {
		case k.Program != "evenkeel-agent" && k.Program != "evenkeel-controller": // a simulated kubelet, or this program
		case k.Program == "evenkeel-controller" && k.Resource == "leases": // leader election, with or without a rollout
			whose = "the controller's lease"
		case k.Program == "evenkeel-controller" && k.Resource != "nodeconfigs":
			whose = "the controller's own"
			own += n
		case strings.HasSuffix(k.Resource, auditlog.OfProgress):
			whose = "progress"
			progress += n
		case k.Resource == "events":
			whose = "event"
			events += n
			no += refused[k]
		default:
			whose = "write"
			writes += n
			no += refused[k]
		}
		note("  "+label(k), "%9d  %.3f per node, %s, %d refused", n, float64(n)/nodes, whose, refused[k])
	}
	how := ", all at once"
	if limited {
		how = ", " + usual + " at a time"
	}
	for _, sum := range []struct {
		what string
		n    int
		most float64
	}{{"API writes per node and rollout", writes, maxWrites}, {"writes of progress per node and trial", progress, maxProgress}, {"Events per node and rollout", events, maxEvents}} {
		per := float64(sum.n) / nodes
		row := figure{What: sum.what + how, Text: fmt.Sprintf("%.3f", per), Value: per}
		if limited {
			row.Limit, row.Over = fmt.Sprint(sum.most), per > sum.most
		}
		b.limited(row, "-")
	}
	b.keep("writes and Events that the API server refused"+how, "%d", no)
	b.keep("the controller's own writes, Events included"+how, "%.1f per rollout, %.2f per second", float64(own)/float64(len(rollouts)), float64(own)/took.Seconds())
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
