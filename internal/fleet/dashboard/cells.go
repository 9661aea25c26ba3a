package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/describe"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/fleet/query"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// state is the state of a node on the map: in the rollout that owns it, or otherwise as its agent reports. The numbers are part
// of the protocol with the page.
type state uint8

const (
	stateFine state = iota
	statePending
	stateAssigned
	stateTrial
	stateSoaking
	stateFailed
	stateStale
	statePassedOver
	stateNoAgent
	stateUnknown
	stateBlocked
	stateDraining
)

var stateOf = map[rollout.State]state{
	rollout.Pending: statePending, rollout.Assigned: stateAssigned, rollout.Trial: stateTrial, rollout.Soaking: stateSoaking,
	rollout.Updated: stateFine, rollout.Failed: stateFailed, rollout.Skipped: statePassedOver, rollout.Stale: stateStale,
	rollout.Conflicted: statePassedOver, rollout.Manual: statePassedOver, rollout.Blocked: stateBlocked, rollout.Draining: stateDraining,
}

// cell is one node on the map.
type cell struct {
	Name, Zone, Rollout string
	State               state
	Down                bool   // the Node is not Ready, or does not exist
	Why                 string // explains a problem
}

// snapshot is everything that the page shows at the same time.
type snapshot struct {
	Cells    map[string]cell
	Rollouts []rolloutView
	Trouble  []trouble
	Notes    []string // what is missing, and why
	Ready    bool
	wake     time.Duration // when to take the next snapshot, even without a change; 0: no need
}

// trouble is something that cannot be read now, so that the page shows its last state.
type trouble struct {
	What  string    `json:"what"`
	Why   string    `json:"why"`
	Since time.Time `json:"since"`
	Away  bool      `json:"away"` // the API server does not answer; otherwise it refuses
}

// snapshot takes a snapshot of the cached objects.
func (w *cluster) snapshot(ctx context.Context, now time.Time) snapshot {
	p := snapshot{Cells: map[string]cell{}, Ready: w.ready()}
	for kind, f := range w.failures() {
		p.Trouble = append(p.Trouble, trouble{kind, printable.Line(f.err.Error()), f.since.UTC().Truncate(time.Second), unreachable(f.err)})
	}
	slices.SortFunc(p.Trouble, func(a, b trouble) int { return cmp.Compare(a.What, b.What) })

	var all v1alpha1.NodeConfigRolloutList
	var nodes corev1.NodeList
	var configs v1alpha1.NodeConfigList
	if w.List(ctx, &all) != nil || w.List(ctx, &configs) != nil {
		return p // the trouble says why
	}
	nodesMissing := w.List(ctx, &nodes) != nil
	if nodesMissing {
		p.Notes = append(p.Notes, "You are not allowed to list and watch Nodes: zones, nodes without a NodeConfig, and the nodes of rollouts are not shown")
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		p.Cells[n.Name] = cell{Name: n.Name, Zone: n.Labels[corev1.LabelTopologyZone], State: stateNoAgent, Down: !query.IsReady(n)}
	}
	for i := range configs.Items {
		nc := &configs.Items[i]
		c, there := p.Cells[nc.Name]
		if !there {
			c = cell{Name: nc.Name, Down: !nodesMissing}
		}
		c.State, c.Why = reportedState(nc)
		p.Cells[nc.Name] = c
	}
	for i := range all.Items {
		v := viewOf(&all.Items[i], now)
		if !nodesMissing {
			w.setRolloutStates(ctx, &all.Items[i], &v, &p)
		}
		p.Rollouts = append(p.Rollouts, v)
	}
	return p
}

// reportedState returns the state of a node as its agent reports it.
func reportedState(nc *v1alpha1.NodeConfig) (state, string) {
	if !query.HasReported(nc) {
		return stateNoAgent, ""
	}
	c := meta.FindStatusCondition(nc.Status.Conditions, v1alpha1.ConditionConfigOK)
	switch {
	case c == nil || c.Status == metav1.ConditionUnknown:
		why := ""
		if c != nil {
			why = describe.JoinWords(c.Reason, cmp.Or(nc.Status.Error, c.Message))
		}
		return stateUnknown, brief(why)
	case c.Status == metav1.ConditionFalse:
		return stateFailed, brief(describe.JoinWords(c.Reason, cmp.Or(nc.Status.Error, c.Message)))
	case nc.Status.Trial != nil:
		return stateTrial, ""
	}
	return stateFine, ""
}

