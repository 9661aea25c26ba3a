package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/controller"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// unmadeUID stands for the UID of a revision that the controller has not made yet.
const unmadeUID = "not made yet"

// pages yields the objects of a list, page by page, in the order of their names. An error ends it.
func pages[T any, L client.ObjectList](ctx context.Context, c client.Client, empty func() L, items func(L) []T, options ...client.ListOption) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		for token := ""; ; {
			list := empty()
			if err := c.List(ctx, list, append([]client.ListOption{client.Limit(pageSize), client.Continue(token)}, options...)...); err != nil {
				yield(nil, err)
				return
			}
			all := items(list)
			for i := range all {
				if !yield(&all[i], nil) {
					return
				}
			}
			if token = list.GetContinue(); token == "" {
				return
			}
		}
	}
}

// metadata yields of the objects of a list what is the same for all kinds.
func metadata(ctx context.Context, c client.Client, kind schema.GroupVersionKind, options ...client.ListOption) iter.Seq2[*metav1.PartialObjectMetadata, error] {
	empty := func() *metav1.PartialObjectMetadataList {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		return list
	}
	return pages(ctx, c, empty, func(l *metav1.PartialObjectMetadataList) []metav1.PartialObjectMetadata { return l.Items }, options...)
}

// configs yields all NodeConfigs.
func configs(ctx context.Context, c client.Client) iter.Seq2[*v1alpha1.NodeConfig, error] {
	return pages(ctx, c, func() *v1alpha1.NodeConfigList { return &v1alpha1.NodeConfigList{} },
		func(l *v1alpha1.NodeConfigList) []v1alpha1.NodeConfig { return l.Items })
}

// pair is a node and its NodeConfig. Either may be nil, not both.
type pair struct {
	node   *corev1.Node
	config *v1alpha1.NodeConfig
}

