package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

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

// state is what the map shows of a node. Where a rollout has the node it is how that one sees it, else what the node says
// itself. The page knows them by their numbers.
type state uint8

const (
	stateFine state = iota
	statePending
	stateAssigned
	stateTrial
	stateSoaking
	stateFailed
	stateSilent
	statePassedOver
	stateNoAgent
	stateUnknown
	stateBlocked
)

var ofStanding = map[rollout.State]state{
	rollout.Pending: statePending, rollout.Assigned: stateAssigned, rollout.Trial: stateTrial, rollout.Soaking: stateSoaking,
	rollout.Updated: stateFine, rollout.Failed: stateFailed, rollout.Skipped: statePassedOver, rollout.Stale: stateSilent,
	rollout.Conflicted: statePassedOver, rollout.Manual: statePassedOver, rollout.Blocked: stateBlocked,
}

// cell is one node on the map.
type cell struct {
	Name, Zone, Rollout string
	State               state
	Down                bool   // the Node is not Ready, or is not there
	Why                 string // of what is not as it should be
}

// picture is everything that the page shows at once.
type picture struct {
	Cells    map[string]cell
	Rollouts []rolloutView
	Trouble  []trouble
	Notes    []string // what is not shown, and why
	Ready    bool
	wake     time.Duration // look again after this long, even if nothing changes; 0: no need
}

// trouble is what cannot be seen at the moment, so that what is shown of it is old.
type trouble struct {
	What  string    `json:"what"`
	Why   string    `json:"why"`
	Since time.Time `json:"since"`
	Away  bool      `json:"away"` // the API server does not answer; else it refuses
}

// look makes a picture of what is known now.
func (w *world) look(ctx context.Context, now time.Time) picture {
	p := picture{Cells: map[string]cell{}, Ready: w.ready()}
	for kind, f := range w.troubles() {
		p.Trouble = append(p.Trouble, trouble{kind, printable.Line(f.err.Error()), f.since.UTC().Truncate(time.Second), away(f.err)})
	}
	slices.SortFunc(p.Trouble, func(a, b trouble) int { return cmp.Compare(a.What, b.What) })

	var all v1alpha1.NodeConfigRolloutList
	var nodes corev1.NodeList
	var configs v1alpha1.NodeConfigList
	if w.List(ctx, &all) != nil || w.List(ctx, &configs) != nil {
		return p // the trouble says why
	}
	blind := w.List(ctx, &nodes) != nil
	if blind {
		p.Notes = append(p.Notes, "Nodes cannot be listed and watched with your rights: zones, nodes without a NodeConfig and how nodes stand to rollouts are not shown")
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		p.Cells[n.Name] = cell{Name: n.Name, Zone: n.Labels[corev1.LabelTopologyZone], State: stateNoAgent, Down: !query.IsReady(n)}
	}
	for i := range configs.Items {
		nc := &configs.Items[i]
		c, there := p.Cells[nc.Name]
		if !there {
			c = cell{Name: nc.Name, Down: !blind}
		}
		c.State, c.Why = standsAlone(nc)
		p.Cells[nc.Name] = c
	}
	for i := range all.Items {
		v := viewOf(&all.Items[i], now)
		if !blind {
			w.place(ctx, &all.Items[i], &v, &p)
		}
		p.Rollouts = append(p.Rollouts, v)
	}
	return p
}

// standsAlone is how a node is by what it says itself.
func standsAlone(nc *v1alpha1.NodeConfig) (state, string) {
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

// place puts the nodes that a rollout has where it sees them.
func (w *world) place(ctx context.Context, r *v1alpha1.NodeConfigRollout, v *rolloutView, p *picture) {
	f, err := query.Gather(ctx, remembering{w}, r, nil)
	if err != nil {
		p.Notes = append(p.Notes, fmt.Sprintf("how nodes stand to rollout %s is not shown: %s", r.Name, printable.Line(err.Error())))
		return
	}
	plan := rollout.Plan(f.Policy, f.Progress, f.Nodes)
	for i := range f.Nodes {
		if f.Nodes[i].Owner != "" {
			continue
		}
		c := p.Cells[f.Nodes[i].Name]
		c.Rollout, c.State, c.Why = r.Name, ofStanding[plan.States[i]], ""
		switch plan.States[i] {
		case rollout.Failed, rollout.Skipped, rollout.Stale, rollout.Manual, rollout.Blocked:
			s := plan.NodeState(i)
			c.Why = brief(describe.JoinWords(s.Reason, s.Message))
		}
		if !f.Nodes[i].Reported {
			c.State = stateNoAgent
		}
		p.Cells[c.Name] = c
	}
	v.Budget = &budget{Used: plan.Counts.Unavailable, Of: plan.Counts.Budget}
	if plan.RequeueAfter > 0 && (p.wake == 0 || plan.RequeueAfter < p.wake) {
		p.wake = plan.RequeueAfter
	}
}

// brief is a text for a table's cell.
func brief(s string) string {
	const most = 160
	s = printable.Line(s)
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// remembered is the answer to a question that is not asked again for some time.
type remembered struct {
	until time.Time
	of    string // what the answer depends on
	list  []corev1.ConfigMap
	err   error
}

// remembering is the world, with the ConfigMaps of revisions as they were some seconds ago: the map is drawn often, and they
// are not watched.
type remembering struct{ *world }

// howLong something is remembered.
const howLong = 15 * time.Second

func (r remembering) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	configMaps, ok := list.(*corev1.ConfigMapList)
	if !ok {
		return r.world.List(ctx, list, options...)
	}
	o := client.ListOptions{}
	o.ApplyOptions(options)
	name, _ := o.LabelSelector.RequiresExactMatch(v1alpha1.LabelRollout)
	if o.Continue != "" { // a rollout with more revisions than fit in a page: not remembered
		return r.api.List(ctx, list, options...)
	}
	key := o.Namespace + "/" + name
	r.mu.Lock()
	of := ""
	if now := r.rollouts[name]; now != nil {
		of = fmt.Sprint(now.Generation, now.Status.UpdateRevision, now.Status.CurrentRevision)
	}
	m, known := r.memory[key]
	r.mu.Unlock()
	if !known || m.of != of || time.Now().After(m.until) {
		m = remembered{until: time.Now().Add(howLong), of: of}
		m.err = r.api.List(ctx, configMaps, options...)
		for i := range configMaps.Items {
			policy.StripRevision(&configMaps.Items[i])
		}
		m.list = configMaps.Items
		r.mu.Lock()
		r.memory[key] = m
		r.mu.Unlock()
	}
	configMaps.Items = slices.Clone(m.list)
	return m.err
}
