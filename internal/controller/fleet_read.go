// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// takeDue returns the rollouts that are due, by name, and the ConfigMaps that
// any rollout's template names.
func (f *cache) takeDue() (due []*rolloutEntry, sources map[types.NamespacedName]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	sources = map[types.NamespacedName]bool{}
	for _, name := range slices.Sorted(maps.Keys(f.rollouts)) {
		r := f.rollouts[name]
		if ref := r.object.Spec.Template.ConfigMapRef; ref != nil {
			sources[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}] = true
		}

		if !r.dueAt.IsZero() && !now.Before(r.dueAt) {
			r.dueAt = time.Time{}
			due = append(due, r)
		}
	}

	return due, sources
}

// nextDue returns when the next rollout or preflight is due; zero if none is.
func (f *cache) nextDue() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := f.preflights.dueAt
	for _, r := range f.rollouts {
		next = earliest(next, r.dueAt)
	}

	return next
}

// earliest returns the earlier of two times. A zero time does not count.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}

	return a
}

// reschedule makes a rollout due at a time, if that is not zero, and not before
// another. It reports whether the rollout still exists.
func (f *cache) reschedule(r *rolloutEntry, at, notBefore time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.notBefore = notBefore
	exists := f.rollouts[r.name] == r
	if exists && !at.IsZero() {
		f.scheduleAt(r, at)
	}

	return exists
}

// object returns a rollout as it is known now.
func (f *cache) object(r *rolloutEntry) *v1alpha1.NodeConfigRollout {
	f.mu.Lock()
	defer f.mu.Unlock()
	return r.object
}

// setClockOffset compares the clock with the newest time that is recorded for a
// rollout.
func (f *cache) setClockOffset(r *rolloutEntry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.clockOffset = f.offsetOf(r)
}

// offsetOf returns how far the newest time that is recorded for a rollout is
// ahead of the clock.
func (f *cache) offsetOf(r *rolloutEntry) time.Duration {
	newest := fleet.RecordedInStatus(&r.object.Status)
	latest := rollout.Latest(newest, f.now().Add(fleet.MaxAhead))
	for _, entry := range r.nodes {
		n := entry.observed
		fleet.IgnoreLater(&n, latest)
		newest = rollout.Latest(newest, fleet.RecordedOnNode(r.name, &n))
	}

	return max(0, newest.Sub(f.now().Truncate(time.Second)))
}

// timeOf returns the time of a rollout.
func (f *cache) timeOf(r *rolloutEntry) time.Time {
	// The API keeps whole seconds: times are then the same before and after a
	// restart.
	return f.now().Add(r.clockOffset).Truncate(time.Second)
}

// setOutages sets the outages that concern a rollout, and why it cannot be
// written.
func (f *cache) setOutages(r *rolloutEntry, in *rollout.Input) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case r.failures >= lastingFailures && r.reportedError != "":
		in.Unwritten = r.reportedError
	case r.uncreated != nil:
		in.Unwritten = r.uncreated.Error()
	}

	all := slices.Concat(f.outages, r.unwritten)
	slices.SortFunc(all, func(a, b rollout.Outage) int { return a.To.Compare(b.To) })
	for _, o := range all {
		in.Outages = in.Outages.Add(rollout.Outage{From: o.From.Add(r.clockOffset), To: o.To.Add(r.clockOffset)})
	}
}

// planNodes appends the nodes of a rollout as rollout.Plan takes them, by name.
// It returns false if the rollout's spec is no longer of this generation.
func (f *cache) planNodes(r *rolloutEntry, generation int64, nodes []rollout.Node) ([]rollout.Node, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.object.Generation != generation {
		return nodes, false
	}

	for _, name := range slices.Sorted(maps.Keys(r.nodes)) {
		n := f.onClockOf(r, r.nodes[name])
		r.selection.Place(&n, r.nodes[name].node, r.nodes[name].holder)
		nodes = append(nodes, n)
	}

	return nodes, true
}

// onClockOf returns what is observed about a node, with the times of a rollout.
// The caller holds mu.
func (f *cache) onClockOf(r *rolloutEntry, entry *nodeEntry) rollout.Node {
	n := entry.observed
	fleet.IgnoreLater(&n, f.now().Add(r.clockOffset+fleet.MaxAhead))
	for _, t := range []*time.Time{&n.WentNotReady, &n.MaintenanceSince, &n.SettledAt} {
		if !t.IsZero() {
			*t = t.Add(r.clockOffset)
		}
	}

	if report := n.DrainReport; report != nil && r.clockOffset != 0 {
		moved := *report
		moved.Time = moved.Time.Add(r.clockOffset)
		n.DrainReport = &moved
	}

	return n
}

