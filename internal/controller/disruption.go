// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

const (
	// permissionInterval is the time between two questions about the
	// controller's own permissions, deniedInterval if one is missing.
	permissionInterval = time.Minute
	deniedInterval     = 10 * time.Second
	// readPage and maxPages limit how many pods of one node, and how many
	// PodDisruptionBudgets, are read.
	readPage = 500
	maxPages = 20
	// readers is how many nodes are read at a time.
	readers = 4
	// maxReadError is how many characters of an error are shown in a status.
	maxReadError = 200
	// disruptionsKept is how long what was read of a node is kept at least.
	disruptionsKept = time.Hour
)

// permission is an additional permission of the controller, as it was last
// asked for. Only the goroutine that runs loop uses it.
type permission struct {
	may   bool
	asked time.Time // zero: never
}

// check returns the permission. It asks again from time to time.
func (p *permission) check(now time.Time, ask func() (bool, error)) (bool, error) {
	interval := deniedInterval
	if p.may {
		interval = permissionInterval
	}

	if p.asked.IsZero() || now.Sub(p.asked) >= interval {
		may, err := ask()
		if err != nil {
			return false, err
		}

		*p = permission{may, now}
	}

	return p.may, nil
}

// disruptions is what was read for one rollout about pods and their
// PodDisruptionBudgets. Pods are not kept.
type disruptions struct {
	budgets rollout.Budgets
	nodes   map[string]*rollout.Disruptions
	static  map[string]*rollout.StaticPods
}

// mayReadPods reports whether the controller may list pods and
// PodDisruptionBudgets. It asks only while a rollout needs that.
func (c *Controller) mayReadPods(ctx context.Context, r *rolloutEntry, o *v1alpha1.NodeConfigRollout) (bool, error) {
	asked := o.Spec.Strategy.RespectDisruptionBudgets
	if asked != nil && !*asked || asked == nil && !c.fleet.disrupts(r) {
		return false, nil
	}

	return c.readPods.check(c.fleet.now(), func() (bool, error) {
		pods, err := c.may(ctx, authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"})
		budgets, err2 := c.may(ctx, authorizationv1.ResourceAttributes{Verb: "list", Group: policyv1.GroupName, Resource: "poddisruptionbudgets"})
		return pods && budgets, cmp.Or(err, err2)
	})
}

// may reports whether the controller may do something.
func (c *Controller) may(ctx context.Context, what authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what}}
	if err := c.client.Create(ctx, review); apierrors.IsForbidden(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("ask whether the controller may %s %s: %w", what.Verb, what.Resource, err)
	}

	return review.Status.Allowed, nil
}

// disrupts reports whether a restart makes pods unready on a node of a rollout.
func (f *cache) disrupts(r *rolloutEntry) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range r.nodes {
		if n.observed.Disrupts {
			return true
		}
	}

	return false
}

// planWithBudgets plans, and reads what the plan asks for about static pods,
// pods and PodDisruptionBudgets. It reports whether the plan asks for more.
func (c *Controller) planWithBudgets(ctx context.Context, r *rolloutEntry, in *planInput) (result *rollout.Result, more bool) {
	c.addDisruptions(r, in)
	result = c.plan(in)
	if !result.ReadBudgets && len(result.ReadStatic) == 0 {
		return result, false
	}
	if result.ReadBudgets {
		c.readDisruptions(ctx, r, in, result.Inspect)
	}

	c.readStaticPods(ctx, r, in.Now, result.ReadStatic)
	c.addDisruptions(r, in)
	result = c.plan(in)

	return result, result.ReadBudgets || len(result.ReadStatic) > 0
}

// addDisruptions adds what was read to the input of a plan.
func (c *Controller) addDisruptions(r *rolloutEntry, in *planInput) {
	in.Budgets = r.disruptions.budgets
	for _, nodes := range [][]rollout.Node{in.nodes, in.ControlPlanes} {
		for i := range nodes {
			if nodes[i].ControlPlane {
				nodes[i].StaticPods = r.disruptions.static[nodes[i].Name]
			}
		}
	}

	for i := range in.nodes {
		in.nodes[i].Disruptions = r.disruptions.nodes[in.nodes[i].Name]
	}
}

