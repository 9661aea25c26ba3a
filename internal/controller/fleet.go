// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// cache is the controller's memory of nodes, NodeConfigs, rollouts and
// revisions. All its methods may be called concurrently; only this file,
// fleet_read.go, fleet_preflight.go and startup.go lock mu. It keeps the newest
// version of each object, from a watch or from the answer to one of the
// controller's own writes, so that a late watch does not undo a write. Objects
// are stripped when they are added. They are shared and never changed.
type cache struct {
	mu   sync.Mutex
	now  func() time.Time
	tick time.Duration // from the first change to the step, so that many changes cause one step
	self string        // the controller's own node
	// maintenance are further taints and conditions that announce maintenance.
	maintenance []string
	startupKey  string                // of the startup taint; empty: there is none
	startup     map[string]*nodeEntry // nodes with the startup taint
	planes      map[string]*nodeEntry // control planes
	nodes       map[string]*nodeEntry
	rollouts    map[string]*rolloutEntry
	lostAt      time.Time       // since when the watches are not complete; zero: they are
	outages     rollout.Outages // the first ends with the first view
	agent       time.Duration   // how long an agent may take to come back after an outage
	// revisions are the ConfigMaps of revisions, by rollout and name.
	revisions map[string]map[string]*corev1.ConfigMap
	deleted   []*v1alpha1.NodeConfigRollout // not reported yet
	changed   chan struct{}                 // a rollout or a preflight is due

	preflights preflightQueue
}

// nodeEntry is one node: its Node, its NodeConfig, or both.
type nodeEntry struct {
	node     *corev1.Node         // nil: there is none
	config   *v1alpha1.NodeConfig // nil: there is none
	observed rollout.Node         // derived from both
	// wentNotReady is when the Node was last seen to become NotReady; zero:
	// never.
	wentNotReady time.Time
	// maintenanceSince is when maintenance of the node was first seen; zero:
	// there is none.
	maintenanceSince time.Time
	settledAt        time.Time            // when it was last seen to become settled, as a control plane
	drainReport      *rollout.DrainReport // of the last eviction pass of this leader
	draining         bool                 // a pass is running: over the pods to evict, or over the start probe
	probe            *rollout.ProbeReport // of the last pass of this leader over the start probe
	probed           time.Time            // when that pass ended
	claims           []rollout.Claim      // of the rollouts that select the node
	holder           string               // the one among them that has the node
	// startup is what the last plan of the rollout startupOf has for the node,
	// if the node has the startup taint.
	startup   rollout.StartupState
	startupOf string
	// uncertainUntil is until when a write whose outcome is unknown may still
	// take effect; zero: there is none.
	uncertainUntil time.Time
}

// rolloutEntry is one rollout. Fields below "of the loop" are used only by the
// goroutine that runs Controller.loop.
type rolloutEntry struct {
	name      string
	object    *v1alpha1.NodeConfigRollout
	selection fleet.Selection
	nodes     map[string]*nodeEntry // that the rollout selects
	dueAt     time.Time             // of the next step; zero: none is due
	notBefore time.Time             // no step before this time, after a failure
	// clockOffset is how far the newest time recorded for the rollout was ahead
	// of the clock when this leader started. It is added to the clock, so that
	// the rollout's time never goes back.
	clockOffset time.Duration
	// unwritten are the times in which this leader could not write what it had
	// decided.
	unwritten rollout.Outages

	// Of the loop:
	decided          *v1alpha1.NodeConfigRolloutStatus // by the last plan, partly not written yet; nil: as stored
	gatesSince       time.Time
	statusWritten    time.Time
	failures         int               // failed steps in a row
	failedAt         time.Time         // the first of them
	template         *resolvedTemplate // of the last step
	reportedGone     types.UID         // the UID of the revision for which RevisionGone was reported
	reportedError    string            // the last write error that was reported
	uncreated        error             // why a NodeConfig cannot be created, after several attempts; nil: all are there
	createFailures   int               // in a row
	createAgain      time.Time         // not before; zero: at once
	assignedNodes    []string          // nodes that an unfinished batch has assigned so far
	assignedRevision int64             // the revision of that batch
	disruptions      disruptions
}

