// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/simapi"
)

// outageKind is how the API server fails for all clients.
type outageKind int32

// The kinds of outages.
const (
	outageNone    outageKind = iota
	outageRefused            // connections are refused
	outageErrors             // 500
	outageBusy               // 429
	outageSilent             // no answer
)

// fate decides what happens to a request.
func (w *world) fate(r *http.Request, name string, serial, n int) simapi.Fate {
	d := dice(w.plan.seed, "fate", name, serial, r.Method, r.URL.Path, n)
	slow := max(w.plan.slow, 2*time.Millisecond)
	f := simapi.Fate{Before: between(d, time.Millisecond, slow), After: between(d, time.Millisecond, slow)}
	switch outageKind(w.trouble.Load()) {
	case outageRefused:
		f.Refused = true
	case outageErrors:
		f.Code = http.StatusInternalServerError
	case outageBusy:
		if chance(d, 0.9) {
			f.Code, f.RetryAfter = http.StatusTooManyRequests, time.Duration(d.IntN(3))*time.Second
		}
	case outageSilent:
		f.LostBefore = true
	}

	if r.URL.Query().Get("watch") == "true" && chance(d, 0.3+w.plan.errors) && !w.plan.without.errors {
		f.Ends = between(d, 100*time.Millisecond, 20*time.Minute)
		f.Gone = chance(d, 0.5)
	}
	if r.Method == http.MethodGet && chance(d, w.plan.stale) && !w.calm() {
		f.Stale = between(d, 100*time.Millisecond, 20*time.Second)
	}
	if !chance(d, w.plan.errors) || w.calm() {
		return f
	}

	switch d.IntN(9) {
	case 0:
		f.Code = http.StatusInternalServerError
	case 1:
		f.Code, f.RetryAfter = http.StatusTooManyRequests, time.Second
	case 2:
		f.Refused = true
	case 3:
		f.LostBefore, f.Reset = true, chance(d, 0.5)
		if strings.HasSuffix(r.URL.Path, "/status") && chance(d, 0.5) { // of an agent; late writes of controllers come from frozen ones
			f.LostBefore, f.Delayed = false, between(d, time.Second, time.Minute)
		}
	case 4, 5:
		f.LostAfter, f.Reset = true, chance(d, 0.5)
	case 6:
		f.Before = between(d, time.Second, 20*time.Second)
	case 7:
		f.After = between(d, time.Second, 20*time.Second)
	case 8:
		if r.Method == http.MethodPut || r.Method == http.MethodPatch {
			f.Code = http.StatusConflict
		}
	}

	return f
}

// lag returns the delay of an event of a watch.
func (w *world) lag(name string, serial int, n int64) time.Duration {
	d := dice(w.plan.seed, "lag", name, serial, n)
	lag := between(d, time.Millisecond, max(w.plan.slow, 2*time.Millisecond))
	if chance(d, w.plan.errors) && !w.calm() {
		lag = between(d, time.Second, 30*time.Second)
	}

	return lag
}

// calm reports whether the active part of the history is over.
func (w *world) calm() bool { return !time.Now().Before(w.began.Add(w.plan.active)) }

// text returns plain data as JSON.
func text(v any) string { return string(must.Get(json.Marshal(v))) }

var (
	errDead = errors.New("the process has ended")
	errCut  = errors.New("the connection is dead")
)

// locked returns what read returns while a mutex is locked.
func locked[T any](mu *sync.Mutex, read func() T) T {
	mu.Lock()
	defer mu.Unlock()
	return read()
}

// with does something while a mutex is locked.
func with(mu *sync.Mutex, do func()) {
	mu.Lock()
	defer mu.Unlock()
	do()
}

// gate is the way of a process to the network. It can be closed, as in a
// partition, and for ever, when the process ends.
type gate struct {
	mu     sync.Mutex
	closed chan struct{} // nil: open; closed when it opens
	dead   bool
}

// pass waits until the gate is open. It returns an error if ctx ends before,
// the connection has been dead for long, or the process has ended.
func (g *gate) pass(ctx context.Context) error {
	for {
		g.mu.Lock()
		closed, dead := g.closed, g.dead
		g.mu.Unlock()
		if dead {
			return errDead
		}
		if closed == nil {
			return ctx.Err()
		}

		timer := time.NewTimer(simapi.HealthCheck)
		select {
		case <-closed:
			timer.Stop()
		case <-timer.C:
			return errCut
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case open && g.closed != nil:
		close(g.closed)
		g.closed = nil
	case !open && g.closed == nil:
		g.closed = make(chan struct{})
	}
}

// kill closes the gate for ever.
func (g *gate) kill() {
	with(&g.mu, func() { g.dead = true })
	g.set(true)
}

func (g *gate) isClosed() bool { return locked(&g.mu, func() bool { return g.closed != nil }) }

func (g *gate) isDead() bool { return locked(&g.mu, func() bool { return g.dead }) }
