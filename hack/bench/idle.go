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
	begin := time.Now()
	atRest(ctx, idle, agent{"idle", a.Pid()})
	perMinute := float64(requests.Load()-requestsBefore) / time.Since(begin).Minutes()
	info := must.Get(os.Stat(b.Binary))
	figures.PrintRow("idle: API requests beside the watches", fmt.Sprintf("%.2f / min", perMinute), "-", "1 / min", perMinute <= 1)
	figures.PrintRow("binary, stripped", fmt.Sprintf("%.1f MB", float64(info.Size())/1e6), "-", "40 MB", info.Size() <= 40e6)
}

// agent is a process whose size is measured.
type agent struct {
	what string
	pid  int
}

// atRest measures the size of agents that have nothing to do.
func atRest(ctx context.Context, during time.Duration, agents ...agent) {
	var before []time.Duration
	for _, a := range agents {
		before = append(before, must.Get(figures.CPUTime(a.pid)))
	}

	begin := time.Now()
	must.OK(bed.Pause(ctx, during))
	elapsed := time.Since(begin)
	for i, a := range agents {
		cpu := must.Get(figures.CPUTime(a.pid)) - before[i]
		rss, _ := must.Get2(figures.Memory(a.pid))
		share := cpu.Seconds() / elapsed.Seconds() * 100
		figures.PrintRow(a.what+": share of a core", fmt.Sprintf("%.3f %%", share), "-", "0.2 %", share <= 0.2)
		figures.PrintRow(a.what+": resident memory (VmRSS)", figures.MiB(rss), "-", "25 MiB", rss <= 25<<20)
	}
}
