package controller

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
)

// fleet is what is known of nodes, NodeConfigs, rollouts and revisions: the newest that the watches or the answers to the
// controller's own writes have told, so that a watch that lags behind takes no write back. It is kept up to date one
// object at a time. Objects in it are shared and never changed.
type fleet struct {
	mu       sync.Mutex
	now      func() time.Time
	tick     time.Duration // from the first change to the pass, so that many changes are one
	self     string        // the controller's own node
	nodes    map[string]*member
	rollouts map[string]*rolling
	since    time.Time // when the fleet could be seen, and written to, without a gap
	// revisions are their ConfigMaps, without content, by rollout and name.
	revisions map[string]map[string]*corev1.ConfigMap
	deleted   []*v1alpha1.NodeConfigRollout // and not told of yet
	changed   chan struct{}                 // something is due
}

// member is one node: its Node, its NodeConfig, or both.
type member struct {
	node   *corev1.Node         // nil: there is none
	config *v1alpha1.NodeConfig // nil: there is none
	seen   rollout.Node         // what of both a plan is made of
	// wentNotReady is when the Node was seen to become NotReady last; zero: never.
	wentNotReady time.Time
	claims       []rollout.Claim // of the rollouts that select it
	holder       string          // the one of them that has it
	// unsure is until when a write may take effect of which nobody knows whether it did; zero: there is none.
	unsure time.Time
}

// rolling is one rollout.
type rolling struct {
	name     string
	object   *v1alpha1.NodeConfigRollout
	selects  policy.Selection
	members  map[string]*member
	order    []string // names of the members, sorted; nil: to be made
	due      time.Time
	earliest time.Time         // after what failed
	progress *rollout.Progress // nil: what the status remembers
	// ahead is how far the newest time that was recorded for the rollout was ahead of the clock, when this leader took it
	// up: so its time never goes back.
	ahead     time.Duration
	written   time.Time // the status, last
	failures  int       // passes in a row that could not write
	template  *resolved // what the template was last found to hold
	told      string    // the revision of which it was said that it is gone
	complaint string    // the write that failed last, told already
	given     []string  // nodes that were assigned in a batch that is not over
	givenOf   int64     // the revision that they were assigned
}

func newFleet(self string, tick time.Duration) *fleet {
	return &fleet{
		now: time.Now, tick: tick, self: self, nodes: map[string]*member{}, rollouts: map[string]*rolling{},
		revisions: map[string]map[string]*corev1.ConfigMap{}, changed: make(chan struct{}, 1),
	}
}

// older tells whether an object was read before another one of its name. Versions that cannot be compared are newer.
func older(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && c < 0
}

// mark has a rollout looked at soon.
func (f *fleet) mark(r *rolling) { f.markAt(r, f.now().Add(f.tick)) }

func (f *fleet) markAt(r *rolling, t time.Time) {
	if t.Before(r.earliest) {
		t = r.earliest
	}
	if !r.due.IsZero() && !t.Before(r.due) {
		return
	}
	r.due = t
	f.wake()
}

func (f *fleet) wake() { signal(f.changed) }

// sighted has every rollout looked at soon, after a time in which not everything could be seen or done.
func (f *fleet) sighted() {
	f.mu.Lock()
	f.since = f.now()
	f.mu.Unlock()
	f.markAll()
}

// markAll has every rollout looked at soon.
func (f *fleet) markAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rollouts {
		f.mark(r)
	}
	f.wake()
}

func (f *fleet) member(name string) *member {
	m := f.nodes[name]
	if m == nil {
		m = &member{}
		f.nodes[name] = m
	}
	return m
}

func (f *fleet) setNode(n *corev1.Node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.member(n.Name)
	was := m.node
	m.node = n
	if was == nil || !maps.Equal(was.Labels, n.Labels) {
		for _, r := range f.rollouts {
			f.selectNode(r, n.Name, m)
		}
	}
	f.look(n.Name, m)
}

