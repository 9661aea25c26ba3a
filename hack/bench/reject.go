// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/figures"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// rejections measures the time to a verdict, and checks that the kubelet keeps running.
func rejections(ctx context.Context, b *bed.Bed, runs int) (err error) {
	defer must.Catch(&err)

	a := must.Get(b.Agent("--config-trial-duration=1h"))
	must.OK(start(ctx, b, a))
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
			data := must.Get(b.Config(map[string]any{kind.field: kind.value(i)}))
			cm := must.Get(b.Create(ctx, fmt.Sprintf("bad-%d-%d", kind.limit/time.Second, i), map[string]string{"kubelet": data}))
			begin := time.Now()
			must.OK(b.Assign(ctx, bed.Ref(cm)))
			must.OK(bed.Eventually(ctx, time.Minute, func(ctx context.Context) (err error) {
				defer must.Catch(&err)

				nc := must.Get(b.Get(ctx))
				if c := bed.ConfigOK(nc); c.Reason != "ValidationFailed" || nc.Status.ObservedGeneration != nc.Generation {
					return fmt.Errorf("ConfigOK is %+v", c)
				}
				return nil
			}))
			if i > 0 {
				took = append(took, time.Since(begin))
			}
		}
		m := figures.Median(took)
		figures.PrintRow(kind.name+": patch to verdict", ms(m), "-", ms(kind.limit), m <= kind.limit)
	}
	must.OK(b.Assign(ctx, nil))
	failures := p.failed()
	figures.PrintRow("rejected: failures of the kubelet's healthz", fmt.Sprint(failures), "0", "0", failures == 0)
	return nil
}
