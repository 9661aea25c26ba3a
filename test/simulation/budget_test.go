// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// renewed reports whether a leader repeated the assignment of an earlier one,
// whatever has become of the budget since.
func renewed(was, is *nodeConfig) bool {
	a, b := was.Spec.ConfigSource, is.Spec.ConfigSource
	return a != nil && b != nil && a.RolloutRef != nil && b.RolloutRef != nil && payloadOf(was) == payloadOf(is) && a.RolloutRef.Name == b.RolloutRef.Name &&
		a.RolloutRef.Attempt == b.RolloutRef.Attempt
}

// payloadOf returns the digest of the payload that a node is assigned.
func payloadOf(nc *nodeConfig) string {
	if s := nc.Spec.ConfigSource; s != nil && s.ConfigMapRef != nil {
		return s.ConfigMapRef.SHA256
	}

	return ""
}

// proven reports whether a node has the assigned configuration as
// last-known-good.
func proven(nc *v1alpha1.NodeConfig) bool {
	s, good := nc.Spec.ConfigSource, nc.Status.LastKnownGood
	return s != nil && s.ConfigMapRef != nil && good != nil && good.UID == s.ConfigMapRef.UID && nc.Status.ObservedGeneration == nc.Generation &&
		meta.IsStatusConditionTrue(nc.Status.Conditions, v1alpha1.ConditionConfigOK)
}

// runsProven reports whether a node says that it runs the assigned payload and
// has passed the trial. It may have a problem with the assignment, which costs
// no restart then.
func runsProven(nc *v1alpha1.NodeConfig) bool {
	sum, st := payloadOf(&nodeConfig{NodeConfig: nc}), &nc.Status
	return sum != "" && st.Trial == nil && st.Active != nil && st.Active.SHA256 == sum && st.LastKnownGood != nil && st.LastKnownGood.SHA256 == sum
}

// settledDown reports whether a node says that the assigned payload failed
// there, or that it rejects a late assignment: it restarts only for another
// assignment.
func settledDown(nc *v1alpha1.NodeConfig) bool {
	c := meta.FindStatusCondition(nc.Status.Conditions, v1alpha1.ConditionConfigOK)
	return nc.Status.Trial == nil && nc.Status.ObservedGeneration == nc.Generation && c != nil &&
		(c.Status == metav1.ConditionFalse || c.Reason == v1alpha1.ReasonStaleAssignment)
}

// checkBudget checks, when a node was assigned the target of a rollout, how
// many nodes are in flight. was is what it was assigned before. A renewed
// assignment may use a budget of the past. The caller holds mu.
func (w *world) checkBudget(was *nodeConfig, nc *nodeConfig, renewed bool) {
	s := nc.Spec.ConfigSource
	if s == nil || s.RolloutRef == nil || s.ConfigMapRef == nil {
		return
	}

	at, clock := s.RolloutRef.AssignedAt.Time, w.server.Clock()
	w.book.must(!at.After(clock.Add(2*fleet.MaxAhead)),
		"%s is assigned revision %d of rollout %s at %s, and it is %s: a record has moved the rollout's clock",
		nc.Name, s.RolloutRef.Revision, s.RolloutRef.Name, at, clock)
	r := w.checks.rollouts[s.RolloutRef.Name]
	if r == nil || r.Status.UpdateRevision == nil || r.Status.UpdateRevision.Number != s.RolloutRef.Revision || r.Status.UpdateRevision.ConfigMapRef.SHA256 != s.ConfigMapRef.SHA256 {
		return // it goes back, maybe to a revision of an earlier rollout with this name
	}
	if s.RolloutRef.Term < w.checks.terms[string(s.ConfigMapRef.UID)] {
		return // a leader of the past: the agent ignores it
	}

	if r.Status.Halt != nil {
		// A node may return from another rollout to the stopped revision if it
		// runs that anyway.
		late := !r.halted.IsZero() && time.Now().After(r.halted.Add(stopTakes))
		w.book.must(nc.runs || !late || s.RolloutRef.Attempt > r.Status.Halt.Attempt,
			"%s is assigned revision %d of rollout %s, which was stopped %s ago", nc.Name, s.RolloutRef.Revision, r.Name, time.Since(r.halted))
		return
	}

	now := time.Now()
	if nc.runs {
		return // it does not restart
	}

	young := w.checks.nodes[nc.Name].After(r.created)
	if !renewed && !young {
		w.checkWindows(r, nc.Name)
	}
	if young && (was == nil || was.Spec.ConfigSource == nil) {
		return // a new node, which has another budget: maxJoining
	}

	again := was != nil && payloadOf(was) == payloadOf(nc) && !renewed
	members, flying := 0, []string{}
	for _, name := range slices.Sorted(maps.Keys(w.checks.nodes)) {
		first := w.machineNamed(name).zone == "zone-0"
		if r.Name == "all" || first {
			members++
		}
		if r.Name == "all" && first && w.checks.rollouts["zone"] != nil {
			continue // that one has it, or is about to take it
		}

		other := w.checks.configs[name]
		if other == nil || w.machineNamed(name).ownConfigMap || w.checks.nodes[name].After(r.created) {
			continue // it has joined: another budget
		}

		ref := other.Spec.ConfigSource
		if ref == nil || ref.ConfigMapRef == nil || ref.RolloutRef == nil || ref.RolloutRef.Name != r.Name || ref.RolloutRef.Revision != s.RolloutRef.Revision || other.undone.IsZero() || other.runs {
			continue
		}
		if ref.RolloutRef.Term < w.checks.terms[string(ref.ConfigMapRef.UID)] {
			continue // from a leader of the past: the agent does not adopt it
		}
		if again && settledDown(other.NodeConfig) {
			continue // a retry needs no place for nodes that it has not reached yet
		}

		together := other.by == w.checks.configs[nc.Name].by && now.Sub(other.given) < planTakes && len(other.Status.Conditions) > 0
		if name == nc.Name || together || now.Sub(other.undone) > time.Minute {
			flying = append(flying, name)
		}
	}

	if w.checks.drains(nc.Name) {
		members += max(0, w.checks.crowd[nc.Name]-len(w.checks.nodes)) // it has its place since its drain began
	}

	most := 0
	for _, b := range r.budgets {
		if !renewed && !b.until.IsZero() && now.Sub(b.until) > time.Minute {
			continue
		}

		value, err := intstr.GetScaledValueFromIntOrPercent(&b.value, members, false)
		w.direct(err)
		if b.value.Type == intstr.String {
			value = max(1, value)
		}

		most = max(most, value)
	}

	w.book.must(len(flying) <= most, "rollout %s: %d nodes are in flight (%v), %d may be unavailable", r.Name, len(flying), flying, most)
}

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
	must.Get(fmt.Sscanf(w.Schedule, "%d-59/10", &begins)) // windows has made it

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
	w.book.must(slices.ContainsFunc(windows, func(window v1alpha1.MaintenanceWindow) bool {
		return w.checks.drains(node) && window.Finish != v1alpha1.FinishWithin ||
			isOpen(window, now) || isOpen(window, now.Add(-stopTakes)) || isOpen(window, now.Add(clockError))
	}), "rollout %s: %s is assigned revision %d at %s, outside of its windows (%s for %s)", r.Name, node, r.Status.UpdateRevision.Number,
		now.UTC().Format(time.TimeOnly), windows[0].Schedule, windows[0].Duration.Duration)
}