func (f *fleet) deleteNode(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.nodes[name]
	if m == nil {
		return
	}
	m.node = nil
	for _, r := range f.rollouts {
		f.selectNode(r, name, m)
	}
	m.seen, m.wentNotReady = rollout.Node{}, time.Time{}
	f.drop(name, m)
}

// setConfig takes a NodeConfig up unless a newer one is known.
func (f *fleet) setConfig(nc *v1alpha1.NodeConfig) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.member(nc.Name)
	if m.config != nil && older(nc.ResourceVersion, m.config.ResourceVersion) {
		return
	}
	m.config = nc
	f.look(nc.Name, m)
}

// deleteConfig forgets a NodeConfig unless another one of its name is known.
func (f *fleet) deleteConfig(name string, uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.nodes[name]
	if m == nil || m.config == nil || m.config.UID != uid {
		return
	}
	m.config = nil
	f.look(name, m)
	f.drop(name, m)
}

// drop forgets a node of which there is nothing.
func (f *fleet) drop(name string, m *member) {
	if m.node == nil && m.config == nil {
		delete(f.nodes, name)
	}
}

// look observes a node anew and marks the rollouts for which something has changed.
func (f *fleet) look(name string, m *member) {
	if m.node == nil {
		return
	}
	f.observeReady(m)
	seen := rolloutNode(m, name == f.self)
	same := reflect.DeepEqual(&seen, &m.seen)
	m.seen = seen
	holder := rollout.Holder(m.claims, &m.seen)
	if same && holder == m.holder {
		return
	}
	m.holder = holder
	for _, c := range m.claims {
		f.mark(f.rollouts[c.Name])
	}
}

func rolloutNode(m *member, last bool) rollout.Node {
	n := policy.NodeOf(m.node, m.config)
	n.Last, n.WentNotReady = last, m.wentNotReady
	return n
}

// observeReady notes when a Node becomes NotReady: when that is seen, whatever its condition says. How long a Node has been
// NotReady that was so when it was first seen, only the control plane is asked: it, and not the node, writes Unknown.
func (f *fleet) observeReady(m *member) {
	first := m.seen.Name == ""
	ready, since := false, f.now()
	for i := range m.node.Status.Conditions {
		if c := &m.node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			ready = c.Status == corev1.ConditionTrue
			if at := c.LastTransitionTime.Time; first && c.Status == corev1.ConditionUnknown && at.Before(since) {
				since = at
			}
		}
	}
	if !ready && (first || m.seen.Ready) {
		m.wentNotReady = since
	}
}

// aheadOf is how far the newest time that was recorded for a rollout is ahead of the clock. The caller holds mu.
func (f *fleet) aheadOf(r *rolling) time.Duration {
	st := &r.object.Status
	newest := time.Time{}
	at := func(t time.Time) {
		if t.After(newest) {
			newest = t
		}
	}
	for _, t := range []*metav1.Time{st.StartTime, st.AttemptTime, st.StepTime, st.ProgressTime} {
		at(policy.TimeOf(t))
	}
	if h := st.Halt; h != nil {
		at(h.Time.Time)
	}
	for _, m := range r.members {
		if m.seen.Source.Rollout == r.name {
			at(m.seen.Source.AssignedAt)
		}
		if m.seen.Mark.Rollout == r.name {
			at(m.seen.Mark.Fine)
		}
	}
	return max(0, newest.Sub(f.now().Truncate(time.Second)))
}

// selectNode finds out whether a rollout selects a node.
func (f *fleet) selectNode(r *rolling, name string, m *member) {
	_, was := r.members[name]
	is := m.node != nil && r.selects.Selects(m.node)
	m.claims = slices.DeleteFunc(m.claims, func(c rollout.Claim) bool { return c.Name == r.name })
	if is {
		m.claims = append(m.claims, r.selects.Claim)
		r.members[name] = m
	} else {
		delete(r.members, name)
	}
	if is != was {
		r.order = nil
	}
	if is || was {
		f.mark(r) // its labels may be a domain's, or a canary's
	}
	if holder := rollout.Holder(m.claims, &m.seen); holder != m.holder {
		m.holder = holder
		for _, c := range m.claims {
			f.mark(f.rollouts[c.Name])
		}
	}
}

