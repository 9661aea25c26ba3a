// Command bench measures the agent's speed and size, each beside a floor from
// the same run. It asserts nothing: machines are noisy, figures are for people.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/test/bed"
)

func main() {
	runs := flag.Int("runs", 10, "how often each change is made; medians are printed")
	idle := flag.Duration("idle", 10*time.Minute, "how long the agent idles before its size is taken")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := bench(ctx, *runs, *idle)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, runs int, idle time.Duration) error {
	fmt.Printf("evenkeel-agent: medians of %d, idle for %s\n\n", runs, idle)
	if err := diskBench(ctx); err != nil {
		return err
	}
	b, err := bed.Up(ctx, "bench", nil)
	if err != nil {
		return err
	}
	defer b.Down()
	if err := changes(ctx, b, runs); err != nil {
		return err
	}
	if err := rejections(ctx, b, runs); err != nil {
		return err
	}
	return idling(ctx, b, idle)
}

// row prints one figure, its floor and what it may be.
func row(what, figure, floor, limit string, ok bool) {
	verdict := "within"
	if !ok {
		verdict = "OVER"
	}
	fmt.Printf("%-58s %12s   floor %-12s limit %-22s %s\n", what, figure, floor, limit, verdict)
}

func median[T int | int64 | float64 | time.Duration](values []T) T {
	slices.Sort(values)
	return values[len(values)/2]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.0f ms", d.Seconds()*1000) }
