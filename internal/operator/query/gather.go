// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// Fleet is the input of a rollout's plan.
type Fleet struct {
	Input    rollout.Input
	Nodes    []rollout.Node
	Zones    []string           // of Nodes, in their order
	Restarts []fleet.Restart    // of Nodes, in their order
	Machines []payload.Capacity // of Nodes, in their order
	Template fleet.Template     // what the rollout's template holds

	// active has the ConfigMaps that nodes run, by the sha256 of their payload,
	// as the nodes report them.
	active map[string]client.ObjectKey
	// trial is the longest default length of a trial that the nodes report; 0:
	// none does.
	trial time.Duration
	// draining says what drains wait for, by node, as the controller wrote it
	// into the rollout's status: only the controller knows the pods of a node.
	draining map[string]string
}

// Plan decides what the rollout does next.
func (f *Fleet) Plan() rollout.Result { return rollout.Plan(f.Input, f.Nodes) }

// NodeState returns the state of a node in a plan of the fleet.
func (f *Fleet) NodeState(plan *rollout.Result, i int) rollout.NodeState {
	s := plan.NodeState(i)
	if message, ok := f.draining[f.Nodes[i].Name]; ok && s.State == rollout.Draining {
		s.Message = message
	}

	return s
}

// Content returns the content with a sha256 that the rollout rolls out, had as
// a revision, or that a node runs. Empty is that of the local configuration,
// which is a zero Payload.
func (f *Fleet) Content(ctx context.Context, c client.Reader, sha256 string) (payload.Payload, error) {
	switch sha256 {
	case "":
		return payload.Payload{}, nil
	case f.Template.Content.SHA256:
		return f.Template.Content, nil
	}

	key, runs := f.active[sha256]
	if !runs {
		key = client.ObjectKey{Namespace: f.Input.Target.ConfigMapRef.Namespace, Name: fleet.RevisionName(f.Input.Name, sha256)}
	}

	cm, err := readConfigMap(ctx, c, key.Namespace, key.Name)
	if err != nil {
		return payload.Payload{}, err
	}

	p, err := payload.FromConfigMap(cm)
	if err == nil && p.SHA256 != sha256 {
		err = fmt.Errorf("ConfigMap %s has another content now", key)
	}

	return p, err
}

// maxBehind is by how much this machine's clock may be behind the controller's:
// later records are ignored.
const maxBehind = time.Hour

// Gather reads the input of a rollout's plan. A rollout that is not stored
// replaces the stored one of its name. visit, if not nil, is called for each
// node that the rollout selects, in the order of Fleet.Nodes. An invalid spec,
// an unusable template and a missing ConfigMap of the template are no errors:
// Input.Invalid says why, as in the controller.
func Gather(ctx context.Context, c client.Reader, r *v1alpha1.NodeConfigRollout, visit func(fleet.Pair)) (*Fleet, error) {
	list, err := Rollouts(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("list rollouts: %w", err)
	}

	now := time.Now()
	r, all := inPlace(r, list.Items, now)
	now = rollout.Latest(now, fleet.RecordedInStatus(&r.Status)) // this machine's clock may be behind the controller's
	selection, invalid := fleet.SelectionOf(r)                   // Input.Invalid reports the error
	in := fleet.Objects{Rollout: r, Settings: fleet.SettingsOf(r, all), Now: now}
	if in.Template, err = templateIn(ctx, c, r, in.Settings.Namespace); err != nil {
		return nil, fmt.Errorf("the template of rollout %s: %w", r.Name, err)
	}
	if in.Revisions, err = revisionsIn(ctx, c, &in); err != nil {
		return nil, err
	}

	f := &Fleet{Template: in.Template, active: map[string]client.ObjectKey{}, draining: map[string]string{}}
	for _, d := range r.Status.DrainingNodes {
		f.draining[d.Name] = d.Message
	}

	others := fleet.SelectionsOf(all)
	latest := now.Add(maxBehind)
	if invalid != nil { // no node is selected
		f.build(ctx, c, in)
		return f, nil
	}

	listed := selection.Nodes
	first := r.Status.UpdateRevision == nil
	if first { // its number depends on assignments of an earlier rollout of the same name, to any node
		listed = labels.Everything()
	}

	for p, err := range Pairs(ctx, c, listed) {
		if err != nil {
			return nil, err
		}
		if p.Node == nil {
			continue
		}

		n := fleet.NodeOf(p.Node, p.Config)
		fleet.IgnoreLater(&n, latest)
		if first && n.Source.By().Name == r.Name {
			in.Assigned = append(in.Assigned, n.Source.By().Revision)
		}
		if !selection.Selects(p.Node) {
			continue
		}

		n.WentNotReady = wentNotReady(p.Node, now)
		n.Maintenance = fleet.MaintenanceOf(p.Node, in.Settings.Maintenance)
		selection.Place(&n, p.Node, rollout.Holder(fleet.ClaimsOn(others, p.Node), &n))
		in.Now = rollout.Latest(in.Now, fleet.RecordedOnNode(r.Name, &n))
		f.Nodes = append(f.Nodes, n)
		f.Zones = append(f.Zones, p.Node.Labels[corev1.LabelTopologyZone])
		f.Restarts = append(f.Restarts, p.Restart())
		f.Machines = append(f.Machines, payload.CapacityOf(p.Node.Status.Capacity))
		f.trial = max(f.trial, n.DefaultTrial)
		if p.Config != nil && p.Config.Status.Active != nil {
			f.active[n.Active.Digest()] = client.ObjectKey{Namespace: p.Config.Status.Active.Namespace, Name: p.Config.Status.Active.Name}
		}
		if visit != nil {
			visit(p)
		}
	}

	for i := range f.Nodes {
		if n := &f.Nodes[i]; n.Maintenance != "" {
			n.MaintenanceSince = in.Now // of earlier maintenance only what the controller has recorded is known
		}
	}

	f.build(ctx, c, in)
	if slices.ContainsFunc(f.Nodes, func(n rollout.Node) bool { return n.ControlPlane }) {
		f.Input.ControlPlanes, err = otherControlPlanes(ctx, c, selection)
	}

	return f, err
}

