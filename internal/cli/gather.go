package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/controller"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

const (
	// listPage is how many objects a list asks for at once.
	listPage = 500
	// revisionNamespace holds the ConfigMaps of all revisions.
	revisionNamespace = "evenkeel-system"
	// unmadeUID stands for the UID of a revision that the controller has not made yet.
	unmadeUID = "not made yet"
)

// pages yields the objects of a list, page by page, in the order of their names. An error ends it.
func pages[T any, L client.ObjectList](ctx context.Context, c client.Reader, empty func() L, items func(L) []T, options ...client.ListOption) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		for token := ""; ; {
			list := empty()
			if err := c.List(ctx, list, append([]client.ListOption{client.Limit(listPage), client.Continue(token)}, options...)...); err != nil {
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

// pair is a node and its NodeConfig. Either may be nil, not both.
type pair struct {
	node   *corev1.Node
	config *v1alpha1.NodeConfig
}

// pairs yields the nodes that a selector selects with their NodeConfigs, by name; for a selector that selects every node
// also NodeConfigs without a node. It never holds more than a page of each.
func pairs(ctx context.Context, c client.Reader, selector labels.Selector) iter.Seq2[pair, error] {
	return func(yield func(pair, error) bool) {
		nextNode, stopNodes := iter.Pull2(pages(ctx, c, func() *corev1.NodeList { return &corev1.NodeList{} },
			func(l *corev1.NodeList) []corev1.Node { return l.Items }, client.MatchingLabelsSelector{Selector: selector}))
		defer stopNodes()
		nextConfig, stopConfigs := iter.Pull2(pages(ctx, c, func() *v1alpha1.NodeConfigList { return &v1alpha1.NodeConfigList{} },
			func(l *v1alpha1.NodeConfigList) []v1alpha1.NodeConfig { return l.Items }))
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

// listRollouts returns all rollouts.
func listRollouts(ctx context.Context, c client.Reader) ([]v1alpha1.NodeConfigRollout, error) {
	var out []v1alpha1.NodeConfigRollout
	for r, err := range pages(ctx, c, func() *v1alpha1.NodeConfigRolloutList { return &v1alpha1.NodeConfigRolloutList{} },
		func(l *v1alpha1.NodeConfigRolloutList) []v1alpha1.NodeConfigRollout { return l.Items }) {
		if err != nil {
			return nil, fmt.Errorf("list NodeConfigRollouts (is evenkeel's API installed?): %w", err)
		}
		out = append(out, *r)
	}
	return out, nil
}

// gather reads what the plan of a rollout needs. A rollout that is not stored takes the place of the one of its name.
// each, if not nil, is called for every node that the rollout selects, in the order of the nodes.
func gather(ctx context.Context, c client.Reader, r *v1alpha1.NodeConfigRollout, each func(pair)) (*fleet, error) {
	all, err := listRollouts(ctx, c)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	r, all = inPlace(r, all, now)
	named, err := contentSource(ctx, c, r)
	if err != nil {
		return nil, err
	}
	revisions, err := listRevisions(ctx, c, r.Name)
	if err != nil {
		return nil, err
	}
	f, canaries, selector, err := policyOf(r, named, revisions, now)
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

// contentSource returns the ConfigMap that a template names; nil if it names none.
func contentSource(ctx context.Context, c client.Reader, r *v1alpha1.NodeConfigRollout) (*corev1.ConfigMap, error) {
	ref := r.Spec.Template.ConfigMapRef
	if ref == nil {
		return nil, nil
	}
	var cm corev1.ConfigMap
	if err := c.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &cm); err != nil {
		return nil, fmt.Errorf("the template of rollout %s names ConfigMap %s/%s: create it, or name another: %w", r.Name, ref.Namespace, ref.Name, err)
	}
	return &cm, nil
}

// revision is a ConfigMap that holds a revision.
type revision struct {
	number int64
	cm     *corev1.ConfigMap
}

// listRevisions returns the revisions of a rollout that are there, oldest first.
func listRevisions(ctx context.Context, c client.Reader, name string) ([]revision, error) {
	var out []revision
	for cm, err := range pages(ctx, c, func() *corev1.ConfigMapList { return &corev1.ConfigMapList{} },
		func(l *corev1.ConfigMapList) []corev1.ConfigMap { return l.Items },
		client.InNamespace(revisionNamespace), client.MatchingLabels{v1alpha1.LabelRollout: name}) {
		if err != nil {
			return nil, fmt.Errorf("list the revisions of rollout %s (ConfigMaps in %s): %w", name, revisionNamespace, err)
		}
		if n, err := strconv.ParseInt(cm.Labels[v1alpha1.LabelRevision], 10, 64); err == nil && n > 0 {
			out = append(out, revision{n, cm})
		}
	}
	slices.SortFunc(out, func(a, b revision) int { return int(a.number - b.number) })
	return out, nil
}

// policyOf returns a fleet without its nodes: what the rollout wants, and what it remembers. An error is for what no plan
// can be made of; a template that cannot be used is in the policy.
func policyOf(r *v1alpha1.NodeConfigRollout, named *corev1.ConfigMap, revisions []revision, now time.Time) (f *fleet, canaries, selector labels.Selector, err error) {
	selector, canaries, selectErr := controller.Selectors(&r.Spec)
	p, policyErr := controller.PolicyOf(r, controller.DefaultTimes, now)
	if err := errors.Join(selectErr, policyErr); err != nil {
		return nil, nil, nil, fmt.Errorf("rollout %s: %w", r.Name, err)
	}
	f = &fleet{policy: p, progress: controller.ProgressOf(&r.Status)}
	if current := r.Status.CurrentRevision; current != nil {
		f.policy.LastSucceeded = revisionOf(*current)
		f.policy.LastSucceeded.Gone = !slices.ContainsFunc(revisions, func(v revision) bool { return v.cm.UID == current.ConfigMapRef.UID })
	}
	if f.content, err = controller.ContentOf(r.Spec.Template, named); err != nil {
		f.policy.Invalid = err.Error()
		return f, canaries, selector, nil
	}
	f.policy.Target = targetOf(r, f.content, revisions)
	return f, canaries, selector, nil
}

func revisionOf(v v1alpha1.RolloutRevision) rollout.Revision {
	ref := v.ConfigMapRef
	return rollout.Revision{Number: v.Number, Namespace: ref.Namespace, Name: ref.Name, UID: string(ref.UID), SHA256: ref.SHA256}
}

// targetOf returns the revision that a content is, or will be: the one that is rolled out already, else the next one.
func targetOf(r *v1alpha1.NodeConfigRollout, content controller.Content, revisions []revision) rollout.Revision {
	var newest int64
	if u := r.Status.UpdateRevision; u != nil {
		if newest = u.Number; u.ConfigMapRef.SHA256 == content.SHA256 {
			return revisionOf(*u)
		}
	}
	target := rollout.Revision{Namespace: revisionNamespace, Name: controller.RevisionName(r.Name, content.SHA256), UID: unmadeUID, SHA256: content.SHA256}
	for _, v := range revisions {
		newest = max(newest, v.number)
		if v.cm.Name == target.Name {
			target.UID, target.Number = string(v.cm.UID), v.number
		}
	}
	if target.Number != newest || newest == 0 {
		target.Number = newest + 1
	}
	return target
}

// getRollout returns a rollout. The error names it and the next step.
func getRollout(ctx context.Context, c client.Reader, name string) (*v1alpha1.NodeConfigRollout, error) {
	var r v1alpha1.NodeConfigRollout
	err := c.Get(ctx, client.ObjectKey{Name: name}, &r)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no rollout %q; see `kubectl evenkeel rollout list`: %w", name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("get rollout %s: %w", name, err)
	}
	return &r, nil
}

// payloadOf returns the payload of a revision's content.
func payloadOf(c controller.Content) (payload.Payload, error) {
	return payload.Decode(c.Key, []byte(c.Data))
}
