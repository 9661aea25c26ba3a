// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

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