// setRolloutStates sets the states of the nodes that a rollout owns.
func (w *cluster) setRolloutStates(ctx context.Context, r *v1alpha1.NodeConfigRollout, v *rolloutView, p *snapshot) {
	f, err := query.Gather(ctx, cachedReader{w}, r, nil)
	if err != nil {
		p.Notes = append(p.Notes, fmt.Sprintf("the nodes of rollout %s are not shown: %s", r.Name, printable.Line(err.Error())))
		return
	}
	plan := rollout.Plan(f.Policy, f.Progress, f.Nodes)
	for i := range f.Nodes {
		if f.Nodes[i].Owner != "" {
			continue
		}
		c := p.Cells[f.Nodes[i].Name]
		c.Rollout, c.State, c.Why = r.Name, stateOf[plan.States[i]], ""
		switch plan.States[i] {
		case rollout.Failed, rollout.Skipped, rollout.Stale, rollout.Manual, rollout.Blocked, rollout.Draining:
			s := f.NodeState(&plan, i)
			c.Why = brief(describe.JoinWords(s.Reason, s.Message))
		}
		if !f.Nodes[i].Reported {
			c.State = stateNoAgent
		}
		p.Cells[c.Name] = c
	}
	v.RestartCosts = restartCosts(f, plan)
	v.Budget = &budget{Used: plan.Counts.Unavailable, Of: plan.Counts.Budget}
	if plan.RequeueAfter > 0 && (p.wake == 0 || plan.RequeueAfter < p.wake) {
		p.wake = plan.RequeueAfter
	}
}

// restartCosts says what restarts cost the pods of the nodes that are to get the revision, and of those that have it.
func restartCosts(f *query.Fleet, plan rollout.Result) map[restarts]string {
	nodes := map[restarts][]query.Restart{}
	for i, state := range plan.States {
		switch state {
		case rollout.Pending:
			nodes[restartsPending] = append(nodes[restartsPending], f.Restarts[i])
		case rollout.Assigned, rollout.Trial, rollout.Soaking, rollout.Updated:
			nodes[restartsBack] = append(nodes[restartsBack], f.Restarts[i])
		}
	}
	costs := map[restarts]string{}
	for which, restarts := range nodes {
		if cost := describe.RestartCostOf(restarts); cost != nil {
			costs[which] = "Note: " + cost.String() + "."
		}
	}
	return costs
}

// brief shortens a text for a table's cell.
func brief(s string) string {
	const most = 160
	s = printable.Line(s)
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// cachedList is a list of ConfigMaps that is kept for some time.
type cachedList struct {
	until time.Time
	of    string // the version of the rollout
	list  []corev1.ConfigMap
	err   error
}

// cachedLease is the answer to a read of the controller's Lease, which is kept for some time.
type cachedLease struct {
	until time.Time
	lease coordinationv1.Lease
	err   error
}

// cachedReader is a cluster that also caches the ConfigMaps of revisions and the controller's Lease for some seconds: snapshots
// are frequent, and these objects are not watched.
type cachedReader struct{ *cluster }

// cacheDuration is how long ConfigMaps of revisions and Leases are cached.
const cacheDuration = 15 * time.Second

func (r cachedReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	lease, ok := object.(*coordinationv1.Lease)
	if !ok {
		return r.cluster.Get(ctx, key, object, options...)
	}
	r.mu.Lock()
	l, known := r.leases[key.Namespace]
	r.mu.Unlock()
	if !known || time.Now().After(l.until) {
		l = cachedLease{until: time.Now().Add(cacheDuration)}
		l.err = r.api.Get(ctx, key, &l.lease, options...)
		r.mu.Lock()
		r.leases[key.Namespace] = l
		r.mu.Unlock()
	}
	l.lease.DeepCopyInto(lease)
	return l.err
}

func (r cachedReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	configMaps, ok := list.(*corev1.ConfigMapList)
	if !ok {
		return r.cluster.List(ctx, list, options...)
	}
	o := client.ListOptions{}
	o.ApplyOptions(options)
	name, _ := o.LabelSelector.RequiresExactMatch(v1alpha1.LabelRollout)
	if o.Continue != "" { // more revisions than fit in a page are not cached
		return r.api.List(ctx, list, options...)
	}
	key := o.Namespace + "/" + name
	r.mu.Lock()
	of := ""
	if now := r.rollouts[name]; now != nil {
		of = fmt.Sprint(now.Generation, now.Status.UpdateRevision, now.Status.CurrentRevision)
	}
	m, known := r.configMaps[key]
	r.mu.Unlock()
	if !known || m.of != of || time.Now().After(m.until) {
		m = cachedList{until: time.Now().Add(cacheDuration), of: of}
		m.err = r.api.List(ctx, configMaps, options...)
		for i := range configMaps.Items {
			policy.StripRevision(&configMaps.Items[i])
		}
		m.list = configMaps.Items
		r.mu.Lock()
		r.configMaps[key] = m
		r.mu.Unlock()
	}
	configMaps.Items = slices.Clone(m.list)
	return m.err
}
