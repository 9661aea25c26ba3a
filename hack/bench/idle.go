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
)

// idling measures the agent's size after it was idle for a while.
func idling(ctx context.Context, b *bed.Bed, idle time.Duration) error {
	var requests atomic.Int64
	proxy, err := b.Proxy(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") == "" {
				requests.Add(1)
			}
			next.ServeHTTP(w, r)
		})
	})
	if err != nil {
		return err
	}
	defer proxy.Close()
	a, err := b.Agent("--config-trial-duration=1s", "--kubeconfig="+proxy.Kubeconfig)
	if err != nil {
		return err
	}
	if err := start(ctx, b, a); err != nil {
		return err
	}
	defer func() { _ = a.Stop(time.Minute) }()
	data, err := b.Config(map[string]any{"maxPods": 150})
	if err != nil {
		return err
	}
	cm, err := b.Create(ctx, "idle", map[string]string{"kubelet": data})
	if err != nil {
		return err
	}
	if err := b.Assign(ctx, bed.Ref(cm)); err != nil {
		return err
	}
	if err := bed.Eventually(ctx, time.Minute, func(ctx context.Context) error {
		nc, err := b.Get(ctx)
		if err == nil && (nc.Status.LastKnownGood == nil || nc.Status.LastKnownGood.UID != cm.UID) {
			err = fmt.Errorf("last-known-good is %+v", nc.Status.LastKnownGood)
		}
		return err
	}); err != nil {
		return err
	}
	requestsBefore := requests.Load()
	cpuBefore, err := figures.CPUTime(a.Pid())
	if err != nil {
		return err
	}
	begin := time.Now()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(idle):
	}
	cpu, err := figures.CPUTime(a.Pid())
	if err != nil {
		return err
	}
	elapsed := time.Since(begin)
	rss, _, err := figures.Memory(a.Pid())
	if err != nil {
		return err
	}
	share := (cpu - cpuBefore).Seconds() / elapsed.Seconds() * 100
	perMinute := float64(requests.Load()-requestsBefore) / elapsed.Minutes()
	info, err := os.Stat(b.Binary)
	if err != nil {
		return err
	}
	figures.PrintRow("idle: resident memory (VmRSS)", figures.MiB(rss), "-", "25 MiB", rss <= 25<<20)
	figures.PrintRow("idle: share of a core", fmt.Sprintf("%.3f %%", share), "-", "0.2 %", share <= 0.2)
	figures.PrintRow("idle: API requests beside the watches", fmt.Sprintf("%.2f / min", perMinute), "-", "1 / min", perMinute <= 1)
	figures.PrintRow("binary, stripped", fmt.Sprintf("%.1f MB", float64(info.Size())/1e6), "-", "40 MB", info.Size() <= 40e6)
	return nil
}