func newCache(self string, tick time.Duration) *cache {
	return &cache{
		now: time.Now, tick: tick, self: self, nodes: map[string]*nodeEntry{}, rollouts: map[string]*rolloutEntry{},
		revisions: map[string]map[string]*corev1.ConfigMap{}, startup: map[string]*nodeEntry{}, planes: map[string]*nodeEntry{},
		changed:    make(chan struct{}, 1),
		preflights: preflightQueue{objects: map[string]*v1alpha1.NodeConfigPreflight{}},
	}
}

// schedule makes a rollout due soon. The caller holds mu.
func (f *cache) schedule(r *rolloutEntry) { f.scheduleAt(r, f.now().Add(f.tick)) }

func (f *cache) scheduleAt(r *rolloutEntry, t time.Time) {
	if t.Before(r.notBefore) {
		t = r.notBefore
	}
	if !r.dueAt.IsZero() && !t.Before(r.dueAt) {
		return
	}

	r.dueAt = t
	signal(f.changed)
}

// endOutage notes that the controller could not see everything since a time, or
// since the watches are not complete, and makes every rollout due.
func (f *cache) endOutage(from time.Time) {
	f.mu.Lock()
	f.outages = f.withOutage(f.outages, earliest(from, f.lostAt))
	f.mu.Unlock()
	f.scheduleAll()
}

// firstView notes the outage that ends with the leader's first view. What a
// standby noted before it led, on a clock that was not set yet, is forgotten:
// the first outage of the list is the leader's.
func (f *cache) firstView(from time.Time) {
	f.mu.Lock()
	f.outages = nil
	f.mu.Unlock()
	f.endOutage(from)
}

// withOutage adds an outage that ends now, and forgets old ones. A time in the
// future is now.
func (f *cache) withOutage(all rollout.Outages, from time.Time) rollout.Outages {
	const most = 100
	now := f.now()
	all = all.Add(rollout.Outage{From: earliest(from, now), To: now})
	return all[max(0, len(all)-most):]
}

// endUnwritten notes that a rollout is written again, and makes it due.
func (f *cache) endUnwritten(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.rollouts[name]; r != nil {
		r.unwritten = f.withOutage(r.unwritten, r.failedAt)
		f.schedule(r)
	}
}

// setLost notes since when the controller does not see everything; zero: it
// does.
func (f *cache) setLost(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at.IsZero() || f.lostAt.IsZero() {
		f.lostAt = at
	}
}

// scheduleAll makes every rollout due soon.
func (f *cache) scheduleAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scheduleEach()
	signal(f.changed)
}

// scheduleEach makes every rollout due soon. The caller holds mu.
func (f *cache) scheduleEach() {
	for _, r := range f.rollouts {
		f.schedule(r)
	}
}

// entry returns the entry of a node, a new one if there is none. The caller
// holds mu.
func (f *cache) entry(name string) *nodeEntry {
	n := f.nodes[name]
	if n == nil {
		n = &nodeEntry{}
		f.nodes[name] = n
	}

	return n
}

// setNode adds a Node unless a newer version is known.
func (f *cache) setNode(node *corev1.Node) {
	fleet.StripNode(node)
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.entry(node.Name)
	was := n.node
	if was != nil && fleet.Older(node.ResourceVersion, was.ResourceVersion) {
		return
	}

	n.node = node
	if was == nil || !maps.Equal(was.Labels, node.Labels) {
		for _, r := range f.rollouts {
			f.selectNode(r, node.Name, n)
		}
	}

	f.refresh(n)
}

func (f *cache) deleteNode(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[name]
	if n == nil {
		return
	}

	n.node = nil
	delete(f.startup, name)
	if f.planes[name] != nil { // any rollout may wait for it
		f.scheduleEach()
	}

	for _, r := range f.rollouts {
		f.selectNode(r, name, n)
	}

	delete(f.planes, name)
	n.observed, n.wentNotReady, n.maintenanceSince, n.drainReport, n.probe = rollout.Node{}, time.Time{}, time.Time{}, nil, nil
	n.settledAt = time.Time{}
	f.removeIfEmpty(name)
}

