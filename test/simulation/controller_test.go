// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/controller"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/simapi"
)

// replica is a place where one controller runs at a time.
type replica struct {
	w    *world
	name string
	gate *gate // the network of its machine

	mu       sync.Mutex
	thawed   time.Time // when a frozen process last went on
	current  *controllerProcess
	serial   int
	upgrades int
}

// controllerProcess is one run of a controller.
type controllerProcess struct {
	serial int
	way    *way
	cancel context.CancelFunc

	mu   sync.Mutex
	thaw chan struct{} // closed when it goes on; nil: it is not frozen
	trap func()        // called with the next assignment, before it is sent; nil: there is none
}

// frozen makes a frozen process send its requests when it goes on, whatever has
// become of their deadlines.
func (p *controllerProcess) frozen(next func(*http.Request) simapi.Fate) func(*http.Request) simapi.Fate {
	return func(r *http.Request) simapi.Fate {
		if strings.HasSuffix(path.Dir(r.URL.Path), "/events") || strings.HasSuffix(r.URL.Path, "/events") {
			return p.event(next(r))
		}

		p.mu.Lock()
		trap := p.trap
		if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/nodeconfigs/") && trap != nil {
			p.trap = nil
			p.mu.Unlock()
			trap()
			p.mu.Lock()
		}

		thaw := p.thaw
		p.mu.Unlock()
		if thaw != nil {
			<-thaw
		}

		f := next(r)
		f.Late = thaw != nil

		return f
	}
}

// event returns the fate of a request that writes an Event. client-go makes
// some of them while it holds a mutex. Another goroutine that waits for this
// mutex keeps the virtual time from passing, so such a request must not take
// any.
func (p *controllerProcess) event(f simapi.Fate) simapi.Fate {
	f.Instant, f.LostAfter, f.RetryAfter = true, false, 0
	f.Refused = f.Refused || f.LostBefore || p.way.isShut()
	return f
}

// freezeAtAssignment suspends each controller when it assigns something to a
// node next, and then calls do.
func (w *world) freezeAtAssignment(d time.Duration, do func()) {
	once := sync.OnceFunc(do)
	for _, r := range w.replicas {
		r.setTrap(func() {
			w.book.trace("%s: frozen as it writes to a node", r.name)
			r.freeze(d)
			once()
		})
	}
}

// running returns the process that runs; nil: there is none.
func (r *replica) running() *controllerProcess {
	return locked(&r.mu, func() *controllerProcess { return r.current })
}

// setTrap sets what is called with the next assignment of the process that
// runs.
func (r *replica) setTrap(trap func()) {
	if p := r.running(); p != nil {
		with(&p.mu, func() { p.trap = trap })
	}
}

// freeze suspends the process for some time: it neither sends nor receives.
func (r *replica) freeze(d time.Duration) {
	p := r.running()
	if p == nil {
		return
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.thaw != nil {
		return
	}

	thaw := make(chan struct{})
	p.thaw = thaw
	p.way.set(false)
	time.AfterFunc(d, func() {
		with(&p.mu, func() { p.thaw = nil })
		with(&r.mu, func() { r.thawed = time.Now() })
		p.way.set(true)
		close(thaw)
		r.w.book.trace("%s: controller %d goes on", r.name, p.serial)
	})
}

// isFrozen reports whether the process that runs is frozen.
func (r *replica) isFrozen() bool {
	p := r.running()
	return p != nil && locked(&p.mu, func() bool { return p.thaw != nil })
}

// cut closes or opens the network of the replica's machine. Requests of a
// process that went on meanwhile have waited for this.
func (r *replica) cut(open bool) {
	r.mu.Lock()
	if open && r.gate.isClosed() && time.Now().Before(r.thawed.Add(simapi.HealthCheck)) {
		r.thawed = time.Now()
	}

	r.mu.Unlock()
	r.gate.set(open)
}

// writesLate reports whether what a controller writes now may have been decided
// before it was frozen.
func (w *world) writesLate(name string) bool {
	return slices.ContainsFunc(w.replicas, func(r *replica) bool {
		return r.name == name && time.Now().Before(locked(&r.mu, func() time.Time { return r.thawed }).Add(time.Second))
	})
}

// start starts a controller if none runs.
func (r *replica) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.w
	if r.current != nil || w.ctx.Err() != nil {
		return
	}

	r.serial++
	ctx, cancel := context.WithCancel(w.ctx)
	p := &controllerProcess{serial: r.serial, cancel: cancel, way: &way{outer: r.gate}}
	r.current = p
	transport := w.transport(r.name, r.serial, p.way)
	transport.Fate = p.frozen(transport.Fate)
	version := []string{"v0.1.0", "v0.2.0", "v0.3.0"}[r.upgrades%3]
	c, err := controller.New(&rest.Config{
		Host: "http://api.simulated", UserAgent: "evenkeel-controller", Transport: transport,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
	}, controller.Options{
		Version: version, LeaderElection: true, LeaseDuration: w.plan.lease, MetricsAddress: "0", ProbeAddress: "0", Log: w.logger(r.name), Registry: prometheus.NewRegistry(),
		AgentTimeout: fleet.DefaultSettings.AgentTimeout.Duration, NotReadyGrace: fleet.DefaultSettings.NotReadyGrace.Duration,
		Startup: controller.StartupTaint{Key: v1alpha1.TaintUnconfigured, Times: rollout.StartupTimes{Grace: time.Minute, Deadline: 10 * time.Minute}},
	})
	w.direct(err)
	w.book.trace("%s: controller %d starts", r.name, p.serial)
	w.processes.Go(func() {
		err := c.Run(ctx)
		r.ended(p, err)
	})
}

// ended is called when a controller has ended by itself or was stopped. It is
// started again.
func (r *replica) ended(p *controllerProcess, err error) {
	r.mu.Lock()
	current := r.current == p
	if current {
		r.current = nil
	}

	r.mu.Unlock()
	p.way.kill() // a process that has ended sends nothing, not even what it wanted to send when it was frozen
	if !current || r.w.ctx.Err() != nil {
		return
	}

	r.w.book.trace("%s: controller %d ended: %v", r.name, p.serial, err)
	time.AfterFunc(between(dice(r.w.plan.seed, "again", r.name, p.serial), time.Second, 10*time.Second), r.start)
}

// kill ends the controller at this moment, and starts another one later.
func (r *replica) kill(again time.Duration) {
	r.mu.Lock()
	p := r.current
	r.current = nil
	r.mu.Unlock()
	if p == nil {
		return
	}

	p.way.kill()
	p.cancel()
	r.w.book.trace("%s: controller %d is killed", r.name, p.serial)
	r.w.checks.tally(func(s *stats) { s.count(kills, 1) })
	time.AfterFunc(again, r.start)
}

// terminate sends SIGTERM.
func (r *replica) terminate() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != nil {
		r.current.cancel()
	}
}
