// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// words are the words of the numbers in events, so that the page has no lists
// of its own. The first of each is empty: nothing is known.
type words struct {
	Health   []string `json:"health"`
	Position []string `json:"position"`
	State    []string `json:"state"`
}

var allWords = words{Health: wordsOf(describe.Healths), Position: wordsOf(describe.Positions), State: wordsOf(states())}

// wordsOf returns the words of values, after an empty one.
func wordsOf[T ~string](values []T) []string {
	all := []string{""}
	for _, v := range values {
		all = append(all, string(v))
	}

	return all
}

func states() (all []string) {
	for s := rollout.Pending; s <= rollout.Draining; s++ {
		all = append(all, s.String())
	}

	return all
}

// cell is one node on the map.
type cell struct {
	Name, Zone, Rollout string
	Kubelet             string // the version
	describe.Standing
}

// snapshot is everything that the page shows at the same time.
type snapshot struct {
	messageRest
	Cells map[string]cell
	wake  time.Duration // when to take the next snapshot, even without a change
}

// trouble is something that cannot be read now, so that the page shows its last
// state.
type trouble struct {
	What  string    `json:"what"`
	Why   string    `json:"why"`
	Since time.Time `json:"since"`
	Away  bool      `json:"away"` // the API server does not answer; otherwise it refuses
}

// snapshot takes a snapshot of the cached objects.
func (w *cache) snapshot(ctx context.Context, now time.Time) snapshot {
	p := snapshot{Cells: map[string]cell{}, wake: maxInterval}
	p.messageRest = messageRest{Ready: w.ready(), Rights: w.rights(), Rollouts: []rolloutView{}, Trouble: []trouble{}, Notes: []string{}}
	for kind, f := range w.failures() {
		if kind == kindNodes && !p.Rights.MayListNodes {
			continue // a missing right is no trouble
		}

		p.Trouble = append(p.Trouble, trouble{kind, troubleWords(f.err), f.since.UTC().Truncate(time.Second), unreachable(f.err)})
	}

	slices.SortFunc(p.Trouble, func(a, b trouble) int { return cmp.Compare(a.What, b.What) })

	var all v1alpha1.NodeConfigRolloutList
	var nodes corev1.NodeList
	var list v1alpha1.NodeConfigList
	if w.List(ctx, &all) != nil || w.List(ctx, &list) != nil {
		p.Summary = summarize(&p, describe.Situation{})
		return p // the trouble says why
	}

	nodesMissing := w.List(ctx, &nodes) != nil
	settings := fleet.SettingsIn(all.Items)
	known := describe.Situation{Rollouts: all.Items}
	pairs := map[string]fleet.Pair{} // also NodeConfigs without a Node
	for i := range nodes.Items {
		pairs[nodes.Items[i].Name] = fleet.Pair{Node: &nodes.Items[i]}
	}

	for i := range list.Items {
		nc := &list.Items[i]
		pairs[nc.Name] = fleet.Pair{Node: pairs[nc.Name].Node, Config: nc, NodeUnread: nodesMissing}
	}

	for name, pair := range pairs {
		if pair.Node == nil && !pair.NodeUnread {
			continue
		}

		c := cell{Name: name, Standing: describe.StandingOf(pair, nil, settings.AgentTimeout.Duration, now)}
		if n := pair.Node; n != nil {
			c.Zone, c.Kubelet = n.Labels[corev1.LabelTopologyZone], n.Status.NodeInfo.KubeletVersion
			c.Maintained = fleet.MaintenanceOf(n, settings.Maintenance) != ""
		}

		if nc := pair.Config; nc != nil {
			c.Kubelet = printable.Line(cmp.Or(nc.Status.ComponentVersion, c.Kubelet))
		}

		c.Cause = brief(c.Cause)
		p.Cells[name] = c
	}

	// The snapshot itself says that the API server does not answer: it must not
	// wait for it.
	ctx, cancel := context.WithTimeout(ctx, 2*pingInterval)
	defer cancel()
	if len(all.Items) > 0 {
		known.NoLeader = describe.NoController(w.renewal(ctx, settings.Namespace, now), settings.Namespace, now)
	}

	for i := range all.Items {
		r := &all.Items[i]
		v := viewOf(r, now)
		if !nodesMissing && !w.setPlanned(ctx, r, &v, &p) {
			known.Unread = append(known.Unread, "rollout "+r.Name)
		}

		p.Rollouts = append(p.Rollouts, v)
	}

	slices.SortStableFunc(p.Rollouts, byUrgency)
	slices.SortStableFunc(known.Rollouts, func(a, b v1alpha1.NodeConfigRollout) int {
		return cmp.Compare(b.Status.Nodes.Failed, a.Status.Nodes.Failed)
	})
	for name, pair := range pairs {
		known.Add(pair, p.Cells[name].Standing, settings.Maintenance, now)
	}

	p.Summary = summarize(&p, known)

	return p
}

// troubleWords describes an error of a watch. The page itself says what to do
// if the API server does not answer.
func troubleWords(err error) string {
	if !unreachable(err) {
		err = describe.WithAdvice(err, "")
	}

	return printable.Line(strings.ReplaceAll(err.Error(), "\n", "; "))
}

