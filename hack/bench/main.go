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
	"os/signal"
	"syscall"
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
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	var err error
	if *only == "restart" {
		err = restarts(ctx, *kubelets, *pods, *rounds)
	} else {
		err = bench(ctx, *runs, *changed, *idle, *only)
	}

	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, runs, changed int, idle time.Duration, only string) (err error) {
	defer must.Catch(&err)

	fmt.Printf("evenkeel-agent: medians of %d, idle for %s\n\n", runs, idle)
	b := must.Get(bed.Up(ctx, "bench"))
	defer func() { _ = b.Down() }()
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{"change", func() error { return changes(ctx, b, runs) }},
		{"handover", func() error { return handovers(ctx, b, runs) }},
		{"memory", func() error { return memory(ctx, b, changed) }},
		{"idle", func() error { return idling(ctx, b, idle) }},
	} {
		if only != "" && only != part.name {
			continue
		}
		if err := part.run(); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}

	return nil
}

func ms(d time.Duration) string { return fmt.Sprintf("%.0f ms", d.Seconds()*1000) }
