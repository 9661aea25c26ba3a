package report

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// UnmadeUID stands for the UID of a revision that the controller has not made yet.
const UnmadeUID = "not made yet"

// claimant is a rollout as far as it decides who has a node.
type claimant struct {
	claim rollout.Claim
	nodes labels.Selector
}

// claimants returns all rollouts that can have nodes.
func claimants(all []v1alpha1.NodeConfigRollout) []claimant {
	var out []claimant
	for i := range all {
		r := &all[i]
		if nodes, _, err := policy.Selectors(&r.Spec); err == nil {
			claim := rollout.Claim{Name: r.Name, Priority: r.Spec.Priority, Created: r.CreationTimestamp.Time}
			out = append(out, claimant{claim, nodes})
		}
	}
	return out
}

// claimsOn returns the claims of the rollouts that select a node.
func claimsOn(all []claimant, node *corev1.Node) []rollout.Claim {
	var out []rollout.Claim
	for _, c := range all {
		if c.nodes.Matches(labels.Set(node.Labels)) {
			out = append(out, c.claim)
		}
	}
	return out
}

// Fleet is all that a plan of one rollout is made of.
type Fleet struct {
	Policy   rollout.Policy
	Progress rollout.Progress
	Nodes    []rollout.Node
	Zones    []string // of the nodes
	Content  policy.Content
	Asked    payload.Trial // of the trial of Content
}

// Gather reads what the plan of a rollout needs. A rollout that is not stored takes the place of the one of its name.
// each, if not nil, is called for every node that the rollout selects, in the order of the nodes.
func Gather(ctx context.Context, c client.Reader, r *v1alpha1.NodeConfigRollout, each func(Pair)) (*Fleet, error) {
	list, err := Rollouts(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("list rollouts: %w", err)
	}
	now := time.Now()
	r, all := inPlace(r, list.Items, now)
	var source *corev1.ConfigMap
	if ref := r.Spec.Template.ConfigMapRef; ref != nil {
		if source, err = Named(ctx, c, ref); err != nil {
			return nil, fmt.Errorf("the template of rollout %s: %w", r.Name, err)
		}
	}
	revisions, err := Labelled(ctx, c, r.Name)
	if err != nil {
		return nil, err
	}
	f, canaries, selector, err := PolicyOf(r, source, revisions, now)
	if err != nil {
		return nil, err
	}
	others := claimants(all)
	for p, err := range Pairs(ctx, c, selector) {
		if err != nil {
			return nil, err
		}
		if p.Node == nil {
			continue
		}
		n := policy.NodeOf(p.Node, p.Config)
		n.WentNotReady = wentNotReady(p.Node, now)
		n.Domain = p.Node.Labels[r.Spec.Strategy.TopologyKey]
		n.Canary = canaries.Matches(labels.Set(p.Node.Labels))
		if holder := rollout.Holder(claimsOn(others, p.Node), &n); holder != r.Name {
			n.Owner = holder
		}
		f.Nodes = append(f.Nodes, n)
		f.Zones = append(f.Zones, p.Node.Labels[corev1.LabelTopologyZone])
		if each != nil {
			each(p)
		}
	}
	return f, nil
}

// wentNotReady is when a Node that is not Ready became so, as its condition has it. The controller goes by when it saw that
// itself, which nobody else knows: so what a plan says here of late nodes is an estimate.
func wentNotReady(node *corev1.Node, now time.Time) time.Time {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && c.LastTransitionTime.Time.Before(now) {
			return c.LastTransitionTime.Time
		}
	}
	return now
}

// inPlace puts a rollout in its place among those that are stored.
func inPlace(r *v1alpha1.NodeConfigRollout, all []v1alpha1.NodeConfigRollout, now time.Time) (*v1alpha1.NodeConfigRollout, []v1alpha1.NodeConfigRollout) {
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

// PolicyOf returns a fleet without its nodes: what the rollout wants, and what it remembers. An error is for what no plan
// can be made of; a template that cannot be used is in the policy.
func PolicyOf(r *v1alpha1.NodeConfigRollout, source *corev1.ConfigMap, revisions map[string]*corev1.ConfigMap, now time.Time) (f *Fleet, canaries, selector labels.Selector, err error) {
	selector, canaries, selectErr := policy.Selectors(&r.Spec)
	p, policyErr := policy.PolicyOf(r, policy.DefaultTimes, now)
	if err := errors.Join(selectErr, policyErr); err != nil {
		return nil, nil, nil, fmt.Errorf("rollout %s: %w", r.Name, err)
	}
	f = &Fleet{Policy: p, Progress: policy.ProgressOf(&r.Status)}
	if current := r.Status.CurrentRevision; current != nil {
		f.Policy.LastSucceeded = revisionOf(*current)
		cm := revisions[current.ConfigMapRef.Name]
		ref := current.ConfigMapRef
		f.Policy.LastSucceeded.Gone = cm == nil || !policy.Recorded{UID: ref.UID, SHA256: ref.SHA256}.Matches(cm.UID, policy.PayloadDigest(cm))
	}
	f.Content, err = policy.ContentOf(r.Spec.Template, source)
	if err == nil {
		f.Asked, err = f.Content.Asked(r.Spec.Trial)
	}
	if err != nil {
		f.Policy.Invalid = err.Error()
		return f, canaries, selector, nil
	}
	f.Policy.Target = targetOf(r, f.Content, revisions)
	return f, canaries, selector, nil
}

func revisionOf(v v1alpha1.RolloutRevision) rollout.Revision {
	ref := v.ConfigMapRef
	return rollout.Revision{Number: v.Number, Namespace: ref.Namespace, Name: ref.Name, UID: string(ref.UID), SHA256: ref.SHA256}
}

// targetOf returns the revision that a content is, or will be: the one that is rolled out already, else the next one.
func targetOf(r *v1alpha1.NodeConfigRollout, content policy.Content, revisions map[string]*corev1.ConfigMap) rollout.Revision {
	if u := r.Status.UpdateRevision; u != nil && u.ConfigMapRef.SHA256 == content.SHA256 {
		return revisionOf(*u)
	}
	number := 1 + policy.HighestNumber(r, slices.Collect(maps.Values(revisions)), nil)
	target := rollout.Revision{Number: number, Namespace: v1alpha1.SystemNamespace, Name: policy.RevisionName(r.Name, content.SHA256), UID: UnmadeUID, SHA256: content.SHA256}
	if cm := revisions[target.Name]; cm != nil && policy.PayloadDigest(cm) == content.SHA256 {
		target.UID = string(cm.UID)
	}
	return target
}

// PayloadOf returns the payload of a revision's content.
func PayloadOf(c policy.Content) (payload.Payload, error) {
	return payload.Decode(c.Key, []byte(c.Data))
}

// Named reads the ConfigMap that a template names.
func Named(ctx context.Context, c client.Reader, ref *v1alpha1.TemplateConfigMap) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, cm); err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	return cm, nil
}

// ContentIn returns what a rollout's template holds now, reading the ConfigMap that it names if it names one.
func ContentIn(ctx context.Context, c client.Reader, t v1alpha1.RolloutTemplate) (policy.Content, error) {
	if t.ConfigMapRef == nil {
		return policy.ContentOf(t, nil)
	}
	named, err := Named(ctx, c, t.ConfigMapRef)
	if err != nil {
		return policy.Content{}, err
	}
	return policy.ContentOf(t, named)
}
