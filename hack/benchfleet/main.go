// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command benchfleet measures evenkeel-controller with a fleet of hollow nodes: what a rollout costs the API server, how
// soon it is written, how large the controller grows, how long a plan takes. Each figure stands beside a floor or a limit
// from the same run; it ends with an error if a limit is broken. The figures of all runs are kept in a file, so that a large
// fleet can be measured part by part.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/testkit/figures"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// The limits.
const (
	maxWrites   = 4.0             // to the API per node and successful rollout, without Events and the progress of trials
	maxProgress = 10.0            // statuses per node and trial that differ in its progress only
	maxEvents   = 2.0             // the same
	maxAsked    = 2.0             // writes per node and preflight: a request and an answer
	maxAsking   = 2 * time.Minute // for memoryNodes to answer a preflight
	maxRatio    = 1.5             // of the time of an unlimited rollout to that of patching without a controller
	maxCrowd    = 1.3             // of the same, until the last node is done, with thousands of nodes
	maxSlower   = 1.3             // of the time per node to that with memoryNodes
	maxMemory   = 150 << 20       // of the controller, with memoryNodes
	memoryNodes = 5000
	maxLarge    = 250 << 20 // of the controller, with largeNodes
	largeNodes  = 20_000
	maxHollow   = 0.8 * (1 << 20)        // of evenkeel-hollow, for each node
	maxPlan     = 100 * time.Millisecond // for planNodes
	planNodes   = 100_000
)

// options are the flags.
type options struct {
	nodes, atOnce, crowd int
	rounds, halts        int
	idle, within         time.Duration
	fsync                bool
	apiserver            []string // additional flags
}

// part is a group of measurements with its own cluster.
type part struct {
	name  string
	usual bool // it is measured without -only
	nodes func(*options) int
	run   func(*bench, context.Context, int) error
}

func allNodes(o *options) int   { return o.nodes }
func someNodes(o *options) int  { return min(o.nodes, o.atOnce) }
func crowdNodes(o *options) int { return o.crowd }

var parts = []part{
	{"plan", true, func(*options) int { return planNodes }, (*bench).plans},
	{"at-once", true, someNodes, func(b *bench, ctx context.Context, n int) error {
		return b.withFleet(ctx, n, func(ctx context.Context, f *fleet) error { return b.rollouts(ctx, f, b.rounds) })
	}},
	{"rollout", true, allNodes, func(b *bench, ctx context.Context, n int) error {
		return b.withFleet(ctx, n, func(ctx context.Context, f *fleet) error { return b.rollouts(ctx, f, 0) })
	}},
	{"halt", true, someNodes, func(b *bench, ctx context.Context, n int) error { return b.withFleet(ctx, n, b.halting, crashing) }},
	{"memory", true, allNodes, (*bench).growth},
	{"outage", true, someNodes, (*bench).outages},
	{"crowd", false, crowdNodes, (*bench).crowded},
	{"restart", false, crowdNodes, func(b *bench, ctx context.Context, n int) error { return b.withFleet(ctx, n, b.restarts) }},
}

func partNames() []string {
	names := make([]string, 0, len(parts))
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

func main() {
	b := &bench{}
	flag.IntVar(&b.nodes, "nodes", 5000, "how many hollow nodes there are")
	flag.IntVar(&b.atOnce, "at-once", 1000, "how many of them the parts at-once, halt and outage have: a small API server does not bear many at once")
	flag.IntVar(&b.crowd, "crowd", 5000, "how many nodes the parts crowd and restart have")
	flag.IntVar(&b.rounds, "rounds", 2, "how often nodes are patched by hand and rolled out at once, in alternating order")
	flag.IntVar(&b.halts, "halts", 20, "how many bad configurations the part halt rolls out")
	flag.DurationVar(&b.idle, "idle", 2*time.Minute, "how long the controller is watched at rest")
	flag.DurationVar(&b.within, "within", 15*time.Minute, "when the part crowd counts the nodes that are done, if not all are")
	flag.BoolVar(&b.fsync, "fsync", false, "etcd waits for its disk, as in production; the figures are kept apart from those without")
	only := flag.String("only", "", "comma-separated parts: plan, at-once, rollout, halt, memory, outage; and those that are measured only if named: crowd, restart")
	table := flag.Bool("table", false, "measure nothing, and print the results of all runs so far as a table in Markdown")
	path := flag.String("results", "bin/benchfleet.json", "file with the results of all runs")
	flag.Func("apiserver", "flag for the API server, such as --max-requests-inflight=100; repeatable", func(f string) error {
		b.apiserver = append(b.apiserver, f)
		return nil
	})
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := b.run(ctx, *path, *only, *table)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchfleet:", err)
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	options
	results  *results
	measured measured // the part that runs
}

// selected returns the parts to measure.
func selected(only string) ([]part, error) {
	if only == "" {
		return slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return !p.usual }), nil
	}
	var out []part
	for _, name := range strings.Split(only, ",") {
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-only=%s: there is no part %q, only %s", only, name, strings.Join(partNames(), ", "))
		}
		out = append(out, parts[i])
	}
	return out, nil
}

func (b *bench) run(ctx context.Context, path, only string, table bool) (err error) {
	defer must.Catch(&err)

	if min(b.nodes, b.atOnce, b.crowd, b.rounds, b.halts) < 1 {
		return errors.New("-nodes, -at-once, -crowd, -rounds and -halts must be at least 1")
	}
	run := must.Get(selected(only))
	b.results = must.Get(readResults(path))
	if table {
		fmt.Print(b.results.table(partNames()))
		return nil
	}
	fmt.Printf("evenkeel-controller: %d nodes, %d rounds, %d processors, %s\n", b.nodes, b.rounds, runtime.NumCPU(), runtime.Version())
	if len(b.apiserver) > 0 {
		note("the API server has", "%q", b.apiserver)
	}
	var over []string
	for _, p := range run {
		nodes := p.nodes(&b.options)
		name := p.name
		if b.fsync {
			name += ", fsync"
		}
		fmt.Printf("\n%s\n", name)
		b.measured = measured{Part: name, Nodes: nodes, When: time.Now().UTC()}
		if err := p.run(b, ctx, nodes); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		must.OK(b.record())
		over = append(over, b.results.over(nodes)...)
	}
	fmt.Printf("\nall results so far (%s)\n\n%s", path, b.results.table(partNames()))
	if slices.Sort(over); len(over) > 0 {
		return fmt.Errorf("over their limits: %q", slices.Compact(over))
	}
	return nil
}

// record saves the figures that were measured so far.
func (b *bench) record() error {
	b.results.replace(b.measured)
	return b.results.save()
}

// limited prints and keeps a figure with its limit.
func (b *bench) limited(f figure, floor string) {
	figures.PrintRow(f.What, f.Text, floor, f.Limit, !f.Over)
	b.measured.Figures = append(b.measured.Figures, f)
}

// keep prints and keeps a figure without a limit.
func (b *bench) keep(what, format string, args ...any) {
	f := figure{What: what, Text: fmt.Sprintf(format, args...)}
	note(what, "%s", f.Text)
	b.measured.Figures = append(b.measured.Figures, f)
}

// note prints what explains a figure.
func note(what, format string, args ...any) {
	fmt.Printf("%-58s %s\n", what, fmt.Sprintf(format, args...))
}