// pairs yields the nodes that a selector selects with their NodeConfigs, by name; for a selector that selects every node
// also NodeConfigs without a node. It never holds more than a page of each.
func pairs(ctx context.Context, c client.Client, selector labels.Selector) iter.Seq2[pair, error] {
	return func(yield func(pair, error) bool) {
		nextNode, stopNodes := iter.Pull2(pages(ctx, c, func() *corev1.NodeList { return &corev1.NodeList{} },
			func(l *corev1.NodeList) []corev1.Node { return l.Items }, client.MatchingLabelsSelector{Selector: selector}))
		defer stopNodes()
		nextConfig, stopConfigs := iter.Pull2(configs(ctx, c))
		defer stopConfigs()

		node, err, _ := nextNode()
		if err != nil {
			yield(pair{}, fmt.Errorf("list nodes: %w", err))
			return
		}
		config, err, _ := nextConfig()
		for {
			switch {
			case err != nil:
				yield(pair{}, fmt.Errorf("list NodeConfigs (is evenkeel's API installed?): %w", err))
				return
			case node == nil && config == nil:
				return
			case config == nil || node != nil && node.Name < config.Name:
				if !yield(pair{node: node}, nil) {
					return
				}
			case node == nil || config.Name < node.Name:
				if selector.Empty() && !yield(pair{config: config}, nil) {
					return
				}
				config, err, _ = nextConfig()
				continue
			default:
				if !yield(pair{node, config}, nil) {
					return
				}
				config, err, _ = nextConfig()
			}
			var nodeErr error
			if node, nodeErr, _ = nextNode(); nodeErr != nil {
				yield(pair{}, fmt.Errorf("list nodes: %w", nodeErr))
				return
			}
		}
	}
}

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
		if nodes, _, err := controller.Selectors(&r.Spec); err == nil {
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

// fleet is all that a plan of one rollout is made of.
type fleet struct {
	policy   rollout.Policy
	progress rollout.Progress
	nodes    []rollout.Node
	zones    []string // of the nodes
	content  controller.Content
}

// gather reads what the plan of a rollout needs. A rollout that is not stored takes the place of the one of its name.
// each, if not nil, is called for every node that the rollout selects, in the order of the nodes.
func gather(ctx context.Context, c client.Client, r *v1alpha1.NodeConfigRollout, each func(pair)) (*fleet, error) {
	list, err := rollouts(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("list rollouts: %w", err)
	}
	now := time.Now()
	r, all := inPlace(r, list.Items, now)
	var source *corev1.ConfigMap
	if ref := r.Spec.Template.ConfigMapRef; ref != nil {
		if source, err = named(ctx, c, ref); err != nil {
			return nil, fmt.Errorf("the template of rollout %s: %w", r.Name, err)
		}
	}
	revisions, numbers, err := revisionObjects(ctx, c, r.Name)
	if err != nil {
		return nil, err
	}
	f, canaries, selector, err := policyOf(r, source, revisions, numbers, now)
	if err != nil {
		return nil, err
	}
	others := claimants(all)
	for p, err := range pairs(ctx, c, selector) {
		if err != nil {
			return nil, err
		}
		if p.node == nil {
			continue
		}
		n := controller.NodeOf(p.node, p.config)
		n.Domain = p.node.Labels[r.Spec.Strategy.TopologyKey]
		n.Canary = canaries.Matches(labels.Set(p.node.Labels))
		if holder := rollout.Holder(claimsOn(others, p.node), &n); holder != r.Name {
			n.Owner = holder
		}
		f.nodes = append(f.nodes, n)
		f.zones = append(f.zones, p.node.Labels[corev1.LabelTopologyZone])
		if each != nil {
			each(p)
		}
	}
	return f, nil
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

// policyOf returns a fleet without its nodes: what the rollout wants, and what it remembers. An error is for what no plan
// can be made of; a template that cannot be used is in the policy.
func policyOf(r *v1alpha1.NodeConfigRollout, source *corev1.ConfigMap, revisions map[string]*corev1.ConfigMap, numbers map[string]int64, now time.Time) (f *fleet, canaries, selector labels.Selector, err error) {
	selector, canaries, selectErr := controller.Selectors(&r.Spec)
	p, policyErr := controller.PolicyOf(r, controller.DefaultTimes, now)
	if err := errors.Join(selectErr, policyErr); err != nil {
		return nil, nil, nil, fmt.Errorf("rollout %s: %w", r.Name, err)
	}
	f = &fleet{policy: p, progress: controller.ProgressOf(&r.Status)}
	if current := r.Status.CurrentRevision; current != nil {
		f.policy.LastSucceeded = revisionOf(*current)
		cm := revisions[current.ConfigMapRef.Name]
		f.policy.LastSucceeded.Gone = cm == nil || cm.UID != current.ConfigMapRef.UID
	}
	if f.content, err = controller.ContentOf(r.Spec.Template, source); err != nil {
		f.policy.Invalid = err.Error()
		return f, canaries, selector, nil
	}
	f.policy.Target = targetOf(r, f.content, revisions, numbers)
	return f, canaries, selector, nil
}

func revisionOf(v v1alpha1.RolloutRevision) rollout.Revision {
	ref := v.ConfigMapRef
	return rollout.Revision{Number: v.Number, Namespace: ref.Namespace, Name: ref.Name, UID: string(ref.UID), SHA256: ref.SHA256}
}

// targetOf returns the revision that a content is, or will be: the one that is rolled out already, else the next one.
func targetOf(r *v1alpha1.NodeConfigRollout, content controller.Content, revisions map[string]*corev1.ConfigMap, numbers map[string]int64) rollout.Revision {
	var newest int64
	if u := r.Status.UpdateRevision; u != nil {
		if newest = u.Number; u.ConfigMapRef.SHA256 == content.SHA256 {
			return revisionOf(*u)
		}
	}
	target := rollout.Revision{Namespace: v1alpha1.SystemNamespace, Name: controller.RevisionName(r.Name, content.SHA256), UID: unmadeUID, SHA256: content.SHA256}
	for _, number := range numbers {
		newest = max(newest, number)
	}
	if cm := revisions[target.Name]; cm != nil {
		target.UID, target.Number = string(cm.UID), numbers[target.Name]
	}
	if target.Number != newest || newest == 0 {
		target.Number = newest + 1
	}
	return target
}

// payloadOf returns the payload of a revision's content.
func payloadOf(c controller.Content) (payload.Payload, error) {
	return payload.Decode(c.Key, []byte(c.Data))
}