// otherControlPlanes returns the control planes that a rollout does not select,
// by name, if it selects any.
func (f *cache) otherControlPlanes(r *rolloutEntry) (others []rollout.Node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.hasControlPlane(r) {
		return nil
	}

	for _, name := range slices.Sorted(maps.Keys(f.planes)) {
		if r.nodes[name] == nil {
			others = append(others, f.onClockOf(r, f.planes[name]))
		}
	}

	return others
}

// hasControlPlane reports whether a rollout selects a control plane. The caller
// holds mu.
func (f *cache) hasControlPlane(r *rolloutEntry) bool {
	for name := range f.planes {
		if r.nodes[name] != nil {
			return true
		}
	}

	return false
}

// revision returns the ConfigMap of a revision; nil if there is none.
func (f *cache) revision(owner, name string) *corev1.ConfigMap {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.revisions[owner][name]
}

// objectsOf returns the objects that the plan of a rollout depends on, besides
// nodes.
func (f *cache) objectsOf(o *v1alpha1.NodeConfigRollout) fleet.Objects {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := fleet.Objects{Rollout: o, Revisions: maps.Clone(f.revisions[o.Name])}
	for owner, revisions := range f.revisions {
		for name, cm := range revisions {
			if owner != o.Name && fleet.MarkedStopped(cm) {
				all.StoppedElsewhere = append(all.StoppedElsewhere, name)
			}
		}
	}

	slices.Sort(all.StoppedElsewhere)
	for _, n := range f.nodes {
		if by := n.observed.Source.By(); by.Name == o.Name {
			all.Assigned = append(all.Assigned, by.Revision)
		}
	}

	return all
}

// pair returns a Node and its NodeConfig as they are known.
func (f *cache) pair(name string) (p fleet.Pair) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.nodes[name]; n != nil {
		p.Node, p.Config = n.node, n.config
	}

	return p
}

// uncertainWrite is a write to a NodeConfig whose outcome is unknown.
type uncertainWrite struct {
	node       string
	until      time.Time
	generation int64 // of the NodeConfig before the write
}

// uncertainWrites returns those to nodes of a rollout, and to all control
// planes if it selects one.
func (f *cache) uncertainWrites(r *rolloutEntry) []uncertainWrite {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []uncertainWrite
	nodes := r.nodes
	if f.hasControlPlane(r) {
		nodes = maps.Clone(nodes)
		maps.Copy(nodes, f.planes)
	}

	for name, n := range nodes {
		if n.uncertainUntil.IsZero() {
			continue
		}

		w := uncertainWrite{node: name, until: n.uncertainUntil}
		if n.config != nil {
			w.generation = n.config.Generation
		}

		all = append(all, w)
	}

	return all
}

// nodesWithoutConfig returns the nodes that a rollout has and that lack a
// NodeConfig.
func (f *cache) nodesWithoutConfig(r *rolloutEntry) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for name, n := range r.nodes {
		if n.config == nil && n.holder == r.name {
			names = append(names, name)
		}
	}

	slices.Sort(names)

	return names
}

// takeDeleted returns the rollouts that were deleted since the last call, and
// what the nodes run that they assigned, by count; empty if there are none.
func (f *cache) takeDeleted() (deleted []*v1alpha1.NodeConfigRollout, run []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	deleted, f.deleted = f.deleted, nil
	for _, o := range deleted {
		var nodes []*rollout.Node
		for _, n := range f.nodes {
			if n.observed.Source.By().Name == o.Name {
				nodes = append(nodes, &n.observed)
			}
		}

		run = append(run, (&rollout.Input{Claim: rollout.Claim{Name: o.Name}}).RunWords(nodes))
	}

	return deleted, run
}

// orphans returns the NodeConfigs without a Node that may be deleted.
func (f *cache) orphans(now time.Time) []*v1alpha1.NodeConfig {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*v1alpha1.NodeConfig
	for _, n := range f.nodes {
		if n.node != nil || now.Sub(n.config.CreationTimestamp.Time) <= orphanAge {
			continue
		}
		if s := n.config.Spec.ConfigSource; s == nil || s.RolloutRef != nil { // no person wrote it
			all = append(all, n.config)
		}
	}

	return all
}

// orphanedDrains returns the nodes whose taint of a drain no rollout removes:
// the rollout does not exist any more, or does not select the node.
func (f *cache) orphanedDrains() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for name, n := range f.nodes {
		if n.node == nil || n.observed.Drain.Rollout == "" {
			continue
		}

		if !slices.ContainsFunc(n.claims, func(c rollout.Claim) bool {
			return fleet.DrainID(f.rollouts[c.Name].object.UID) == n.observed.Drain.Rollout
		}) {
			names = append(names, name)
		}
	}

	slices.Sort(names)

	return names
}