// setPlanned plans a rollout, and sets the standing of the nodes that it owns
// and its own numbers from that plan. It returns false if what the plan needs
// cannot be read.
func (w *cache) setPlanned(ctx context.Context, r *v1alpha1.NodeConfigRollout, v *rolloutView, p *snapshot) bool {
	f, err := query.Gather(ctx, cachedReader{w}, r, nil)
	if err != nil {
		p.Notes = append(p.Notes, fmt.Sprintf("the positions of the nodes of rollout %s are not shown: %s", r.Name, printable.Line(err.Error())))
		return false
	}

	plan := f.Plan()
	for i := range f.Nodes {
		if f.Nodes[i].Owner != "" {
			continue
		}

		c := p.Cells[f.Nodes[i].Name]
		s := rollout.NodeState{State: plan.States[i]}
		switch s.State {
		case rollout.Failed, rollout.Skipped, rollout.Stale, rollout.Manual, rollout.Blocked, rollout.Draining: // the others need no words
			s = f.NodeState(&plan, i)
		}

		c.Rollout, c.Standing = r.Name, c.In(s)
		c.Why, c.Cause = brief(c.Why), brief(c.Cause)
		p.Cells[c.Name] = c
	}

	v.setPlan(f, &plan)
	if plan.RequeueAfter > 0 {
		p.wake = min(p.wake, plan.RequeueAfter)
	}

	return true
}

// brief returns the beginning of a text in one line, for a table's cell.
func brief(s string) string { return printable.Brief(printable.Line(s), 160) }

// kept is an answer of the API server that is kept for some time.
type kept struct {
	until  time.Time
	of     string // what it depends on
	object runtime.Object
	err    error
}

// cachedReader is a cluster that also caches ConfigMaps of revisions and
// templates, and the controller's Lease, for some seconds: snapshots are
// frequent, and these objects are not watched. While the API server does not
// answer, the last ones stay in use.
type cachedReader struct{ *cache }

// cacheDuration is how long ConfigMaps and Leases are cached.
const cacheDuration = 15 * time.Second

// read returns the answer with this id, and reads it first if it is too old, or
// depends on something else now.
func (r cachedReader) read(ctx context.Context, id, of string, read func() (runtime.Object, error)) (runtime.Object, error) {
	r.mu.Lock()
	was, known := r.answers[id]
	r.mu.Unlock()
	if known && was.of == of && time.Now().Before(was.until) {
		return was.object, was.err
	}

	got := kept{of: of}
	got.object, got.err = read()
	if errors.Is(ctx.Err(), context.Canceled) { // by a page that was closed, which is nothing to keep
		return got.object, got.err
	}
	if known && got.err != nil && unreachable(got.err) && (was.err == nil || !unreachable(was.err)) {
		got.object, got.err = was.object, was.err
	}

	got.until = time.Now().Add(cacheDuration)
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.answers, func(_ string, a kept) bool { return time.Since(a.until) > 4*cacheDuration }) // nobody asks for it
	r.answers[id] = got

	return got.object, got.err
}

func (r cachedReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	switch object.(type) {
	case *coordinationv1.Lease, *corev1.ConfigMap:
	default:
		return r.cache.Get(ctx, key, object, options...)
	}

	got, err := r.read(ctx, fmt.Sprintf("%T %s", object, key), "", func() (runtime.Object, error) {
		got := object.DeepCopyObject().(client.Object)
		return got, r.api.Get(ctx, key, got, options...)
	})
	switch to := object.(type) {
	case *coordinationv1.Lease:
		got.(*coordinationv1.Lease).DeepCopyInto(to)
	case *corev1.ConfigMap:
		got.(*corev1.ConfigMap).DeepCopyInto(to)
	}

	return err
}

func (r cachedReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	configMaps, ok := list.(*corev1.ConfigMapList)
	if !ok {
		return r.cache.List(ctx, list, options...)
	}

	o := client.ListOptions{}
	o.ApplyOptions(options)
	name, _ := o.LabelSelector.RequiresExactMatch(v1alpha1.LabelRollout)
	r.mu.Lock()
	of := ""
	for _, n := range slices.Sorted(maps.Keys(r.rollouts)) {
		if name == "" || n == name { // without a name it lists the revisions of all
			now := r.rollouts[n]
			of += fmt.Sprint(now.Generation, now.Status.UpdateRevision, now.Status.CurrentRevision)
		}
	}

	r.mu.Unlock()
	got, err := r.read(ctx, fmt.Sprintf("list %s/%s %s", o.Namespace, name, o.Continue), of, func() (runtime.Object, error) {
		got := &corev1.ConfigMapList{}
		err := r.api.List(ctx, got, options...)
		for i := range got.Items {
			fleet.StripRevision(&got.Items[i])
		}

		return got, err
	})
	found := got.(*corev1.ConfigMapList)
	configMaps.ListMeta, configMaps.Items = found.ListMeta, slices.Clone(found.Items)

	return err
}
