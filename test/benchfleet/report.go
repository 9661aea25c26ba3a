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
)

// report prints the cost of rollouts.
func (b *bench) report(ctx context.Context, f *fleet) error {
	n := float64(f.nodes)
	if len(f.rollouts) > 0 {
		b.ratio(f)
	}
	fmt.Printf("\nwrites of a rollout, %s at a time\n", usual)
	b.writes(f.nodes, []phase{f.paced}, true)
	if len(f.rollouts) > 0 {
		fmt.Printf("\nwrites of a rollout, all at once: a saturated API server refuses some, and agents say that they cannot tell\n")
		b.writes(f.nodes, f.rollouts, false)
	}
	b.reportPreflight(f)
	fmt.Println()
	var most, now int64
	var started time.Duration
	for _, p := range append(f.rollouts, f.paced) {
		most, now, started = max(most, p.most), max(now, p.now), max(started, p.started)
	}
	b.limited("controller: most memory in a rollout (VmHWM)", figures.MiB(most), "-", figures.MiB(maxMemory), most <= maxMemory || f.nodes > memoryNodes)
	note("controller: memory after it (VmRSS)", "%s", figures.MiB(now))
	note("controller: from its start to having seen everything", "%s", seconds(started))
	note("a rollout, "+usual+" at a time", "%s", seconds(f.paced.settled))
	for _, kind := range []struct {
		what   string
		phases []phase
	}{{"by hand", f.hands}, {"rolled out at once", f.rollouts}, {"rolled out " + usual + " at a time", []phase{f.paced}}} {
		if len(kind.phases) == 0 {
			continue
		}
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(kind.phases[0].used)) {
			var all time.Duration
			for _, p := range kind.phases {
				all += p.used[name]
			}
			parts = append(parts, fmt.Sprintf("%s %.2f", name, all.Seconds()*1000/n/float64(len(kind.phases))))
		}
		note("CPU, ms per node, "+kind.what, "%s", strings.Join(parts, ", "))
	}
	for name, pid := range map[string]int{"evenkeel-hollow": f.hollow.pid(), "kube-apiserver": f.servers["kube-apiserver"], "etcd": f.servers["etcd"]} {
		now, most, err := figures.Memory(pid)
		if err != nil {
			return err
		}
		note("memory of "+name, "%s, at most %s", figures.MiB(now), figures.MiB(most))
	}
	requests := []string{}
	for _, k := range sorted(f.idle.requests) {
		requests = append(requests, fmt.Sprintf("%.1f %s %s", float64(f.idle.requests[k])/f.idle.took.Minutes(), k.Verb, k.Resource))
	}
	note("at rest: the controller's share of a core", "%.3f %% over %s", f.idle.share*100, f.idle.took.Round(time.Second))
	note("at rest: its requests per minute", "%s", strings.Join(requests, ", "))
	return f.storage(ctx, "hollow-0")
}

// ratio prints the time of unlimited rollouts. The floor is patching without a controller.
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
	b.limited("unlimited rollout: created to last assignment", seconds(rolled/rounds), seconds(byHand/rounds),
		fmt.Sprintf("%.1f x (is %.2f x)", maxRatio, ratio), ratio <= maxRatio)
}

// writes prints the number of writes in rollouts, from the audit log.
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
	writes, progress, events, own := 0, 0, 0, 0
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
		default:
			whose = "write"
			writes += n
		}
		note("  "+label(k), "%9d  %.3f per node, %s, %d refused", n, float64(n)/nodes, whose, refused[k])
	}
	for _, sum := range []struct {
		what string
		n    int
		most float64
	}{{"API writes per node and rollout", writes, maxWrites}, {"writes of progress per node and trial", progress, maxProgress}, {"Events per node and rollout", events, maxEvents}} {
		per := float64(sum.n) / nodes
		if limited {
			b.limited(sum.what, fmt.Sprintf("%.3f", per), "-", fmt.Sprint(sum.most), per <= sum.most)
		} else {
			note(sum.what, "%.3f", per)
		}
	}
	note("the controller's own writes, Events included", "%.1f per rollout, %.2f per second", float64(own)/float64(len(rollouts)), float64(own)/took.Seconds())
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
