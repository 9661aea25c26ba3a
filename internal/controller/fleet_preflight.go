// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// preflightQueue is the NodeConfigPreflights that the controller knows. fleet.mu guards it.
type preflightQueue struct {
	objects map[string]*v1alpha1.NodeConfigPreflight
	dueAt   time.Time // of the next step; zero: none is due
}

// schedulePreflights makes the next step of the preflights due at a time. The caller holds mu.
func (f *cache) schedulePreflights(at time.Time) {
	if q := &f.preflights; len(q.objects) > 0 && (q.dueAt.IsZero() || at.Before(q.dueAt)) {
		q.dueAt = at
		signal(f.changed)
	}
}

// setPreflight adds a NodeConfigPreflight unless a newer version is known.
func (f *cache) setPreflight(o *v1alpha1.NodeConfigPreflight) {
	o.ManagedFields = nil
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.preflights.objects[o.Name]
	if was != nil && was.UID == o.UID && fleet.Older(o.ResourceVersion, was.ResourceVersion) {
		return
	}
	f.preflights.objects[o.Name] = o
	f.schedulePreflights(f.now().Add(f.tick))
}

// deletePreflight removes the NodeConfigPreflight with the same UID.
func (f *cache) deletePreflight(o *v1alpha1.NodeConfigPreflight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if was := f.preflights.objects[o.Name]; was == nil || was.UID != o.UID {
		return
	}
	delete(f.preflights.objects, o.Name)
	f.schedulePreflights(f.now().Add(f.tick))
}

// reschedulePreflights makes the next step of the preflights due at a time, if that is not zero.
func (f *cache) reschedulePreflights(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !at.IsZero() {
		f.schedulePreflights(at)
	}
}

// takePreflights returns the NodeConfigPreflights if their next step is due, oldest first.
func (f *cache) takePreflights() []*v1alpha1.NodeConfigPreflight {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at := f.preflights.dueAt; at.IsZero() || f.now().Before(at) {
		return nil
	}
	f.preflights.dueAt = time.Time{}
	return slices.SortedFunc(maps.Values(f.preflights.objects), func(a, b *v1alpha1.NodeConfigPreflight) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// selected appends the nodes that a selector matches, by name, without the fields that depend on a rollout.
func (f *cache) selected(selector labels.Selector, nodes []rollout.Node) []rollout.Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(f.nodes)) {
		if n := f.nodes[name]; n.node != nil && selector.Matches(labels.Set(n.node.Labels)) {
			nodes = append(nodes, n.observed)
		}
	}
	return nodes
}

// unanswered counts the preflight requests in the fleet that agents still have to answer, except those with this prefix.
func (f *cache) unanswered(except string, timeout time.Duration) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	count, now := 0, f.now()
	for _, n := range f.nodes {
		if n.observed.PreflightWaits(now, timeout) && !strings.HasPrefix(n.observed.Preflight.Asked, except) {
			count++
		}
	}
	return count
}

// askingRollouts returns the UIDs of the requests of rollouts whose preflight is not over: their answers must not be
// replaced. A paused rollout asks again later.
func (f *cache) askingRollouts() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]bool{}
	for _, r := range f.rollouts {
		if st := &r.object.Status; st.Preflight != nil && st.Preflight.EndTime == nil && st.Phase == v1alpha1.RolloutWaiting {
			out[rollout.PreflightUID(r.object.UID, st.Target(), st.Attempt)] = true
		}
	}
	return out
}

// times returns the time on the fleet's clock in whole seconds, as the API keeps it, and the outages.
func (f *cache) times() (time.Time, rollout.Outages) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now().Truncate(time.Second), slices.Clone(f.outages)
}

// recordedBy returns a time that is not before any that was recorded in a preflight's status.
func recordedBy(st *v1alpha1.NodeConfigPreflightStatus, now time.Time) time.Time {
	if r := st.Result; r != nil {
		now = fleet.Latest(now, r.StartTime.Time)
	}
	return fleet.Latest(now, rollout.TimeOf(st.Ended()))
}
