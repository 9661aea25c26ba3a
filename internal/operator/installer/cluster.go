// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// ErrApplyFirst means that objects of evenkeel's manifests are missing in the
// cluster.
var ErrApplyFirst = errors.New("apply evenkeel's manifests first: kubectl apply -f install.yaml")

// DesiredOf reads the operation's DaemonSet. It waits some seconds until
// kube-controller-manager has observed it.
func DesiredOf(ctx context.Context, c client.Client, m Operation) (w Desired, err error) {
	late := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, query.ObserveTimeout, true, func(context.Context) (bool, error) {
		w, err = Newest(ctx, c, m) // not the context of the poll, so that a read is not cut off
		return err != nil || w.Revision != "", nil
	})
	if late != nil && ctx.Err() == nil {
		late = fmt.Errorf("kube-controller-manager has not observed the newest DaemonSet %s/%s: is it running?", v1alpha1.InstallNamespace,
			m.DaemonSet)
	}

	return w, cmp.Or(err, late)
}

// Newest reads the operation's DaemonSet. The revision is empty until
// kube-controller-manager has observed it.
func Newest(ctx context.Context, c client.Client, m Operation) (Desired, error) {
	d := &appsv1.DaemonSet{}
	err := c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.InstallNamespace, Name: m.DaemonSet}, d)
	if apierrors.IsNotFound(err) {
		return Desired{}, fmt.Errorf("there is no DaemonSet %s/%s: %w", v1alpha1.InstallNamespace, m.DaemonSet, ErrApplyFirst)
	}
	if err != nil {
		return Desired{}, fmt.Errorf("read the DaemonSet %s/%s: %w", v1alpha1.InstallNamespace, m.DaemonSet, err)
	}

	container := &d.Spec.Template.Spec.Containers[0]
	w := Desired{Image: container.Image, Version: describe.ImageVersion(container.Image)}
	if probe := container.ReadinessProbe; probe != nil {
		// A restarted kubelet reports the old readiness of a pod until its
		// first probe.
		w.ReadyFor = 2 * time.Duration(probe.PeriodSeconds) * time.Second
	}

	if d.Status.ObservedGeneration < d.Generation {
		return w, nil
	}

	revisions := &appsv1.ControllerRevisionList{}
	err = c.List(ctx, revisions, client.InNamespace(v1alpha1.InstallNamespace), client.MatchingLabels(d.Spec.Selector.MatchLabels))
	if err != nil {
		return w, fmt.Errorf("list the revisions of the DaemonSet %s/%s: %w", v1alpha1.InstallNamespace, m.DaemonSet, err)
	}

	newest := int64(-1)
	for _, r := range revisions.Items {
		owned := len(r.OwnerReferences) > 0 && r.OwnerReferences[0].UID == d.UID
		if owned && r.Revision > newest {
			newest, w.Revision = r.Revision, r.Labels[appsv1.ControllerRevisionHashLabelKey]
		}
	}

	return w, nil
}

// Events returns the newest Events of a Node since a time, at most so many, the
// newest last.
func Events(ctx context.Context, c client.Client, node string, since time.Time, most int) ([]corev1.Event, error) {
	list := &corev1.EventList{}
	err := c.List(ctx, list, client.InNamespace(metav1.NamespaceDefault), client.MatchingFieldsSelector{
		Selector: fields.Set{"involvedObject.kind": "Node", "involvedObject.name": node}.AsSelector(),
	})
	if err != nil {
		return nil, err
	}

	at := func(e corev1.Event) time.Time { return cmp.Or(e.LastTimestamp.Time, e.EventTime.Time) }
	found := slices.DeleteFunc(list.Items, func(e corev1.Event) bool { return at(e).Before(since.Truncate(time.Second)) })
	slices.SortStableFunc(found, func(a, b corev1.Event) int { return at(a).Compare(at(b)) })

	return found[max(0, len(found)-most):], nil
}

