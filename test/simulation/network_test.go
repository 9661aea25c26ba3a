// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

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

	if r.URL.Query().Get("watch") == "true" {
		if chance(d, 0.3+w.plan.errors) && !w.plan.without.errors {
			f.Ends = between(d, 100*time.Millisecond, 20*time.Minute)
			f.Gone = chance(d, 0.5)
		}
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

func text(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // it is plain data
	}

	return string(raw)
}