// setConfig adds a NodeConfig unless a newer version is known.
func (f *cache) setConfig(nc *v1alpha1.NodeConfig) {
	fleet.StripNodeConfig(nc)
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.entry(nc.Name)
	if n.config != nil && fleet.Older(nc.ResourceVersion, n.config.ResourceVersion) {
		return
	}

	n.config = nc
	f.refresh(n)
}

// deleteConfig removes the NodeConfig with this UID.
func (f *cache) deleteConfig(name string, uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[name]
	if n == nil || n.config == nil || n.config.UID != uid {
		return
	}

	n.config = nil
	f.refresh(n)
	f.removeIfEmpty(name)
}

// beginPass notes that a pass over a node begins. It returns false if one is
// running, or none is due.
func (f *cache) beginPass(name string, due func(*nodeEntry) bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[name]
	if n == nil || n.draining || !due(n) {
		return false
	}

	n.draining = true

	return true
}

// endPass keeps the result of a pass.
func (f *cache) endPass(name string, keep func(*nodeEntry)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[name]
	if n == nil {
		return
	}

	n.draining = false
	keep(n)
	f.refresh(n)
}

func (f *cache) removeIfEmpty(name string) {
	if n := f.nodes[name]; n.node == nil && n.config == nil {
		delete(f.nodes, name)
	}
}

// markUncertain notes that a write to a NodeConfig may still take effect until
// a time. A zero time removes the note.
func (f *cache) markUncertain(name string, until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.nodes[name]; n != nil {
		n.uncertainUntil = until
	}
}

// refresh derives what is observed of a node, and makes its rollouts due if
// that has changed. The caller holds mu.
func (f *cache) refresh(n *nodeEntry) {
	if n.node == nil {
		return
	}

	f.trackReady(n)
	observed := fleet.NodeOf(n.node, n.config)
	observed.Last, observed.WentNotReady = n.node.Name == f.self, n.wentNotReady
	f.trackMaintenance(n, &observed)
	f.trackStartup(n, &observed)
	f.trackControlPlane(n, &observed)
	if observed.Drain.Rollout == "" {
		n.drainReport = nil
	}

	observed.DrainReport, observed.ProbeReport = n.drainReport, n.probe
	same := reflect.DeepEqual(&observed, &n.observed)
	if !same {
		f.schedulePreflights(f.now().Add(f.tick))
	}

	planes := observed.ControlPlane || n.observed.ControlPlane
	n.observed = observed
	if planes && !same { // any rollout may wait for it
		f.scheduleEach()
	}
	if !f.updateHolder(n) && !same {
		f.scheduleClaims(n)
	}
}

// updateHolder finds out which rollout has a node, and reports whether that has
// changed.
func (f *cache) updateHolder(n *nodeEntry) bool {
	holder := rollout.Holder(n.claims, &n.observed)
	if holder == n.holder {
		return false
	}

	n.holder = holder
	f.scheduleClaims(n)

	return true
}

// scheduleClaims makes the rollouts that select a node due.
func (f *cache) scheduleClaims(n *nodeEntry) {
	for _, c := range n.claims {
		f.schedule(f.rollouts[c.Name])
	}
}

// trackReady records when a Node became NotReady: when the controller saw it,
// not when the node says it was. For a Node that is NotReady when the
// controller first sees it, the condition's time counts only if its status is
// Unknown: the control plane writes that, not the node.
func (f *cache) trackReady(n *nodeEntry) {
	first := n.observed.Name == ""
	ready, since := false, f.now()
	if c := fleet.ReadyCondition(n.node); c != nil {
		ready = c.Status == corev1.ConditionTrue
		if at := c.LastTransitionTime.Time; first && c.Status == corev1.ConditionUnknown && at.Before(since) {
			since = at
		}
	}

	if !ready && (first || n.observed.Ready) {
		n.wentNotReady = since
	}
}

// trackMaintenance records when maintenance of a node was first seen: the order
// of that and of NotReady matters.
func (f *cache) trackMaintenance(n *nodeEntry, observed *rollout.Node) {
	observed.Maintenance = fleet.MaintenanceOf(n.node, f.maintenance)
	switch {
	case observed.Maintenance == "":
		n.maintenanceSince = time.Time{}
	case n.maintenanceSince.IsZero():
		n.maintenanceSince = f.now()
	}

	observed.MaintenanceSince = n.maintenanceSince
}