// Nodes reads the nodes with these names, or all that a selector matches. A
// name without a Node is an error.
func (o Operation) Nodes(ctx context.Context, c client.Reader, names []string, selector labels.Selector) ([]Node, error) {
	pods := map[string][]corev1.Pod{}
	for pod, err := range query.Pages[*corev1.Pod](ctx, c, &corev1.PodList{}, o.itsPods()...) {
		if err != nil {
			return nil, fmt.Errorf("list the pods in %s: %w", v1alpha1.InstallNamespace, err)
		}

		pods[pod.Spec.NodeName] = append(pods[pod.Spec.NodeName], *pod)
	}

	missing := map[string]bool{}
	for _, name := range names {
		missing[name] = true
	}
	if selector == nil {
		selector = labels.Everything()
	}

	var nodes []Node
	for p, err := range o.pairs(ctx, c, selector) {
		switch {
		case err != nil:
			return nil, err
		case p.Node != nil && (len(names) == 0 || missing[p.Node.Name]):
			delete(missing, p.Node.Name)
			nodes = append(nodes, nodeOf(p, pods[p.Node.Name]))
		}
	}

	if len(missing) > 0 {
		return nil, fmt.Errorf("nodes not found: %s; see `kubectl get nodes`; nothing was changed",
			printable.Few(slices.Sorted(maps.Keys(missing))))
	}

	slices.SortFunc(nodes, func(a, b Node) int { return printable.CompareNatural(a.Name, b.Name) })

	return nodes, nil
}

// pairs yields nodes with the reports of their agents. Uninstalling does not
// need the reports, and their CRD may be gone.
func (o Operation) pairs(ctx context.Context, c client.Reader, selector labels.Selector) iter.Seq2[fleet.Pair, error] {
	if o == Install {
		return query.Pairs(ctx, c, selector)
	}

	return func(yield func(fleet.Pair, error) bool) {
		for node, err := range query.Pages[*corev1.Node](ctx, c, &corev1.NodeList{}, client.MatchingLabelsSelector{Selector: selector}) {
			if !yield(fleet.Pair{Node: node}, err) {
				return
			}
		}
	}
}

// itsPods selects the pods of the operation's DaemonSet.
func (o Operation) itsPods() []client.ListOption {
	return []client.ListOption{client.InNamespace(v1alpha1.InstallNamespace), client.MatchingLabels{"app.kubernetes.io/name": o.DaemonSet}}
}

// node reads one node.
func (o Operation) node(ctx context.Context, c client.Reader, name string) (Node, error) {
	p := fleet.Pair{Node: &corev1.Node{}, Config: &v1alpha1.NodeConfig{}}
	err := c.Get(ctx, client.ObjectKey{Name: name}, p.Node)
	if apierrors.IsNotFound(err) {
		return Node{Name: name, Gone: true}, nil
	}
	if err != nil {
		return Node{}, err
	}

	if o != Install {
		p.Config = nil
	} else if err := c.Get(ctx, client.ObjectKey{Name: name}, p.Config); apierrors.IsNotFound(err) {
		p.Config = nil
	} else if err != nil {
		return Node{}, err
	}

	pods := &corev1.PodList{}
	err = c.List(ctx, pods, append(o.itsPods(), client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName",
		name)})...)

	return nodeOf(p, pods.Items), err
}

// nodeOf converts the objects of a node.
func nodeOf(p fleet.Pair, pods []corev1.Pod) Node {
	labels := p.Node.Labels
	_, controlPlane := labels[fleet.LabelControlPlane]
	n := Node{
		Name: p.Node.Name, Deleting: p.Node.DeletionTimestamp != nil, Cordoned: p.Node.Spec.Unschedulable, Ready: fleet.IsReady(p.Node),
		ControlPlane: controlPlane, SelfHosted: labels["evenkeel.dev/kubelet"] == "self-hosted", OS: labels[corev1.LabelOSStable],
		Label: labels[v1alpha1.LabelAgent], Failure: p.Node.Annotations[v1alpha1.AnnotationAgentFailed],
		Turn: p.Node.Annotations[v1alpha1.AnnotationAgentTurn],
	}
	if p.Config != nil {
		n.Reported, n.AgentVersion = fleet.HasReported(p.Config), p.Config.Status.AgentVersion
	}

	n.Pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })

	return n
}

