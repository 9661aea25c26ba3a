// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/figures"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// pulse polls a kubelet's healthz every few milliseconds, until end.
type pulse struct {
	figures.Pulse
	end func()
}

func feelPulse(ctx context.Context, port int) *pulse {
	ctx, cancel := context.WithCancel(ctx)
	p := &pulse{}
	url := fmt.Sprintf("http://127.0.0.1:%d/healthz", port)
	client := &http.Client{Timeout: time.Second}
	var watch sync.WaitGroup
	watch.Go(func() {
		p.Watch(ctx, 4*time.Millisecond, func(context.Context) error {
			res, err := client.Get(url)
			if err != nil {
				return err
			}

			defer res.Body.Close()
			_, _ = io.Copy(io.Discard, res.Body)
			if res.StatusCode != http.StatusOK {
				return errors.New(res.Status)
			}

			return nil
		})
	})
	p.end = func() {
		cancel()
		watch.Wait()
	}

	return p
}

// next waits until the kubelet was down and up again since a time. It returns
// when the kubelet was up, and the time since its last answer before that.
func (p *pulse) next(ctx context.Context, since time.Time) (up time.Time, down time.Duration) {
	bed.Await(ctx, time.Minute, func(context.Context) {
		all := p.Outages()
		must.That(len(all) > 0, "the kubelet was not stopped")
		last := all[len(all)-1]
		must.That(!last.Seen.Before(since) && !last.To.IsZero(), "the kubelet was not restarted")
		up, down = last.To, last.To.Sub(last.From)
	})
	return up, down
}

// changes measures the time from the patch to a healthy kubelet, and the time
// without one.
func changes(ctx context.Context, b *bed.Bed, runs int) {
	floor := byHand(ctx, b, runs)
	a := must.Get(b.Agent("--config-trial-duration=1h"))
	start(ctx, b, a)
	defer func() { _ = a.Stop(time.Minute) }()
	p := feelPulse(ctx, b.Node.HealthzPort())
	defer p.end()
	var whole, dropin timings
	for i := range runs + 1 { // the first one includes the agent's test of its dry run
		data := must.Get(b.Config(map[string]any{"maxPods": 130 + i}))
		took, down := change(ctx, b, p, fmt.Sprintf("change-%d", i), map[string]string{"kubelet": data})
		whole.add(i, took, down)
		data = fmt.Sprintf("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: %d\n", 230+i)
		took, down = change(ctx, b, p, fmt.Sprintf("dropin-%d", i), map[string]string{"kubelet-dropin": data})
		dropin.add(i, took, down)
	}

	whole.show("change", floor)
	dropin.show("change by a drop-in", floor)
}

// timings are the measurements of one way to change a node.
type timings struct{ totals, downs []time.Duration }

// add adds a change, unless it is the first one.
func (f *timings) add(i int, total, down time.Duration) {
	if i > 0 {
		f.totals, f.downs = append(f.totals, total), append(f.downs, down)
	}
}

func (f *timings) show(what string, floor timings) {
	total, down := figures.Median(f.totals), figures.Median(f.downs)
	floorTotal, floorDown := figures.Median(floor.totals), figures.Median(floor.downs)
	limit := floorTotal + 900*time.Millisecond
	figures.PrintRow(what+": patch to healthy kubelet", ms(total), ms(floorTotal), "floor+0.9 s = "+ms(limit), total <= limit)
	ratio := down.Seconds() / floorDown.Seconds()
	figures.PrintRow(what+": time without a healthy kubelet", ms(down), ms(floorDown), fmt.Sprintf("1.10 x (is %.2f x)", ratio), ratio <= 1.10)
}

// change assigns a new ConfigMap and waits until it runs. It returns the
// duration, and the time without a healthy kubelet.
func change(ctx context.Context, b *bed.Bed, p *pulse, name string, data map[string]string) (took, down time.Duration) {
	cm := must.Get(b.Create(ctx, name, data))
	begin := time.Now()
	must.OK(b.Assign(ctx, bed.Ref(cm)))
	up, down := p.next(ctx, begin)
	settle(ctx, b, string(cm.UID))
	// A pause, because the agent's limit of ten requests per second is not what
	// is measured.
	must.OK(bed.Pause(ctx, time.Second))

	return up.Sub(begin), down
}

// settle waits until the change is reported, so that it does not affect the
// next measurement.
func settle(ctx context.Context, b *bed.Bed, uid string) {
	bed.Await(ctx, time.Minute, func(ctx context.Context) {
		nc := must.Get(b.Get(ctx))
		must.That(nc.Status.Active != nil && string(nc.Status.Active.UID) == uid,
			"active is %+v, ConfigOK %+v", nc.Status.Active, bed.ConfigOK(nc))
	})
}

func start(ctx context.Context, b *bed.Bed, a *bed.Agent) {
	must.OK(a.Start())
	bed.Await(ctx, time.Minute, func(ctx context.Context) {
		must.Get(b.MaxPods(ctx))
		c := bed.ConfigOK(must.Get(b.Get(ctx)))
		must.That(c.Status == "True", "ConfigOK is %+v", c)
		must.OK(b.Healthy(ctx))
	})
}

// byHand measures the floor: the same kubelet, stopped and started with a new
// file.
func byHand(ctx context.Context, b *bed.Bed, runs int) (t timings) {
	p := feelPulse(ctx, b.Node.HealthzPort())
	defer p.end()
	var kubelet *localcluster.Process
	defer func() { _ = kubelet.Stop(time.Minute) }()
	for i := range runs + 1 {
		data := must.Get(b.Config(map[string]any{"maxPods": 130 + i}))
		file := filepath.Join(b.Node.Dir(), fmt.Sprintf("by-hand-%d.yaml", i))
		must.OK(os.WriteFile(file, []byte(data), 0o600))
		begin := time.Now()
		must.OK(kubelet.Stop(time.Minute))
		args := slices.DeleteFunc(b.Node.KubeletArgs(), func(arg string) bool { return strings.HasPrefix(arg, "--config=") })
		kubelet = startKubelet(b, append(args, "--config="+file)...)
		since := begin
		if i == 0 {
			since = time.Time{}
		}

		up, gap := p.next(ctx, since)
		t.add(i, up.Sub(begin), gap)
	}

	return t
}

// startKubelet starts a kubelet without an agent.
func startKubelet(b *bed.Bed, args ...string) *localcluster.Process {
	log := filepath.Join(b.Node.Dir(), "log", "kubelet.log")
	return must.Get(localcluster.StartProcess("kubelet", log, exec.Command(b.Node.KubeletPath(), args...)))
}