// setRollout takes a rollout up unless a newer one is known. One that is being deleted is gone.
func (f *fleet) setRollout(o *v1alpha1.NodeConfigRollout) {
	if o.DeletionTimestamp != nil {
		f.deleteRollout(o)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.rollouts[o.Name]
	if r != nil && older(o.ResourceVersion, r.object.ResourceVersion) {
		return
	}
	if r != nil && r.object.UID == o.UID && r.object.Generation == o.Generation {
		r.object = o // only its status: that is the controller's own
		return
	}
	if r == nil || r.object.UID != o.UID {
		r = &rolling{name: o.Name, members: map[string]*member{}}
		f.rollouts[o.Name] = r
	}
	r.object = o
	r.selects, _ = policy.SelectionOf(o) // an error shows when its policy is made
	for name, m := range f.nodes {
		f.selectNode(r, name, m)
	}
	f.mark(r)
}

func (f *fleet) deleteRollout(o *v1alpha1.NodeConfigRollout) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.rollouts[o.Name]
	if r == nil || r.object.UID != o.UID {
		return
	}
	r.selects = policy.Selection{}
	for name, m := range f.nodes {
		f.selectNode(r, name, m)
	}
	delete(f.rollouts, o.Name)
	f.deleted = append(f.deleted, r.object)
	f.wake()
}

func (f *fleet) setRevision(cm *corev1.ConfigMap) {
	f.mu.Lock()
	defer f.mu.Unlock()
	owner := cm.Labels[v1alpha1.LabelRollout]
	of := f.revisions[owner]
	if of == nil {
		of = map[string]*corev1.ConfigMap{}
		f.revisions[owner] = of
	}
	if was := of[cm.Name]; was != nil && (was.ResourceVersion == cm.ResourceVersion || older(cm.ResourceVersion, was.ResourceVersion)) {
		return
	}
	of[cm.Name] = cm
	if r := f.rollouts[owner]; r != nil {
		f.mark(r)
	}
}

func (f *fleet) deleteRevision(cm *corev1.ConfigMap) {
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
	if r := f.rollouts[owner]; r != nil {
		f.mark(r)
	}
}

// compose appends what a plan for a rollout is made of, in the order of the nodes' names.
func (f *fleet) compose(r *rolling, nodes []rollout.Node) []rollout.Node {
	if r.order == nil {
		r.order = slices.Sorted(maps.Keys(r.members))
	}
	for _, name := range r.order {
		m := r.members[name]
		n := m.seen
		if !n.WentNotReady.IsZero() {
			n.WentNotReady = n.WentNotReady.Add(r.ahead)
		}
		r.selects.Place(&n, m.node, m.holder)
		nodes = append(nodes, n)
	}
	return nodes
}

// inUse returns which revisions' ConfigMaps some NodeConfig names, by UID.
func (f *fleet) inUse() map[types.UID]bool {
	out := map[types.UID]bool{}
	for _, m := range f.nodes {
		if m.config == nil {
			continue
		}
		if s := m.config.Spec.ConfigSource; s != nil {
			if s.ConfigMapRef != nil {
				out[s.ConfigMapRef.UID] = true
			}
			if s.RolloutRef != nil && s.RolloutRef.Previous != nil {
				out[s.RolloutRef.Previous.ConfigMapRef.UID] = true
			}
		}
		st := &m.config.Status
		if st.Assigned != nil {
			out[st.Assigned.UID] = true
		}
		if st.Active != nil {
			out[st.Active.UID] = true
		}
		if st.LastKnownGood != nil {
			out[st.LastKnownGood.UID] = true
		}
	}
	return out
}