// otherControlPlanes returns the control planes that a rollout does not select.
func otherControlPlanes(ctx context.Context, c client.Reader, selection fleet.Selection) (others []rollout.Node, err error) {
	for node, err := range Pages[*corev1.Node](ctx, c, &corev1.NodeList{}, client.HasLabels{fleet.LabelControlPlane}) {
		if err != nil {
			return nil, fmt.Errorf("list control planes: %w", err)
		}
		if selection.Selects(node) {
			continue
		}

		nc := &v1alpha1.NodeConfig{}
		if err := c.Get(ctx, client.ObjectKey{Name: node.Name}, nc); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read NodeConfig %s: %w", node.Name, err)
		} else if err != nil {
			nc = nil
		}

		others = append(others, fleet.NodeOf(node, nc))
	}

	return others, nil
}

// build sets the policy and the progress. The controller observes at least
// since it acquired its Lease, on the clock of its machine; only the controller
// knows about later gaps. Without permission to read the Lease, there are none.
func (f *Fleet) build(ctx context.Context, c client.Reader, in fleet.Objects) {
	f.Input = fleet.Build(in)
	if l, err := ControllerLease(ctx, c, in.Settings.Namespace); err == nil && l.Spec.AcquireTime != nil {
		at := l.Spec.AcquireTime.Time
		f.Input.Outages = rollout.Outages{{From: at, To: at}}
	}
}

// NewFleet returns the fleet of a rollout that has not begun, without nodes and
// with the controller's default settings. It reads nothing.
func NewFleet(r *v1alpha1.NodeConfigRollout, now time.Time) *Fleet {
	in := fleet.Objects{Rollout: r, Template: fleet.TemplateOf(r, nil, nil), Settings: fleet.DefaultSettings, Now: now}
	f := &Fleet{Template: in.Template}
	f.Input = fleet.Build(in)
	return f
}

// templateIn returns what a rollout shall roll out. It reads the ConfigMap that
// the template names, and the one in the controller's namespace that spec.pin
// names.
func templateIn(ctx context.Context, c client.Reader, r *v1alpha1.NodeConfigRollout, namespace string) (fleet.Template, error) {
	var source, pinned *corev1.ConfigMap
	var err error
	if ref := r.Spec.Template.ConfigMapRef; ref != nil {
		if source, err = readConfigMap(ctx, c, ref.Namespace, ref.Name); client.IgnoreNotFound(err) != nil {
			return fleet.Template{}, err
		}
	}

	if name := fleet.PinnedName(r); name != "" {
		if pinned, err = readConfigMap(ctx, c, namespace, name); client.IgnoreNotFound(err) != nil {
			return fleet.Template{}, err
		}
	}

	return fleet.TemplateOf(r, source, pinned), nil
}

