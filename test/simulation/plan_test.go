// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	mathrand "math/rand"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/google/uuid"
)

// plan is a history before it happens. It follows from its seed and from what
// was left out of it.
type plan struct {
	seed   uint64
	nodes  int           // machines
	first  int           // those that are switched on at the beginning
	active time.Duration // until when something is done or goes wrong
	quiet  time.Duration // how long the API must not change after the fleet has converged
	lease  time.Duration // of the controllers
	trial  time.Duration // of all agents; 0: each has its own

	replicas int           // of the controller
	own      int           // the machine whose configuration comes from its own ConfigMap; -1: none
	tainted  bool          // Nodes are created with the startup taint
	errors   float64       // the share of requests that fail
	stale    float64       // the share of lists, also of those with which watches begin, that are old
	slow     time.Duration // the longest delay of a request or event, beside rare ones
	actions  []action
	without  without
}

// without is what was left out to make a history shorter.
type without struct {
	actions []int // by their index
	errors  bool  // all requests succeed and no answer is old, except in outages
	delays  bool  // all requests are quick
	nodes   int   // machines
}

// String returns it as flags of the test.
func (x without) String() string {
	var out []string
	if len(x.actions) > 0 {
		out = append(out, "-without="+strings.Trim(strings.ReplaceAll(fmt.Sprint(x.actions), " ", ","), "[]"))
	}
	if x.errors {
		out = append(out, "-no-errors")
	}
	if x.delays {
		out = append(out, "-no-delays")
	}
	if x.nodes > 0 {
		out = append(out, fmt.Sprintf("-fewer-nodes=%d", x.nodes))
	}

	return strings.Join(out, " ")
}

// action is something that a person, another controller or the world does.
type action struct {
	at    time.Duration
	index int
	name  string
	seed  uint64
	do    func(x *act)
}

func (a action) String() string { return fmt.Sprintf("%d %s", a.index, a.name) }

// act is an action that happens.
type act struct {
	*world
	action
	r *rand.Rand
}

func (w *world) act(a action) {
	w.book.trace("action %s", a)
	w.checks.tally(func(s *stats) { s.count("action-"+strings.ToLower(strings.ReplaceAll(a.name, " ", "-")), 1) })
	a.do(&act{w, a, dice(a.seed, "act")})
}

// planOf returns the history of a seed.
func planOf(seed uint64, x without) *plan {
	r := dice(seed, "plan")
	p := &plan{seed: seed, nodes: pick(r, 1, 1, 2, 2, 2, 3, 3, 4, 5), without: x}
	if r.IntN(100) == 0 {
		p.nodes = 6 + r.IntN(45)
	}

	switch r.IntN(6) { // most are short: many histories find more than long ones
	case 0, 1, 2:
		p.active, p.lease = between(r, 4*time.Minute, 15*time.Minute), pick(r, 15*time.Second, time.Minute, time.Minute, 2*time.Minute, 2*time.Minute, 2*time.Minute)
	case 3, 4:
		p.active, p.lease = between(r, 15*time.Minute, 40*time.Minute), pick(r, time.Minute, 2*time.Minute, 2*time.Minute, 4*time.Minute)
	default:
		p.active, p.lease = between(r, 40*time.Minute, 90*time.Minute), pick(r, 2*time.Minute, 4*time.Minute)
	}

	p.lease += 2 * time.Nanosecond // so that two requests for the Lease that hang do not end at the same instant as the leader's term
	p.own = -1
	if chance(r, 0.1) {
		p.own = r.IntN(p.nodes)
	}

	p.tainted = chance(r, 0.5)
	p.replicas = pick(r, 1, 2, 2)
	p.quiet = pick(r, 3*time.Minute, 3*time.Minute, 3*time.Minute, 25*time.Minute)
	p.errors = pick(r, 0, 0.003, 0.003, 0.02, 0.1)
	p.stale = pick(r, 0, 0, 0.02, 0.2)
	p.slow = pick(r, 20*time.Millisecond, 50*time.Millisecond, time.Second)
	p.first = max(1, p.nodes-r.IntN(3))
	focus := r.IntN(4) // some histories have many faults of a kind, some many changes
	names := slices.Collect(func(yield func(string) bool) {
		for _, k := range workload {
			for range k.weight * map[bool]int{true: 3, false: 1}[k.focus == focus] {
				if !yield(k.name) {
					return
				}
			}
		}
	})
	p.add(2*time.Second+between(r, 0, time.Minute), "create", r.Uint64())
	for range 3 + r.IntN(22) {
		p.add(between(r, 30*time.Second, p.active), pick(r, names...), r.Uint64())
	}

	slices.SortStableFunc(p.actions, func(a, b action) int { return int(a.at - b.at) })
	for i := range p.actions {
		p.actions[i].index = i
	}

	p.actions = slices.DeleteFunc(p.actions, func(a action) bool { return slices.Contains(x.actions, a.index) })
	if x.nodes > 0 {
		p.nodes, p.first = min(p.nodes, x.nodes), min(p.first, x.nodes)
	}
	if x.errors {
		p.errors, p.stale = 0, 0
	}
	if x.delays {
		p.slow = 0
	}

	return p
}

