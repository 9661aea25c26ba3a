// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Revision is a revision that a rollout's status lists, with its ConfigMap if
// that still exists.
type Revision struct {
	// RolloutOutcome has the state of the rollout in place of the outcome of an
	// attempt in progress.
	v1alpha1.RolloutOutcome

	Gone bool `json:"gone,omitempty"` // no ConfigMap has the revision's UID and payload

	Object   *corev1.ConfigMap `json:"-"` // nil: gone
	sameName *corev1.ConfigMap // the ConfigMap that now has the name of the revision's ConfigMap
	claims   []string          // other ConfigMaps that are labelled with the number

	namespace string // of the ConfigMap
}

// Revisions returns the revisions that a rollout's status lists, the oldest
// first. It ignores the labels of ConfigMaps: everyone with the permission to
// create a ConfigMap can set them. unlisted are the ConfigMaps that have the
// label of the rollout only. Nodes can still run some of them, since the
// history is short.
func Revisions(ctx context.Context, c client.Reader, r *v1alpha1.NodeConfigRollout) (all []Revision, unlisted []string, err error) {
	settings, err := Settings(ctx, c, r)
	if err != nil {
		return nil, nil, err
	}

	objects, err := Labelled(ctx, c, settings.Namespace, r.Name)
	if err != nil {
		return nil, nil, err
	}

	all = revisionsOf(r, objects)
	for i := range all {
		all[i].namespace = settings.Namespace
	}

	for _, name := range slices.Sorted(maps.Keys(objects)) {
		if !slices.ContainsFunc(all, func(p Revision) bool { return p.Object == objects[name] }) {
			unlisted = append(unlisted, name)
		}
	}

	return all, unlisted, nil
}

// revisionsOf returns the revisions that a status lists, given the ConfigMaps
// that are labelled with the rollout, by name.
func revisionsOf(r *v1alpha1.NodeConfigRollout, objects map[string]*corev1.ConfigMap) []Revision {
	all := map[int64]*Revision{}
	at := func(number int64, name string) *Revision {
		p := all[number]
		if p == nil {
			p = &Revision{RolloutOutcome: v1alpha1.RolloutOutcome{Revision: number}}
			all[number] = p
		}

		p.ConfigMap = cmp.Or(p.ConfigMap, name)

		return p
	}
	for _, o := range r.Status.History {
		at(o.Revision, o.ConfigMap).RolloutOutcome = o
	}

	if v := r.Status.CurrentRevision; v != nil {
		p := at(v.Number, v.ConfigMapRef.Name)
		p.Outcome = cmp.Or(p.Outcome, v1alpha1.OutcomeSucceeded)
	}

	if v := r.Status.UpdateRevision; v != nil {
		p, st := at(v.Number, v.ConfigMapRef.Name), &r.Status
		// While an attempt is in progress, the outcome of an earlier attempt
		// does not count.
		again := st.Halt == nil && st.Phase != v1alpha1.RolloutComplete && (st.CurrentRevision == nil || st.CurrentRevision.Number != v.Number)
		if p.Outcome == "" || p.EndTime == nil || again {
			p.EndTime, p.Reason = nil, ""
			if st.Halt != nil {
				p.Reason = st.Halt.Reason
			}
			if p.Message != "" && again {
				p.Message = "; earlier: " + p.Message
			}

			p.Outcome, p.StartTime, p.Message = cmp.Or(string(st.Phase), "Unknown"), st.StartTime, st.Message+p.Message
			p.Updated, p.Failed = st.Nodes.Updated, st.Nodes.Failed
		}
	}

	var out []Revision
	for _, number := range slices.Sorted(maps.Keys(all)) {
		p := all[number]
		// Content that becomes the target again keeps its ConfigMap, which then
		// has the newer number.
		is := fleet.Numbered(&r.Status, number)
		p.sameName, p.UID, p.SHA256 = objects[p.ConfigMap], is.UID, is.SHA256
		if fleet.Holds(p.sameName, &is) {
			p.Object = p.sameName
		}

		p.Gone = p.Object == nil
		for _, name := range slices.Sorted(maps.Keys(objects)) {
			if cm := objects[name]; cm != p.Object && fleet.NumberOf(cm) == number {
				p.claims = append(p.claims, cm.Namespace+"/"+cm.Name)
			}
		}

		out = append(out, *p)
	}

	return out
}

// Labelled returns the ConfigMaps in a namespace that are labelled with a
// rollout, by name. Not all need to be its revisions.
func Labelled(ctx context.Context, c client.Reader, namespace, name string) (map[string]*corev1.ConfigMap, error) {
	objects, err := listLabelled(ctx, c, namespace, client.MatchingLabels{v1alpha1.LabelRollout: name})
	if err != nil {
		return nil, fmt.Errorf("list the ConfigMaps of the revisions of rollout %q in %s: %w", name, namespace, err)
	}

	return objects, nil
}

func listLabelled(ctx context.Context, c client.Reader, namespace string, with client.ListOption) (map[string]*corev1.ConfigMap, error) {
	objects := map[string]*corev1.ConfigMap{}
	for cm, err := range Pages[*corev1.ConfigMap](ctx, c, &corev1.ConfigMapList{}, client.InNamespace(namespace), with) {
		if err != nil {
			return nil, err
		}

		objects[cm.Name] = cm
	}

	return objects, nil
}

// ContentAt returns the content of a revision. The error says why it is not
// available, and lists the available revisions.
func ContentAt(r *v1alpha1.NodeConfigRollout, all []Revision, number int64) (payload.Payload, error) {
	at := slices.IndexFunc(all, func(p Revision) bool { return p.Revision == number })
	if at < 0 {
		return payload.Payload{}, fmt.Errorf("the status of rollout %q lists no revision %d; available revisions: %s", r.Name, number,
			Available(all))
	}

	p := all[at]
	what := fmt.Sprintf("ConfigMap %s/%s", p.namespace, cmp.Or(p.ConfigMap, "(unknown)"))
	refuse := func(format string, args ...any) (payload.Payload, error) {
		return payload.Payload{}, fmt.Errorf(format+"; available revisions: %s", append(args, Available(all))...)
	}
	switch {
	case len(p.claims) > 0 && p.Object != nil:
		return payload.Payload{}, fmt.Errorf("revision %d of rollout %q has several ConfigMaps: the rollout's status lists %s, but not %s: "+
			"find out who created the latter, and delete it", number, r.Name, what, printable.Few(p.claims))
	case p.sameName == nil:
		return refuse("%s of revision %d of rollout %q was deleted", what, number, r.Name)
	case p.sameName.UID != p.UID:
		return refuse("%s of revision %d of rollout %q was deleted and created again: it has another UID than the rollout's status lists", what,
			number, r.Name)
	case p.Object == nil:
		return refuse("%s of revision %d of rollout %q was changed: its payload has another SHA-256 than the rollout's status lists", what,
			number, r.Name)
	}

	content, err := payload.FromConfigMap(p.Object)
	if err != nil {
		return payload.Payload{}, fmt.Errorf("revision %d of rollout %q: %w", number, r.Name, err)
	}

	return content, nil
}

// Available lists the revisions whose content is available.
func Available(all []Revision) string {
	var numbers []string
	for _, p := range slices.Backward(all) {
		if !p.Gone {
			numbers = append(numbers, fmt.Sprint(p.Revision))
		}
	}

	if len(numbers) == 0 {
		return "none"
	}

	return printable.Few(numbers)
}
