// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// What else holds a rollout back: maintenance windows, and gates that ask a
// Prometheus server.

// windows returns a window of some minutes in every ten.
func (x *act) windows() []any {
	return []any{map[string]any{
		"schedule": fmt.Sprintf("%d-59/10 * * * *", x.r.IntN(10)), "duration": fmt.Sprintf("%dm", 2+x.r.IntN(5)),
		"finish": pick(x.r, v1alpha1.FinishAnytime, v1alpha1.FinishAnytime, v1alpha1.FinishWithin),
	}}
}

// isOpen reports whether a window is open at a time.
func isOpen(w v1alpha1.MaintenanceWindow, at time.Time) bool {
	var begins int
	if _, err := fmt.Sscanf(w.Schedule, "%d-59/10", &begins); err != nil {
		panic(err) // windows has made it
	}

	// The window that began last may have done so in the hour before: 58-59/10
	// opens in the minute 58 only.
	for ago := range time.Hour / time.Minute {
		opens := at.UTC().Truncate(time.Minute).Add(-ago * time.Minute)
		if minute := opens.Minute(); minute >= begins && (minute-begins)%10 == 0 {
			return at.Sub(opens) < w.Duration.Duration
		}
	}

	return false
}

// clockError is by how much the clock of a controller may be ahead of the API
// server's: it is set with answers that may be delayed.
const clockError = 12 * time.Second

// checkWindows checks that a node is assigned the target of a rollout only
// while a window is open, or that it is drained and need not wait for the next
// one. The caller holds mu.
func (w *world) checkWindows(r *rolloutView, node string) {
	windows := r.Spec.Strategy.Windows
	if len(windows) == 0 || time.Now().Before(r.paced.Add(lookBack)) {
		return
	}

	now := w.server.Clock()
	for _, window := range windows {
		if w.checks.drains(node) && window.Finish != v1alpha1.FinishWithin {
			return
		}
		if isOpen(window, now) || isOpen(window, now.Add(-stopTakes)) || isOpen(window, now.Add(clockError)) {
			return
		}
	}

	w.book.fail("rollout %s: %s is assigned revision %d at %s, outside of its windows (%s for %s)", r.Name, node, r.Status.UpdateRevision.Number, now.UTC().Format(time.TimeOnly),
		windows[0].Schedule, windows[0].Duration.Duration)
}

func (x *act) gates() []any {
	return []any{map[string]any{
		"name": "errors", "prometheus": map[string]any{"server": "metrics", "query": fmt.Sprintf("errors%d", x.r.IntN(5)), "passes": "< 0.5"},
		"interval": pick(x.r, "10s", "30s", "1m"), "every": pick(x.r, v1alpha1.GateEveryStep, v1alpha1.GateAlways),
		"failures": pick(x.r, 1, 1, 3),
	}}
}

// metrics is the Prometheus server as one controller reaches it.
type metrics struct {
	w    *world
	name string
	way  *way

	mu sync.Mutex
	n  int
}

// RoundTrip implements http.RoundTripper.
func (m *metrics) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}

	m.mu.Lock()
	m.n++
	d := dice(m.w.plan.seed, "metrics", m.name, m.n)
	m.mu.Unlock()
	select {
	case <-time.After(between(d, time.Millisecond, time.Second)):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}

	if err := m.way.pass(r.Context()); err != nil {
		return nil, err
	}

	answer := &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, Header: http.Header{"Content-Type": {"application/json"}}}
	text := fmt.Sprintf(`{"status":"success","data":{"resultType":"vector","result":[%s]}}`, m.w.measure(string(body)))
	if chance(d, m.w.plan.errors) && !m.w.calm() {
		answer.StatusCode, answer.Status, text = http.StatusServiceUnavailable, "503 Service Unavailable", "busy"
	}

	answer.Body = io.NopCloser(strings.NewReader(text))

	return answer, nil
}

// measure returns what a query measures now: it changes every few minutes.
func (w *world) measure(query string) string {
	d := dice(w.plan.seed, "measure", query[:strings.IndexByte(query+"&", '&')], int64(time.Since(w.began)/(3*time.Minute)))
	value := "0.1"
	if !w.calm() {
		switch {
		case chance(d, 0.15):
			value = "0.9"
		case chance(d, 0.1):
			return "" // no data
		}
	}

	return fmt.Sprintf(`{"metric":{},"value":[%d,%q]}`, time.Now().Unix(), value)
}
