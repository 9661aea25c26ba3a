// Command benchfleet measures evenkeel-controller with a fleet of hollow nodes: what a rollout costs the API server, how
// soon it is written, how large the controller grows, how long a plan takes. Each figure stands beside a floor or a limit
// from the same run; it ends with an error if a limit is broken.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/testkit/figures"
)

// The limits.
const (
	maxWrites   = 4.0             // to the API per node and successful rollout, without Events and the progress of trials
	maxProgress = 10.0            // statuses per node and trial that differ in its progress only
	maxEvents   = 2.0             // the same
	maxAsked    = 2.0             // writes per node and preflight: a request and an answer
	maxAsking   = 2 * time.Minute // for memoryNodes to answer a preflight
	maxRatio    = 1.5             // of the time of an unlimited rollout to that of patching without a controller
	maxMemory   = 150 << 20       // of the controller, with memoryNodes
	memoryNodes = 5000
	maxPlan     = 100 * time.Millisecond // for planNodes
	planNodes   = 100_000
)

func main() {
	b := &bench{}
	nodes := flag.Int("nodes", 5000, "how many hollow nodes there are")
	atOnce := flag.Int("at-once", 1000, "how many of them are patched by hand and rolled out at once: a small API server does not bear many")
	rounds := flag.Int("rounds", 2, "how often that is done, in alternating order")
	idle := flag.Duration("idle", 2*time.Minute, "how long the controller is watched at rest")
	only := flag.String("only", "", "measure only plan, at-once, rollout, memory or outage")
	flag.Func("apiserver", "flag for the API server, such as --max-requests-inflight=100; repeatable", func(f string) error {
		b.apiserver = append(b.apiserver, f)
		return nil
	})
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := b.run(ctx, *nodes, min(*nodes, *atOnce), *rounds, *idle, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchfleet:", err)
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	apiserver []string // additional flags
	exceeded  []string // figures that exceed their limit
}

func (b *bench) run(ctx context.Context, nodes, atOnce, rounds int, idle time.Duration, only string) error {
	if atOnce < 1 || rounds < 1 {
		return errors.New("-nodes, -at-once and -rounds must be at least 1")
	}
	fmt.Printf("evenkeel-controller: %d nodes, %d rounds, %d processors, %s\n", nodes, rounds, runtime.NumCPU(), runtime.Version())
	if len(b.apiserver) > 0 {
		note("the API server has", "%q", b.apiserver)
	}
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{"plan", func() error { return b.plans(ctx) }},
		{"at-once", func() error { return b.rollouts(ctx, atOnce, rounds, idle) }},
		{"rollout", func() error { return b.rollouts(ctx, nodes, 0, idle) }},
		{"memory", func() error { return b.growth(ctx, nodes) }},
		{"outage", func() error { return b.outages(ctx, atOnce) }},
	} {
		if only != "" && only != part.name {
			continue
		}
		fmt.Printf("\n%s\n", part.name)
		if err := part.run(); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	if len(b.exceeded) > 0 {
		return fmt.Errorf("over their limits: %q", b.exceeded)
	}
	return nil
}

// limited prints a figure with its limit, and adds it to exceeded if it is over.
func (b *bench) limited(what, figure, floor, limit string, ok bool) {
	figures.PrintRow(what, figure, floor, limit, ok)
	if !ok {
		b.exceeded = append(b.exceeded, what)
	}
}

// note prints a figure without a limit.
func note(what, format string, args ...any) {
	fmt.Printf("%-58s %s\n", what, fmt.Sprintf(format, args...))
}
