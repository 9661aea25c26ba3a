package main

import (
	"context"
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/figures"
)

// rejections measures the time to a verdict, and checks that the kubelet keeps running.
func rejections(ctx context.Context, b *bed.Bed, runs int) error {
	a, err := b.Agent("--config-trial-duration=1h")
	if err != nil {
		return err
	}
	if err := start(ctx, b, a); err != nil {
		return err
	}
	defer func() { _ = a.Stop(time.Minute) }()
	p := feelPulse(ctx, b.Node.HealthzPort())
	defer p.end()
	for _, kind := range []struct {
		name  string
		field string
		value func(i int) any
		limit time.Duration
	}{
		{"rejected at stage 1 (unknown field)", "maxPodz", func(i int) any { return i }, time.Second},
		{"rejected at stage 2 (a bad eviction threshold)", "evictionHard", func(i int) any { return map[string]any{"memory.available": fmt.Sprint("banana", i)} }, 2 * time.Second},
	} {
		var took []time.Duration
		for i := range runs + 1 {
			data, err := b.Config(map[string]any{kind.field: kind.value(i)})
			if err != nil {
				return err
			}
			cm, err := b.Create(ctx, fmt.Sprintf("bad-%d-%d", kind.limit/time.Second, i), map[string]string{"kubelet": data})
			if err != nil {
				return err
			}
			begin := time.Now()
			if err := b.Assign(ctx, bed.Ref(cm)); err != nil {
				return err
			}
			if err := bed.Eventually(ctx, time.Minute, func(ctx context.Context) error {
				nc, err := b.Get(ctx)
				if err != nil {
					return err
				}
				if c := bed.ConfigOK(nc); c.Reason != "ValidationFailed" || nc.Status.ObservedGeneration != nc.Generation {
					return fmt.Errorf("ConfigOK is %+v", c)
				}
				return nil
			}); err != nil {
				return err
			}
			if i > 0 {
				took = append(took, time.Since(begin))
			}
		}
		m := figures.Median(took)
		figures.PrintRow(kind.name+": patch to verdict", ms(m), "-", ms(kind.limit), m <= kind.limit)
	}
	if err := b.Assign(ctx, nil); err != nil {
		return err
	}
	failures := p.failed()
	figures.PrintRow("rejected: failures of the kubelet's healthz", fmt.Sprint(failures), "0", "0", failures == 0)
	return nil
}