func (p *plan) add(at time.Duration, name string, seed uint64) {
	i := slices.IndexFunc(workload, func(k kindOfAction) bool { return k.name == name })
	p.actions = append(p.actions, action{at: at, name: name, seed: seed, do: workload[i].do})
}

func (p *plan) String() string {
	return fmt.Sprintf("seed %d: %d machines (%d at first), %d controllers, active for %s, lease %s, %.1f%% errors, delays up to %s, %d actions",
		p.seed, p.nodes, p.first, p.replicas, p.active, p.lease, 100*p.errors, p.slow, len(p.actions))
}

// jitter is what all libraries draw the jitter of delays from; the variable
// exists for tests.
//
//go:linkname jitter k8s.io/apimachinery/pkg/util/wait.jitterRand
var jitter func() float64

// seedLibraries makes what libraries draw follow from the seed. A jitter must
// not depend on what others draw: it depends on the time alone, because hardly
// two things happen at the same instant.
func seedLibraries(seed uint64) {
	jitter = func() float64 { return dice(seed, "jitter", time.Now().UnixNano()).Float64() }
	uuid.SetRand(&uuids{seed: seed})
	mathrand.Seed(int64(seed)) //nolint:staticcheck // client-go uses the global source
}

// uuids is where UUIDs come from: the names of controllers in the Lease.
type uuids struct {
	seed uint64
	n    atomic.Int64 // two controllers may start at the same instant
}

// Read implements io.Reader.
func (u *uuids) Read(p []byte) (int, error) {
	r := dice(u.seed, "uuid", time.Now().UnixNano(), u.n.Add(1))
	for i := range p {
		p[i] = byte(r.Uint32())
	}

	return len(p), nil
}

// dice returns random numbers that depend on the seed and the words alone: what
// happens to a request must not depend on the order in which goroutines ask.
func dice(seed uint64, words ...any) *rand.Rand {
	return rand.New(rand.NewPCG(seed, sum(words...)))
}

// sum returns a hash of words.
func sum(words ...any) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	add := func(b byte) { h = (h ^ uint64(b)) * 1099511628211 }
	number := func(n uint64) {
		for ; n > 0; n >>= 8 {
			add(byte(n))
		}
	}
	for _, word := range words {
		switch word := word.(type) {
		case string:
			for i := range len(word) {
				add(word[i])
			}
		case int:
			number(uint64(word))
		case int64:
			number(uint64(word))
		default:
			panic(fmt.Sprintf("no hash of %T", word))
		}

		add(0xff) // ends the word: no text contains it
	}

	return h
}

// between returns a random duration. Its nanoseconds are random too, so that
// hardly two things happen at the same instant.
func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)+1))
}

func chance(r *rand.Rand, p float64) bool { return r.Float64() < p }

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }
