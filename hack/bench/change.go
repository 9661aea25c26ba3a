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
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/figures"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// pulse polls a kubelet's healthz every few milliseconds and stores when it
// failed last.
type pulse struct {
	mu       sync.Mutex
	healthy  bool
	answered time.Time // when it was last healthy
	goneFrom time.Time // when it was last healthy before downAt
	downAt   time.Time
	upAt     time.Time
	failures int
	stop     context.CancelFunc
	done     chan struct{}
}

func feelPulse(ctx context.Context, port int) *pulse {
	ctx, cancel := context.WithCancel(ctx)
	p := &pulse{stop: cancel, done: make(chan struct{})}
	url := fmt.Sprintf("http://127.0.0.1:%d/healthz", port)
	client := &http.Client{Timeout: time.Second}
	go func() {
		defer close(p.done)
		tick := time.NewTicker(4 * time.Millisecond)
		defer tick.Stop()
		for {
			res, err := client.Get(url)
			ok := err == nil && res.StatusCode == http.StatusOK
			if err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}

			p.note(ok, time.Now())
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()

	return p
}

func (p *pulse) note(ok bool, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case ok && !p.healthy:
		p.upAt = now
	case !ok && p.healthy:
		p.goneFrom, p.downAt = p.answered, now
		p.failures++
	}

	if ok {
		p.answered = now
	}

	p.healthy = ok
}

func (p *pulse) end() {
	p.stop()
	<-p.done
}

func (p *pulse) failed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failures
}

// next waits until the kubelet was down and up again since a time. It returns
// when the kubelet was up, and the time since its last answer before that.
func (p *pulse) next(ctx context.Context, since time.Time) (up time.Time, down time.Duration, err error) {
	err = bed.Eventually(ctx, time.Minute, func(context.Context) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.healthy || p.downAt.Before(since) || p.upAt.Before(p.downAt) {
			return errors.New("the kubelet was not restarted")
		}

		up, down = p.upAt, p.upAt.Sub(p.goneFrom)

		return nil
	})
	return up, down, err
}

// changes measures the time from the patch to a healthy kubelet, and the time
// without one.
func changes(ctx context.Context, b *bed.Bed, runs int) (err error) {
	defer must.Catch(&err)

	floor, err := byHand(ctx, b, runs)
	if err != nil {
		return fmt.Errorf("the floor: %w", err)
	}

	a := must.Get(b.Agent("--config-trial-duration=1h"))
	must.OK(start(ctx, b, a))
	defer func() { _ = a.Stop(time.Minute) }()
	p := feelPulse(ctx, b.Node.HealthzPort())
	defer p.end()
	var whole, dropin timings
	for i := range runs + 1 { // the first one includes the agent's test of its dry run
		data := must.Get(b.Config(map[string]any{"maxPods": 130 + i}))
		took, down := must.Get2(change(ctx, b, p, fmt.Sprintf("change-%d", i), map[string]string{"kubelet": data}))
		whole.add(i, took, down)
		data = fmt.Sprintf("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: %d\n", 230+i)
		took, down = must.Get2(change(ctx, b, p, fmt.Sprintf("dropin-%d", i), map[string]string{"kubelet-dropin": data}))
		dropin.add(i, took, down)
	}

	whole.show("change", floor)
	dropin.show("change by a drop-in", floor)

	return nil
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
func change(ctx context.Context, b *bed.Bed, p *pulse, name string, data map[string]string) (took, down time.Duration, err error) {
	defer must.Catch(&err)

	cm := must.Get(b.Create(ctx, name, data))
	begin := time.Now()
	must.OK(b.Assign(ctx, bed.Ref(cm)))
	up, down := must.Get2(p.next(ctx, begin))
	must.OK(settle(ctx, b, string(cm.UID)))

	// A pause, because the agent's limit of ten requests per second is not what
	// is measured.
	return up.Sub(begin), down, bed.Pause(ctx, time.Second)
}

// settle waits until the change is reported, so that it does not affect the
// next measurement.
func settle(ctx context.Context, b *bed.Bed, uid string) error {
	return bed.Eventually(ctx, time.Minute, func(ctx context.Context) (err error) {
		defer must.Catch(&err)

		nc := must.Get(b.Get(ctx))
		if nc.Status.Active == nil || string(nc.Status.Active.UID) != uid {
			return fmt.Errorf("active is %+v, ConfigOK %+v", nc.Status.Active, bed.ConfigOK(nc))
		}

		return nil
	})
}

func start(ctx context.Context, b *bed.Bed, a *bed.Agent) error {
	if err := a.Start(); err != nil {
		return err
	}

	return bed.Eventually(ctx, time.Minute, func(ctx context.Context) (err error) {
		defer must.Catch(&err)

		must.Get(b.MaxPods(ctx))
		nc := must.Get(b.Get(ctx))
		if c := bed.ConfigOK(nc); c.Status != "True" {
			return fmt.Errorf("ConfigOK is %+v", c)
		}

		return b.Healthy(ctx)
	})
}

// byHand measures the floor: the same kubelet, stopped and started with a new
// file.
func byHand(ctx context.Context, b *bed.Bed, runs int) (t timings, err error) {
	defer must.Catch(&err)

	p := feelPulse(ctx, b.Node.HealthzPort())
	defer p.end()
	var kubelet *exec.Cmd
	defer func() {
		if kubelet != nil {
			err = errors.Join(err, terminate(kubelet))
		}
	}()
	for i := range runs + 1 {
		data := must.Get(b.Config(map[string]any{"maxPods": 130 + i}))
		file := filepath.Join(b.Node.Dir(), fmt.Sprintf("by-hand-%d.yaml", i))
		must.OK(os.WriteFile(file, []byte(data), 0o600))
		begin := time.Now()
		if kubelet != nil {
			must.OK(terminate(kubelet))
		}

		args := []string{}
		for _, arg := range b.Node.KubeletArgs() {
			if !strings.HasPrefix(arg, "--config=") {
				args = append(args, arg)
			}
		}

		kubelet = exec.CommandContext(ctx, b.Node.KubeletPath(), append(args, "--config="+file)...)
		must.OK(kubelet.Start())
		since := begin
		if i == 0 {
			since = time.Time{}
		}

		up, gap := must.Get2(p.next(ctx, since))
		t.add(i, up.Sub(begin), gap)
	}

	return t, nil
}

func terminate(cmd *exec.Cmd) error {
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}

	_ = cmd.Wait() // the process has ended, whatever its exit status

	return nil
}