// trackControlPlane records when a control plane was last seen to settle.
func (f *cache) trackControlPlane(n *nodeEntry, observed *rollout.Node) {
	delete(f.planes, observed.Name)
	if observed.ControlPlane {
		f.planes[observed.Name] = n
	}
	if observed.ControlPlane && n.observed.Name != "" && n.observed.Unsettled() != "" && observed.Unsettled() == "" {
		n.settledAt = f.now()
	}

	observed.SettledAt = n.settledAt
}

// selectNode updates whether a rollout selects a node. The caller holds mu.
func (f *cache) selectNode(r *rolloutEntry, name string, n *nodeEntry) {
	_, was := r.nodes[name]
	is := n.node != nil && r.selection.Selects(n.node)
	n.claims = slices.DeleteFunc(n.claims, func(c rollout.Claim) bool { return c.Name == r.name })
	if is {
		n.claims = append(n.claims, r.selection.Claim)
		r.nodes[name] = n
	} else {
		delete(r.nodes, name)
	}

	if is || was {
		f.schedule(r) // a changed label may be the topology key or select a canary
	}

	f.updateHolder(n)
}

// setRollout adds a rollout unless a newer version is known. A rollout that is
// being deleted is removed.
func (f *cache) setRollout(o *v1alpha1.NodeConfigRollout) {
	if o.DeletionTimestamp != nil {
		f.deleteRollout(o)
		return
	}

	fleet.StripRollout(o)
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.rollouts[o.Name]
	if r != nil && fleet.Older(o.ResourceVersion, r.object.ResourceVersion) {
		return
	}

	if r != nil && r.object.UID == o.UID && r.object.Generation == o.Generation {
		r.object = o // only the status has changed, which the controller writes
		return
	}

	if r == nil || r.object.UID != o.UID {
		r = &rolloutEntry{name: o.Name, nodes: map[string]*nodeEntry{}}
		f.rollouts[o.Name] = r
	}

	r.object = o
	r.selection, _ = fleet.SelectionOf(o) // fleet.Build reports the error
	for name, n := range f.nodes {
		f.selectNode(r, name, n)
	}

	f.schedule(r)
}

func (f *cache) deleteRollout(o *v1alpha1.NodeConfigRollout) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.rollouts[o.Name]
	if r == nil || r.object.UID != o.UID {
		return
	}

	r.selection = fleet.Selection{}
	for name, n := range f.nodes {
		f.selectNode(r, name, n)
	}

	delete(f.rollouts, o.Name)
	f.deleted = append(f.deleted, r.object)
	signal(f.changed)
}

// setRevision adds the ConfigMap of a revision unless a newer version is known.
func (f *cache) setRevision(cm *corev1.ConfigMap) {
	fleet.StripRevision(cm)
	f.mu.Lock()
	defer f.mu.Unlock()
	owner := cm.Labels[v1alpha1.LabelRollout]
	if f.revisions[owner] == nil {
		f.revisions[owner] = map[string]*corev1.ConfigMap{}
	}

	if was := f.revisions[owner][cm.Name]; was != nil &&
		(was.ResourceVersion == cm.ResourceVersion || fleet.Older(cm.ResourceVersion, was.ResourceVersion)) {
		return
	}

	f.revisions[owner][cm.Name] = cm
	f.scheduleName(owner)
}

// deleteRevision removes the ConfigMap of a revision with the same UID.
func (f *cache) deleteRevision(cm *corev1.ConfigMap) {
	f.mu.Lock()
	defer f.mu.Unlock()
	owner := cm.Labels[v1alpha1.LabelRollout]
	if was := f.revisions[owner][cm.Name]; was == nil || was.UID != cm.UID {
		return
	}

	delete(f.revisions[owner], cm.Name)
	if len(f.revisions[owner]) == 0 {
		delete(f.revisions, owner)
	}

	f.scheduleName(owner)
}

// scheduleRollout makes a rollout due soon, if it exists.
func (f *cache) scheduleRollout(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scheduleName(name)
}

func (f *cache) scheduleName(name string) {
	if r := f.rollouts[name]; r != nil {
		f.schedule(r)
	}
}
