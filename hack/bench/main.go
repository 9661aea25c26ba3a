// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures the agent's speed and size, and prints each figure
// beside a floor from the same run. Only a leak of the agent makes it fail,
// because machines are noisy.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/must"
)

func main() {
	runs := flag.Int("runs", 10, "how often each change is made; medians are printed")
	idle := flag.Duration("idle", 10*time.Minute, "how long the agent idles before its size is taken")
	changed := flag.Int("changes", 101, "after how many changes the agent's memory is taken")
	only := flag.String("only", "", "measure only change, handover, memory, idle or restart, which is measured only if it is named")
	kubelets := flag.String("kubelets", "all", "versions of kubelets for restart, such as v1.33.13,v1.36.3")
	pods := flag.Int("pods", 60, "number of probed pods for restart")
	rounds := flag.Int("rounds", 1, "number of restarts of each kind and kubelet for restart")
	flag.Parse()
	os.Exit(must.Run("bench", func(ctx context.Context) {
		if *only == "restart" {
			restarts(ctx, *kubelets, *pods, *rounds)
		} else {
			bench(ctx, *runs, *changed, *idle, *only)
		}
	}))
}

// bench measures the parts on one node. They and what they call end at the
// first error, with package must.
func bench(ctx context.Context, runs, changed int, idle time.Duration, only string) {
	type part struct {
		name string
		run  func()
	}
	var b *bed.Bed
	parts := []part{
		{"change", func() { changes(ctx, b, runs) }},
		{"handover", func() { must.OK(handovers(ctx, b, runs)) }},
		{"memory", func() { memory(ctx, b, changed) }},
		{"idle", func() { idling(ctx, b, idle) }},
	}
	if only != "" {
		parts = slices.DeleteFunc(parts, func(p part) bool { return p.name != only })
		must.That(len(parts) > 0, "-only=%s: there is no such part: see -help", only)
	}

	fmt.Printf("evenkeel-agent: medians of %d, idle for %s\n\n", runs, idle)
	b = must.Get(bed.Up(ctx, "bench"))
	defer func() { _ = b.Down() }()
	for _, p := range parts {
		must.About(p.name, p.run)
	}
}

func ms(d time.Duration) string { return fmt.Sprintf("%.0f ms", d.Seconds()*1000) }
