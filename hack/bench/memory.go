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

// memory measures how much memory the agent holds after many changes, beside what it held after the first one.
func memory(ctx context.Context, b *bed.Bed, changes int) (err error) {
	defer must.Catch(&err)

	a := must.Get(b.Agent("--config-trial-duration=1h"))
	must.OK(start(ctx, b, a))
	defer func() { _ = a.Stop(time.Minute) }()
	var first int64
	for i := range changes {
		data := must.Get(b.Config(map[string]any{"maxPods": 300 + i}))
		cm := must.Get(b.Create(ctx, fmt.Sprintf("memory-%d", i), map[string]string{"kubelet": data}))
		must.OK(b.Assign(ctx, bed.Ref(cm)))
		must.OK(settle(ctx, b, string(cm.UID)))
		if i > 0 && i < changes-1 {
			continue
		}
		if err := bed.Pause(ctx, time.Minute); err != nil { // for the runtime to give back what it does not need
			return err
		}
		if i == 0 {
			first = must.Get(figures.OwnMemory(a.Pid()))
		}
	}
	own := must.Get(figures.OwnMemory(a.Pid()))
	rss, _ := must.Get2(figures.Memory(a.Pid()))
	what := fmt.Sprintf("after %d changes: ", changes)
	ratio := float64(own) / float64(first)
	limit := fmt.Sprintf("1.25 x (is %.2f x)", ratio)
	figures.PrintRow(what+"the agent's own memory (RssAnon)", figures.MiB(own), figures.MiB(first), limit, ratio <= 1.25)
	figures.PrintRow(what+"resident memory (VmRSS)", figures.MiB(rss), "-", "25 MiB", rss <= 25<<20)
	return nil
}
