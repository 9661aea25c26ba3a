// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/figures"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// idling measures the agent's size after it was idle for a while.
func idling(ctx context.Context, b *bed.Bed, idle time.Duration) {
	var requests atomic.Int64
	proxy := must.Get(b.Proxy(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") == "" {
				requests.Add(1)
			}

			next.ServeHTTP(w, r)
		})
	}))
	defer proxy.Close()
	a := must.Get(b.Agent("--config-trial-duration=1s", "--kubeconfig="+proxy.Kubeconfig))
	start(ctx, b, a)
	defer func() { _ = a.Stop(time.Minute) }()
	data := must.Get(b.Config(map[string]any{"maxPods": 150}))
	cm := must.Get(b.Create(ctx, "idle", map[string]string{"kubelet": data}))
	must.OK(b.Assign(ctx, bed.Ref(cm)))
	bed.Await(ctx, time.Minute, func(ctx context.Context) {
		good := must.Get(b.Get(ctx)).Status.LastKnownGood
		must.That(good != nil && good.UID == cm.UID, "last-known-good is %+v", good)
	})
	requestsBefore := requests.Load()
	cpuBefore := must.Get(figures.CPUTime(a.Pid()))
	begin := time.Now()
	must.OK(bed.Pause(ctx, idle))
	cpu := must.Get(figures.CPUTime(a.Pid()))
	elapsed := time.Since(begin)
	rss, _ := must.Get2(figures.Memory(a.Pid()))
	share := (cpu - cpuBefore).Seconds() / elapsed.Seconds() * 100
	perMinute := float64(requests.Load()-requestsBefore) / elapsed.Minutes()
	info := must.Get(os.Stat(b.Binary))
	figures.PrintRow("idle: resident memory (VmRSS)", figures.MiB(rss), "-", "25 MiB", rss <= 25<<20)
	figures.PrintRow("idle: share of a core", fmt.Sprintf("%.3f %%", share), "-", "0.2 %", share <= 0.2)
	figures.PrintRow("idle: API requests beside the watches", fmt.Sprintf("%.2f / min", perMinute), "-", "1 / min", perMinute <= 1)
	figures.PrintRow("binary, stripped", fmt.Sprintf("%.1f MB", float64(info.Size())/1e6), "-", "40 MB", info.Size() <= 40e6)
}
