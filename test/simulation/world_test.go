// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

//go:debug randseednop=0

package simulation

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
	"github.com/evenkeel/evenkeel/testkit/figures"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/simapi"
)

// world is everything in one history.
type world struct {
	plan   *plan
	server *simapi.Server
	book   *book
	log    io.Writer // of the processes; nil: none
	began  time.Time

	ctx       context.Context // of the processes
	end       context.CancelFunc
	processes sync.WaitGroup
	over      chan struct{} // closed after a failure

	machines []*machine
	replicas []*replica
	trouble  atomic.Int32 // an outageKind
	checks   checks
}

// kinds are what the server stores. They are read once, outside of any history.
var kinds = sync.OnceValue(simapi.KindsWithDefaults)

// outcome is the result of a history.
type outcome struct {
	failures []string
	trace    string
	stats    stats
}

// longestPlay is how much processor time a history may take. It takes a second,
// and some more with 50 nodes.
const longestPlay = 5 * time.Minute

// limitPlay panics if this process uses more than longestPlay, until stop is
// called: code that repeats something without end keeps the virtual time from
// passing. Real time says nothing on a busy machine.
func limitPlay(p *plan) (stop func()) {
	used := func() time.Duration { return must.Get(figures.CPUTime(os.Getpid())) }
	began, over := used(), make(chan struct{})
	go func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(time.Second):
			}

			if used()-began > longestPlay {
				panic(fmt.Sprintf("%s: it has not ended after %s of processor time", p, longestPlay))
			}
		}
	}()

	return func() { close(over) }
}

// play runs a history.
func play(t *testing.T, p *plan, verbose bool) (o outcome) {
	kinds()
	seedLibraries(p.seed)
	defer limitPlay(p)()
	synctest.Test(t, func(*testing.T) {
		w := newWorld(p, verbose)
		w.run()
		o = outcome{failures: w.book.failed(), stats: w.checks.stats}
		if verbose || len(o.failures) > 0 {
			o.trace = w.book.text()
		}
	})

	return o
}

func newWorld(p *plan, verbose bool) *world {
	keep := 400
	if verbose {
		keep = 0 // all
	}

	w := &world{
		plan: p, book: &book{began: time.Now(), keep: keep}, began: time.Now(), over: make(chan struct{}),
		server: simapi.New(kinds()...),
	}
	if verbose && os.Getenv("SIMULATION_LOG") != "" {
		w.log = os.Stderr
	}

	w.book.stop = sync.OnceFunc(func() { close(w.over) })
	w.ctx, w.end = context.WithCancel(context.Background())
	skew := between(dice(p.seed, "clock"), -2*time.Hour, 2*time.Hour)
	w.server.Clock = func() time.Time { return time.Now().Add(skew) }
	w.server.OnChange = w.observe
	w.server.OnRead = func(resource, name string) {
		if m := w.machineNamed(name); resource == "leases" && m != nil {
			m.renewLease()
		}
	}
	w.checks.init()
	for i := range p.nodes {
		r := dice(p.seed, "machine", i)
		m := &machine{w: w, name: fmt.Sprintf("node-%d", i), zone: fmt.Sprintf("zone-%d", i%3), gate: &gate{}, disk: newDisk(), kubelets: "v1.36.3"}
		m.ownConfigMap = i == p.own
		if chance(r, 0.2) {
			m.skew = between(r, -48*time.Hour, 48*time.Hour)
		}

		w.machines = append(w.machines, m)
	}

	for _, name := range []string{"controller-a", "controller-b"}[:p.replicas] {
		w.replicas = append(w.replicas, &replica{w: w, name: name, gate: &gate{}})
	}

	return w
}

// newDisk returns a disk with the directories that an installation creates.
func newDisk() *crashfs.FS {
	d := crashfs.New()
	d.PlantDir("/var", 0o755)
	d.PlantDir("/var/lib", 0o755)
	return d
}

// get returns an object, and whether there is one.
func get[T any](w *world, resource, namespace, name string) (o T, is bool) {
	is = w.server.Get(resource, namespace, name, &o)
	return o, is
}

// has reports whether there is an object.
func (w *world) has(resource, namespace, name string) bool {
	_, is := get[map[string]any](w, resource, namespace, name)
	return is
}

// all returns the rollout that every history has.
func (w *world) all() v1alpha1.NodeConfigRollout {
	r, _ := get[v1alpha1.NodeConfigRollout](w, "nodeconfigrollouts", "", "all")
	return r
}

func (w *world) machineNamed(name string) *machine {
	if i := slices.IndexFunc(w.machines, func(m *machine) bool { return m.name == name }); i >= 0 {
		return w.machines[i]
	}

	return nil
}

// direct fails the history if something that must work in every simulation does
// not.
func (w *world) direct(err error) {
	w.book.must(err == nil, "the simulation is wrong: %v", err)
}

// run runs the history, until its end or the first violation.
func (w *world) run() {
	for i, m := range w.machines {
		if i < w.plan.first {
			time.AfterFunc(between(dice(w.plan.seed, "on", i), 0, 5*time.Second), m.switchOn)
		}
	}

	for i, r := range w.replicas {
		time.AfterFunc(between(dice(w.plan.seed, "on", r.name, i), 0, 3*time.Second), r.start)
	}

	for _, a := range w.plan.actions {
		time.AfterFunc(a.at, func() { w.act(a) })
	}

	w.watchHistory()
	w.book.close()
	for _, m := range w.machines {
		m.mu.Lock()
		if m.exists {
			w.checks.tally(func(s *stats) { s.NodeTime += time.Since(m.onSince) })
		}

		m.mu.Unlock()
	}

	w.end()
	for _, m := range w.machines {
		m.gate.set(true)
	}

	for _, r := range w.replicas {
		r.gate.set(true)
		r.kill(0)
	}

	w.processes.Wait()
	time.Sleep(time.Hour) // timers end
}
