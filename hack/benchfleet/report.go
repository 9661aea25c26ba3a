// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/auditlog"
	"github.com/evenkeel/evenkeel/testkit/figures"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// limited prints a figure with its limit, and notes whether it is over it.
func (b *bench) limited(what, text, limit string, over bool) {
	figures.PrintRow(what, text, "-", limit, !over)
	if over {
		b.over = append(b.over, what)
	}
}

// note prints a figure without a limit, or what explains one.
func note(what, format string, args ...any) {
	fmt.Printf("%-58s %s\n", what, fmt.Sprintf(format, args...))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// report prints the cost of a rollout with the usual budget, and of what is at
// rest after it.
func (b *bench) report(ctx context.Context, f *fleet, p phase) {
	b.writes(f.nodes, p)
	b.limitMemory("controller: most memory in a rollout (VmHWM)", p.most, f.nodes)
	note("controller: memory after it (VmRSS)", "%s", figures.MiB(p.now))
	note("controller: from its start to having seen everything", "%s", seconds(p.started))
	b.usage("a rollout", f.nodes, p)
	_, most := must.Get2(figures.Memory(f.hollow.Pid()))
	each := float64(most) / float64(f.nodes)
	few := f.nodes < 500 // the program itself is larger than its nodes
	b.limited("evenkeel-hollow: most memory, for each node", fmt.Sprintf("%.3f MiB", each/(1<<20)), "0.8 MiB", each > maxHollow && !few)
	for _, server := range []string{"kube-apiserver", "etcd"} {
		now, most := must.Get2(figures.Memory(f.servers[server]))
		note("memory of "+server, "%s, at most %s", figures.MiB(now), figures.MiB(most))
	}

	var shares []string
	for _, name := range slices.Sorted(maps.Keys(p.idle)) {
		shares = append(shares, fmt.Sprintf("%s %.4f", name, p.idle[name].Seconds()/b.idle.Seconds()))
	}

	note("at rest: of a processor", "%s over %s", strings.Join(shares, ", "), b.idle)
	f.storage(ctx, "hollow-0")
}

// storage prints the size of stored objects: the API server stores custom
// resources as JSON.
func (w *world) storage(ctx context.Context, nodeConfig string) {
	raw := must.Get(w.kube.RESTClient().Get().AbsPath("/apis", v1alpha1.GroupVersion.String(), "nodeconfigs", nodeConfig).DoRaw(ctx))
	note("stored: a NodeConfig", "%d bytes", len(raw))
	raw = must.Get(w.kube.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx))
	note("stored: etcd's database, with what is not compacted yet", "%s", figures.MiB(int64(sum(raw, "apiserver_storage_size_bytes"))))
}

// sum adds the values of a metric with these labels, from the text format of
// Prometheus.
func sum(text []byte, name string, labels ...string) (total float64) {
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, name)
		if ok = ok && strings.IndexAny(rest, "{ ") == 0; !ok || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(rest, l) }) {
			continue
		}
		if n, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(strings.TrimSpace(rest), ' ')+1:]), 64); err == nil {
			total += n
		}
	}

	return total
}

// limitMemory prints the most memory of a controller, in bytes.
func (b *bench) limitMemory(what string, most int64, nodes int) {
	switch {
	case nodes <= memoryNodes:
		b.limited(what, figures.MiB(most), figures.MiB(maxMemory), most > maxMemory)
	case nodes <= largeNodes:
		b.limited(what, figures.MiB(most), figures.MiB(maxLarge), most > maxLarge)
	default:
		b.limited(what, figures.MiB(most), "-", false)
	}
}

// usage prints the time of a change, what the programs used, and how long
// kubelets took.
func (b *bench) usage(what string, nodes int, p phase) {
	each := func(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000/float64(nodes)) }
	note(what+": all nodes are done after", "%s, %s per node", seconds(p.settled), each(p.settled))
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(p.used)) {
		parts = append(parts, name+" "+each(p.used[name]))
	}

	note(what+": CPU per node", "%s", strings.Join(parts, ", "))
	note(what+": assignment to healthy kubelet (50%, 95%, 99%, most)", "%s", spread(p.healthy))
}

// writes prints the number of writes in a rollout, from the audit log. What the
// API server refused because of its load changed nothing, and is counted
// separately.
func (b *bench) writes(fleet int, p phase) {
	nodes := float64(fleet)
	writes, progress, events, own, no := 0, 0, 0, 0, 0
	for _, k := range sorted(p.counts) {
		n := p.counts[k]
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
			no += p.refused[k]
		default:
			whose = "write"
			writes += n
			no += p.refused[k]
		}

		note("  "+label(k), "%9d  %.3f per node, %s, %d refused", n, float64(n)/nodes, whose, p.refused[k])
	}

	for _, count := range []struct {
		what string
		n    int
		most float64
	}{{"API writes per node and rollout", writes, maxWrites}, {"writes of progress per node and trial", progress, maxProgress}, {"Events per node and rollout", events, maxEvents}} {
		per := float64(count.n) / nodes
		b.limited(count.what, fmt.Sprintf("%.3f", per), fmt.Sprint(count.most), per > count.most)
	}

	note("writes and Events that the API server refused", "%d", no)
	note("the controller's own writes, Events included", "%d, %.2f per second", own, float64(own)/p.settled.Seconds())
}