// Rollouts reads all rollouts. It returns none if their CRD does not exist.
func Rollouts(ctx context.Context, c client.Client) ([]v1alpha1.NodeConfigRollout, error) {
	list, err := query.Rollouts(ctx, c)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list rollouts: %w", err)
	}

	return list.Items, nil
}

// ActiveRollouts returns the names of rollouts that write NodeConfigs now or
// later.
func ActiveRollouts(rollouts []v1alpha1.NodeConfigRollout) []string {
	var names []string
	for _, r := range rollouts {
		if r.Spec.Frozen || r.Spec.Paused && r.Status.Phase != v1alpha1.RolloutRollingBack {
			continue
		}

		switch r.Status.Phase {
		case v1alpha1.RolloutProgressing, v1alpha1.RolloutWaiting, v1alpha1.RolloutStuck, v1alpha1.RolloutRollingBack, "":
			names = append(names, r.Name)
		}
	}

	return names
}

// LabelledNodes returns the names of nodes with an agent, or with a failed
// install or uninstall.
func LabelledNodes(ctx context.Context, c client.Client) ([]string, error) {
	var names []string
	for node, err := range query.Metadata(ctx, c, corev1.SchemeGroupVersion.WithKind("NodeList"), client.HasLabels{v1alpha1.LabelAgent}) {
		if err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}

		names = append(names, node.Name)
	}

	return names, nil
}

// RemoveFromCluster removes evenkeel's workloads after the last agent was
// removed. It pauses rollouts, and deletes the controller, the installer and
// the uninstaller. With purge it deletes the CustomResourceDefinitions too,
// with every object. It calls done after each change.
func RemoveFromCluster(ctx context.Context, c client.Client, rollouts []v1alpha1.NodeConfigRollout, purge bool, done func(string)) error {
	for _, r := range rollouts {
		if r.Spec.Paused || purge {
			continue
		}

		if err := c.Patch(ctx, &r, client.RawPatch(types.MergePatchType,
			[]byte(`{"spec":{"paused":true,"pausedReason":null}}`))); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("pause rollout %q: %w", r.Name, err)
		}

		done(fmt.Sprintf("rollout %s paused", r.Name))
	}

	objects := []client.Object{&appsv1.Deployment{}, &appsv1.DaemonSet{}, &appsv1.DaemonSet{}}
	for i, at := range []types.NamespacedName{
		{Namespace: v1alpha1.SystemNamespace, Name: "evenkeel-controller"},
		{Namespace: v1alpha1.InstallNamespace, Name: Install.DaemonSet},
		{Namespace: v1alpha1.InstallNamespace, Name: Uninstall.DaemonSet},
	} {
		objects[i].SetNamespace(at.Namespace)
		objects[i].SetName(at.Name)
		if err := client.IgnoreNotFound(c.Delete(ctx, objects[i], client.PropagationPolicy("Background"))); err != nil {
			return fmt.Errorf("delete %s: %w", at, err)
		}

		done(fmt.Sprintf("%s deleted", at))
	}

	if !purge {
		return nil
	}

	for _, plural := range []string{"nodeconfigpreflights", "nodeconfigrollouts", "nodeconfigs"} {
		crd := &unstructured.Unstructured{}
		crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		crd.SetName(strings.Join([]string{plural, v1alpha1.GroupName}, "."))
		if err := client.IgnoreNotFound(c.Delete(ctx, crd)); err != nil {
			return fmt.Errorf("delete the CustomResourceDefinition %s: %w", crd.GetName(), err)
		}

		done(fmt.Sprintf("%s and all its objects are being deleted", crd.GetName()))
	}

	return nil
}
