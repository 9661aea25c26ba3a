package main

import (
	"context"
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/figures"
)

// memory measures how much memory the agent holds after many changes, beside what it held after the first one.
func memory(ctx context.Context, b *bed.Bed, changes int) error {
	a, err := b.Agent("--config-trial-duration=1h")
	if err != nil {
		return err
	}
	if err := start(ctx, b, a); err != nil {
		return err
	}
	defer func() { _ = a.Stop(time.Minute) }()
	var first int64
	for i := range changes {
		data, err := b.Config(map[string]any{"maxPods": 300 + i})
		if err != nil {
			return err
		}
		cm, err := b.Create(ctx, fmt.Sprintf("memory-%d", i), map[string]string{"kubelet": data})
		if err != nil {
			return err
		}
		if err := b.Assign(ctx, bed.Ref(cm)); err != nil {
			return err
		}
		if err := settle(ctx, b, string(cm.UID)); err != nil {
			return err
		}
		if i > 0 && i < changes-1 {
			continue
		}
		if err := bed.Pause(ctx, time.Minute); err != nil { // for the runtime to give back what it does not need
			return err
		}
		if i == 0 {
			if first, err = figures.OwnMemory(a.Pid()); err != nil {
				return err
			}
		}
	}
	own, err := figures.OwnMemory(a.Pid())
	if err != nil {
		return err
	}
	rss, _, err := figures.Memory(a.Pid())
	if err != nil {
		return err
	}
	what := fmt.Sprintf("after %d changes: ", changes)
	ratio := float64(own) / float64(first)
	limit := fmt.Sprintf("1.25 x (is %.2f x)", ratio)
	figures.PrintRow(what+"the agent's own memory (RssAnon)", figures.MiB(own), figures.MiB(first), limit, ratio <= 1.25)
	figures.PrintRow(what+"resident memory (VmRSS)", figures.MiB(rss), "-", "25 MiB", rss <= 25<<20)
	return nil
}