// readDisruptions reads the PodDisruptionBudgets, and the pods of some nodes of
// the plan.
func (c *Controller) readDisruptions(ctx context.Context, r *rolloutEntry, in *planInput, nodes []int) {
	now, d := in.Now, &r.disruptions
	budgets, err := c.readBudgets(ctx)
	if err != nil {
		c.log.Warn("cannot read PodDisruptionBudgets", "rollout", r.name, "err", err)
		d.budgets = rollout.Budgets{Time: now, Error: printable.Cut(err.Error(), maxReadError)}
		return
	}

	d.budgets = rollout.Budgets{Time: now, Allowed: fleet.AllowedBy(budgets)}
	read := make([]*rollout.Disruptions, len(nodes))
	workqueue.ParallelizeUntil(ctx, readers, len(nodes), func(k int) {
		name, found := in.nodes[nodes[k]].Name, &rollout.Disruptions{Time: now}
		var err error
		if found.Pods, err = c.podsAt(ctx, name, budgets); err != nil {
			c.log.Warn("cannot read the pods of a node", "rollout", r.name, "node", name, "err", err)
			found.Error = printable.Cut(err.Error(), maxReadError)
		}

		read[k] = found
	})
	if d.nodes == nil {
		d.nodes = map[string]*rollout.Disruptions{}
	}

	maps.DeleteFunc(d.nodes, func(_ string, was *rollout.Disruptions) bool { return now.Sub(was.Time) > disruptionsKept })
	for k, i := range nodes {
		if read[k] != nil { // not told to stop
			d.nodes[in.nodes[i].Name] = read[k]
		}
	}
}

// readStaticPods reads the static pods of control planes, which are in
// kube-system. Without the right to list pods there, they do not matter.
func (c *Controller) readStaticPods(ctx context.Context, r *rolloutEntry, now time.Time, nodes []string) {
	for _, name := range nodes {
		pods, err := c.podsOf(ctx, name, metav1.NamespaceSystem)
		found := &rollout.StaticPods{Time: now, NotReady: fleet.StaticPodsNotReady(pods)}
		if err != nil && !apierrors.IsForbidden(err) {
			c.log.Warn("cannot read the static pods of a control plane", "rollout", r.name, "node", name, "err", err)
			found.Error = printable.Cut(err.Error(), maxReadError)
		}

		if r.disruptions.static == nil {
			r.disruptions.static = map[string]*rollout.StaticPods{}
		}

		r.disruptions.static[name] = found
	}
}

// readBudgets reads all PodDisruptionBudgets.
func (c *Controller) readBudgets(ctx context.Context) (budgets []policyv1.PodDisruptionBudget, err error) {
	err = c.readPages(ctx, "PodDisruptionBudgets", func(o ...client.ListOption) (string, error) {
		list := &policyv1.PodDisruptionBudgetList{}
		err := c.client.List(ctx, list, o...)
		budgets = append(budgets, list.Items...)
		return list.Continue, err
	})
	return budgets, err
}

// podsAt reads the pods of a node, and counts those that a restart of the
// kubelet makes unready, by PodDisruptionBudget.
func (c *Controller) podsAt(ctx context.Context, name string, budgets []policyv1.PodDisruptionBudget) (map[string]int, error) {
	known := c.fleet.pair(name)
	if known.Node == nil || known.Config == nil {
		return nil, fmt.Errorf("node %s or its NodeConfig is gone", name)
	}

	pods, err := c.podsOf(ctx, name, metav1.NamespaceAll)
	if err != nil {
		return nil, err
	}

	return fleet.DisruptedPods(known.Node, known.Config, pods, budgets), nil
}

// podsOf reads the pods of a node in a namespace.
func (c *Controller) podsOf(ctx context.Context, name, namespace string) (pods []corev1.Pod, err error) {
	err = c.readPages(ctx, "pods", func(o ...client.ListOption) (string, error) {
		list := &corev1.PodList{}
		err := c.client.List(ctx, list, append(o, client.InNamespace(namespace), client.MatchingFields{"spec.nodeName": name})...)
		pods = append(pods, list.Items...)
		return list.Continue, err
	})
	return pods, err
}

// readPages lists something page by page.
func (c *Controller) readPages(ctx context.Context, what string, read func(...client.ListOption) (next string, err error)) error {
	next := ""
	for range maxPages {
		var err error
		if next, err = read(client.Limit(readPage), client.Continue(next)); err != nil {
			return fmt.Errorf("list %s: %w", what, err)
		}
		if next == "" {
			return nil
		}
	}

	return fmt.Errorf("list %s: there are more than %d", what, readPage*maxPages)
}
