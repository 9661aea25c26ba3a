// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command benchfleet measures evenkeel-controller with a fleet of hollow nodes:
// what a rollout costs the API server, how soon all nodes are done, how large
// the controller grows, how long a plan takes. It ends with an error if a limit
// is exceeded.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// The limits.
const (
	maxWrites   = 4.0             // to the API per node and successful rollout, without Events and the progress of trials
	maxProgress = 10.0            // statuses per node and trial that differ in its progress only
	maxEvents   = 2.0             // the same
	maxAsked    = 2.0             // writes per node and preflight: a request and an answer
	maxAsking   = 2 * time.Minute // for memoryNodes to answer a preflight
	maxRatio    = 1.5             // of the time of a rollout to that of patching as many nodes at a time without a controller
	maxCrowd    = 1.3             // of the same without a budget
	maxMemory   = 150 << 20       // of the controller, with memoryNodes
	memoryNodes = 5000
	maxLarge    = 250 << 20 // of the controller, with largeNodes
	largeNodes  = 20_000
	maxHollow   = 0.8 * (1 << 20)        // of evenkeel-hollow, for each node
	maxPlan     = 100 * time.Millisecond // for planNodes
	planNodes   = 100_000
)

// bench is one run.
type bench struct {
	nodes int
	idle  time.Duration
	fsync bool
	over  []string // what exceeds its limit
}

// part is a group of measurements with its own cluster. It and what it calls end
// at the first error, with package must.
type part struct {
	name  string
	usual bool // it is measured without -only
	run   func(*bench, context.Context)
}

var parts = []part{
	{"plan", true, (*bench).plans},
	{"rollout", true, onFleet((*bench).rollout)},
	{"memory", true, (*bench).growth},
	{"at-once", false, (*bench).atOnce},
	{"restart", false, onFleet((*bench).restarts)},
}

// onFleet runs a part with a new cluster and its hollow nodes.
func onFleet(run func(*bench, context.Context, *fleet)) func(*bench, context.Context) {
	return func(b *bench, ctx context.Context) {
		b.withFleet(ctx, func(ctx context.Context, f *fleet) { run(b, ctx, f) })
	}
}

func main() {
	b := &bench{}
	flag.IntVar(&b.nodes, "nodes", 5000, "how many hollow nodes there are")
	flag.DurationVar(&b.idle, "idle", 2*time.Minute, "how long the controller is watched at rest")
	flag.BoolVar(&b.fsync, "fsync", false, "etcd waits for its disk, as in production")
	only := flag.String("only", "", "comma-separated parts: plan, rollout, memory; and those that are measured only if named: at-once, restart")
	flag.Parse()
	os.Exit(must.Run("benchfleet", func(ctx context.Context) { b.run(ctx, *only) }))
}

func (b *bench) run(ctx context.Context, only string) {
	must.That(b.nodes >= 1, "-nodes must be at least 1")
	named := strings.Split(only, ",")
	for _, name := range named {
		known := slices.ContainsFunc(parts, func(p part) bool { return p.name == name })
		must.That(only == "" || known, "-only=%s: there is no part %q", only, name)
	}

	fmt.Printf("evenkeel-controller: %d nodes, %d processors, %s\n", b.nodes, runtime.NumCPU(), runtime.Version())
	for _, p := range parts {
		if only == "" && p.usual || slices.Contains(named, p.name) {
			fmt.Printf("\n%s\n", p.name)
			must.About(p.name, func() { p.run(b, ctx) })
		}
	}

	must.That(len(b.over) == 0, "over their limits: %q", b.over)
}