// known returns the objects of a kind that is watched.
func (f *cache) known(kind string) []client.Object {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []client.Object
	switch kind {
	case kindNodes:
		for _, n := range f.nodes {
			if n.node != nil {
				all = append(all, n.node)
			}
		}
	case kindConfigs:
		for _, n := range f.nodes {
			if n.config != nil {
				all = append(all, n.config)
			}
		}
	case kindRollouts:
		for _, r := range f.rollouts {
			all = append(all, r.object)
		}
	case kindPreflights:
		for _, o := range f.preflights.objects {
			all = append(all, o)
		}
	case kindRevisions:
		for _, owned := range f.revisions {
			for _, cm := range owned {
				all = append(all, cm)
			}
		}
	}

	return all
}

// countNodes counts nodes by their ConfigOK, and the rollouts that are due: how
// many, and for how many seconds the first one has been.
func (f *cache) countNodes() (counts map[configOK]int, due int, overdue float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts = map[configOK]int{}
	for _, n := range f.nodes {
		if n.node != nil {
			counts[configOKOf(n.config)]++
		}
	}

	now := f.now()
	for _, r := range f.rollouts {
		if !r.dueAt.IsZero() && !now.Before(r.dueAt) {
			due++
			overdue = max(overdue, now.Sub(r.dueAt).Seconds())
		}
	}

	return counts, due, overdue
}

// situation returns what a summary of the cluster depends on.
func (f *cache) situation() describe.Situation {
	f.mu.Lock()
	defer f.mu.Unlock()
	var s describe.Situation
	now := f.now()
	for _, name := range slices.Sorted(maps.Keys(f.rollouts)) {
		if o := f.rollouts[name].object; o != nil {
			s.Rollouts = append(s.Rollouts, *o)
		}
	}

	failed := describe.FailedIn(s.Rollouts)
	for _, n := range f.nodes {
		pair := fleet.Pair{Node: n.node, Config: n.config}
		s.Add(pair, describe.StandingOf(pair, failed(pair), f.agent, now), f.maintenance, now)
	}

	return s
}

// unusedRevisions returns the revisions that neither a node nor a rollout
// names, beyond the newest that a rollout keeps. The newest are found by
// creation time, which cannot be forged.
func (f *cache) unusedRevisions() []*corev1.ConfigMap {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*corev1.ConfigMap
	inUse := f.revisionsInUse()
	for _, owner := range slices.Sorted(maps.Keys(f.revisions)) {
		keep := 0
		used := maps.Clone(inUse)
		pinned := ""
		if r := f.rollouts[owner]; r != nil {
			if r.decided == nil || r.object.Status.UpdateRevision == nil {
				continue // one of them may become the target
			}

			keep, pinned = fleet.HistoryLimit(&r.object.Spec), fleet.PinnedName(r.object)
			for _, x := range []*v1alpha1.RolloutRevision{r.object.Status.UpdateRevision, r.object.Status.CurrentRevision} {
				if x != nil {
					used[x.ConfigMapRef.UID] = true
				}
			}

			for _, x := range fleet.RecordedIn(&r.object.Status) {
				if ref := &x.ConfigMapRef; !used[ref.UID] && fleet.Holds(f.revisions[owner][ref.Name], ref) {
					used[ref.UID] = true
					keep--
				}
			}
		}

		unused := slices.DeleteFunc(slices.Collect(maps.Values(f.revisions[owner])), func(cm *corev1.ConfigMap) bool {
			return used[cm.UID] || cm.Name == pinned || !fleet.IsRevision(cm)
		})
		slices.SortFunc(unused, func(a, b *corev1.ConfigMap) int {
			return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(fleet.NumberOf(b), fleet.NumberOf(a)))
		})
		out = append(out, unused[min(len(unused), max(0, keep)):]...)
	}

	return out
}

// revisionsInUse returns the UIDs of the ConfigMaps that NodeConfigs name.
func (f *cache) revisionsInUse() map[types.UID]bool {
	out := map[types.UID]bool{}
	for _, n := range f.nodes {
		if n.config == nil {
			continue
		}

		s, st := n.config.Spec.ConfigSource, &n.config.Status
		out[s.Content().UID] = true
		if p := s.By().Previous; p != nil {
			out[p.ConfigMapRef.UID] = true
		}
		if st.LastKnownGood != nil {
			out[st.LastKnownGood.UID] = true
		}

		for _, r := range []*v1alpha1.ConfigRevision{st.Assigned, st.Active} {
			if r != nil {
				out[r.UID] = true
			}
		}
	}

	return out
}