// revisionsIn returns the ConfigMaps of the rollout's revisions, stripped, and
// names the stopped ones of other rollouts in the input. A ConfigMap that has
// the name of the template's revision, but not its label, makes the template
// unusable: the controller cannot create the revision then.
func revisionsIn(ctx context.Context, c client.Reader, in *fleet.Objects) (map[string]*corev1.ConfigMap, error) {
	found, err := listLabelled(ctx, c, in.Settings.Namespace, client.HasLabels{v1alpha1.LabelRollout})
	if err != nil {
		return nil, fmt.Errorf("list the ConfigMaps of the revisions of rollout %q and others in %s: %w", in.Rollout.Name, in.Settings.Namespace,
			err)
	}

	maps.DeleteFunc(found, func(name string, cm *corev1.ConfigMap) bool {
		elsewhere := cm.Labels[v1alpha1.LabelRollout] != in.Rollout.Name
		if elsewhere && fleet.MarkedStopped(cm) {
			in.StoppedElsewhere = append(in.StoppedElsewhere, name)
		}

		return elsewhere
	})
	slices.Sort(in.StoppedElsewhere)
	if in.Template.Err == nil {
		key := client.ObjectKey{Namespace: in.Settings.Namespace, Name: fleet.RevisionName(in.Rollout.Name, in.Template.Content.SHA256)}
		if found[key.Name] == nil {
			other := &corev1.ConfigMap{}
			err := c.Get(ctx, key, other)
			if client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("read ConfigMap %s: %w", key, err)
			} else if err == nil {
				in.Template.Err = fleet.CheckRevision(other, in.Rollout.Name, in.Template.Content.SHA256)
			}
		}
	}

	for _, cm := range found {
		fleet.StripRevision(cm)
	}

	return found, nil
}

// wentNotReady returns when a Node became not Ready, according to its
// condition; zero if it is Ready. The controller uses the time at which it saw
// the change and does not publish it, so plans made here only estimate which
// nodes are overdue.
func wentNotReady(node *corev1.Node, now time.Time) time.Time {
	if fleet.IsReady(node) {
		return time.Time{}
	}
	if c := fleet.ReadyCondition(node); c != nil && c.LastTransitionTime.Time.Before(now) {
		return c.LastTransitionTime.Time
	}

	return now
}

// inPlace replaces the stored rollout of the same name, or appends the rollout.
func inPlace(r *v1alpha1.NodeConfigRollout, all []v1alpha1.NodeConfigRollout, now time.Time) (*v1alpha1.NodeConfigRollout,
	[]v1alpha1.NodeConfigRollout) {
	r = r.DeepCopy()
	i := slices.IndexFunc(all, func(s v1alpha1.NodeConfigRollout) bool { return s.Name == r.Name })
	switch {
	case i < 0:
		r.CreationTimestamp.Time = now
		return r, append(all, *r)
	case r.UID == "":
		r.CreationTimestamp, r.Status = all[i].CreationTimestamp, all[i].Status
	}

	all[i] = *r

	return r, all
}

// readConfigMap reads a ConfigMap. It returns nil beside an error.
func readConfigMap(ctx context.Context, c client.Reader, namespace, name string) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, cm); err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", namespace, name, err)
	}

	return cm, nil
}

// ContentIn returns the content of a rollout's template. It reads the
// template's ConfigMap if there is a reference to one.
func ContentIn(ctx context.Context, c client.Reader, t v1alpha1.RolloutTemplate) (payload.Payload, error) {
	if t.ConfigMapRef == nil {
		return fleet.ContentOf(t, nil)
	}

	source, err := readConfigMap(ctx, c, t.ConfigMapRef.Namespace, t.ConfigMapRef.Name)
	if err != nil {
		return payload.Payload{}, err
	}

	return fleet.ContentOf(t, source)
}

// AnswerTime is how long a plan assumes that an agent takes to start a trial.
const AnswerTime = 5 * time.Second

// DrainTime returns how long a plan assumes that the drain of a node takes: it
// succeeds within the rollout's timeout.
func (f *Fleet) DrainTime() time.Duration {
	most := 2 * time.Minute
	if o := f.Input.Spec.Strategy.DrainOptions; o != nil && o.TimeoutSeconds > 0 {
		most = min(most, time.Duration(o.TimeoutSeconds)*time.Second/2)
	}

	return most
}

// TrialTime returns the duration of a trial: the one in the template or in
// spec.trial, else otherwise, else the longest default that the nodes' agents
// report. Of agents that do not report it, the longest present trial counts,
// and without one their default.
func (f *Fleet) TrialTime(otherwise time.Duration) time.Duration {
	if d := f.Template.Trial.ConfigTrialDuration; d != nil {
		return d.Duration
	}

	var seen time.Duration
	for i := range f.Nodes {
		seen = max(seen, f.Nodes[i].TrialLength)
	}

	return cmp.Or(otherwise, f.trial, seen, fleet.DefaultTrial)
}
