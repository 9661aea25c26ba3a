// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package drain empties nodes of their pods through the Eviction API, and
// writes the taint that keeps new pods away meanwhile. It decides nothing:
// rollout.Plan says which nodes are drained, and when a drain is given up.
//
// Which pods have to go is decided by the filters of kubectl drain. Its loop is
// not used: it waits, it evicts by name without a UID, and it can delete pods.
package drain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	kubectldrain "k8s.io/kubectl/pkg/drain"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

const (
	maxNamed    = 5    // pods that a report names
	maxParallel = 8    // pods of a node that are evicted at the same time
	pageSize    = 250  // objects that one request lists
	maxObjects  = 5000 // pods of a node, or PodDisruptionBudgets of a namespace
)

// Pass makes one eviction pass over a node: it lists the node's pods and
// requests the eviction of those that have to go. It waits for no pod. If one
// pod must not be evicted, none is. It never deletes a pod. The report's Time
// is not set.
func Pass(ctx context.Context, api kubernetes.Interface, node string, options v1alpha1.DrainOptions) rollout.DrainReport {
	ignored, err := labels.ValidatedSelectorFromSet(options.IgnoredPods)
	if len(options.IgnoredPods) == 0 {
		ignored = labels.Nothing()
	}
	if err != nil {
		return rollout.DrainReport{Refused: "drainOptions.ignoredPods is invalid: " + err.Error()}
	}

	view := &view{Interface: api, ignored: ignored}
	helper := &kubectldrain.Helper{
		Ctx: ctx, Client: view, ChunkSize: pageSize, IgnoreAllDaemonSets: true, GracePeriodSeconds: -1,
		Force: options.UnmanagedPods == v1alpha1.DrainEvict, DeleteEmptyDirData: options.LocalData == v1alpha1.DrainEvict,
	}
	list, errs := helper.GetPodsForDeletion(node)
	report := rollout.DrainReport{Ignored: few(view.leftAlone)}
	switch {
	case view.failed != nil:
		report.Waiting = cut(view.failed.Error())
		return report
	case len(errs) > 0:
		report.Refused = refusal(errs)
		return report
	}

	pods, names := list.Pods(), view.ending
	for i := range pods {
		names = append(names, nameOf(&pods[i]))
	}

	report.Left, report.Pods = len(names), few(names)
	var waiting, refused answers
	if several, err := severalBudgets(ctx, api, pods); err != nil {
		waiting.add(err.Error())
	} else if len(several) > 0 {
		refused = several
	} else {
		evictAll(ctx, api, pods, &waiting, &refused)
	}

	report.Waiting, report.Refused = waiting.first(), refused.first()

	return report
}

// answers are texts about pods.
type answers []string

func (a *answers) add(text string) { *a = append(*a, text) }

// first returns the answer about the first pod, in the order of their names, so
// that reports do not vary.
func (a answers) first() string {
	if len(a) == 0 {
		return ""
	}

	return cut(slices.Min(a))
}

// cut limits a text: a server's answer may contain the text of an admission
// webhook.
func cut(text string) string { return printable.Cut(text, v1alpha1.MaxOutcomeMessage) }

func nameOf(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// evictAll requests the evictions of pods. It adds why pods stay for now, and
// why they cannot be evicted at all.
func evictAll(ctx context.Context, api kubernetes.Interface, pods []corev1.Pod, waiting, refused *answers) {
	var mu sync.Mutex
	workqueue.ParallelizeUntil(ctx, maxParallel, len(pods), func(i int) {
		err := evict(ctx, api, &pods[i])
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err): // gone, or another pod has its name now
		case apierrors.IsInternalError(err) && strings.Contains(err.Error(), "more than one PodDisruptionBudget"):
			refused.add(refusedFor(&pods[i], ""))
		default: // 429 is the answer of its PodDisruptionBudget
			waiting.add(nameOf(&pods[i]) + ": " + describe(err))
		}
	})
}

// evict requests the eviction of a pod. The client of Evictions is not used: it
// repeats a request that was answered 429 for up to 100 seconds.
func evict(ctx context.Context, api kubernetes.Interface, pod *corev1.Pod) error {
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	}
	return api.PolicyV1().RESTClient().Post().AbsPath("/api/v1").Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
		SubResource("eviction").MaxRetries(0).Body(eviction).Do(ctx).Error()
}

// describe returns an API error with the causes that it has.
func describe(err error) string {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) || status.Status().Details == nil {
		return err.Error()
	}

	out := err.Error()
	for _, cause := range status.Status().Details.Causes {
		if cause.Message != "" {
			out += " " + cause.Message
		}
	}

	return out
}

// adviceOfKubectl are the flags of kubectl drain that its errors name, and what
// they are called here.
var adviceOfKubectl = strings.NewReplacer(
	"cannot delete ", "", "(use --force to override)", "(drainOptions.unmanagedPods: Evict would evict them)",
	"(use --delete-emptydir-data to override)", "(drainOptions.localData: Evict would evict them)",
)

// refusal returns why pods must not be evicted.
func refusal(errs []error) string {
	var texts []string
	for _, err := range errs {
		texts = append(texts, adviceOfKubectl.Replace(err.Error()))
	}

	slices.Sort(texts)

	return cut(strings.Join(texts, "; "))
}

// few returns the first names in their order.
func few(names []string) []string {
	slices.Sort(names)
	return names[:min(len(names), maxNamed)]
}

// MayDrain reports whether a client may do what a drain needs. The permissions
// are in config/drain.
func MayDrain(ctx context.Context, api kubernetes.Interface) (bool, error) {
	for _, need := range []authorizationv1.ResourceAttributes{
		{Verb: "list", Resource: "pods"},
		{Verb: "create", Resource: "pods", Subresource: "eviction"},
		{Verb: "get", Group: "apps", Resource: "daemonsets"},
		{Verb: "list", Group: "policy", Resource: "poddisruptionbudgets"},
		{Verb: "patch", Resource: "nodes"},
	} {
		if may, err := May(ctx, api, need); err != nil || !may {
			return false, err
		}
	}

	return true, nil
}

// May reports whether a client may do something.
func May(ctx context.Context, api kubernetes.Interface, what authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what}}
	answer, err := api.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether this controller may %s %s: %w", what.Verb, what.Resource, err)
	}

	return answer.Status.Allowed, nil
}

// Write sets the record of a drain on a Node, or removes it if d is zero, and
// returns the stored Node. Other taints stay as they are. If the Node is gone,
// it returns nil and no error.
func Write(ctx context.Context, api kubernetes.Interface, name string, d rollout.Drain) (*corev1.Node, error) {
	node, err := PatchNode(ctx, api, name, func(node *corev1.Node) any {
		taints := []corev1.Taint{}
		for _, t := range node.Spec.Taints {
			if t.Key != v1alpha1.TaintDraining {
				taints = append(taints, t)
			}
		}

		if d.Rollout != "" {
			taints = append(taints, fleet.DrainTaint(d))
		}
		if len(taints) == len(node.Spec.Taints) && fleet.DrainOf(node) == d {
			return nil
		}

		return []map[string]any{
			{"op": "test", "path": "/metadata/uid", "value": node.UID},
			{"op": "test", "path": "/metadata/resourceVersion", "value": node.ResourceVersion},
			{"op": "add", "path": "/spec/taints", "value": taints},
		}
	})
	if err != nil {
		return nil, fmt.Errorf("write the taint %s of Node %s: %w", v1alpha1.TaintDraining, name, err)
	}

	return node, nil
}

// again is how often a Node is patched that changes at the same time: kubelets
// write it often.
var again = wait.Backoff{Steps: 5, Duration: 20 * time.Millisecond, Factor: 2}

// PatchNode reads a Node, patches it with the JSON patch that a function
// returns for it, and returns the stored Node. It writes nothing if the patch
// is nil. If the Node is gone, it returns nil and no error.
func PatchNode(ctx context.Context, api kubernetes.Interface, name string, patchOf func(*corev1.Node) any) (node *corev1.Node, err error) {
	err = retry.OnError(again, conflict, func() (err error) {
		node, err = patchNode(ctx, api, name, patchOf)
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}

	return node, nil
}

// conflict reports whether a patch failed because the Node has changed: the API
// server answers a failed test of a JSON patch with the code 422.
func conflict(err error) bool {
	status := apierrors.APIStatus(nil)
	return apierrors.IsConflict(err) || errors.As(err, &status) && status.Status().Code == http.StatusUnprocessableEntity
}

func patchNode(ctx context.Context, api kubernetes.Interface, name string, patchOf func(*corev1.Node) any) (*corev1.Node, error) {
	node, err := api.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}

	operations := patchOf(node)
	if operations == nil {
		return node, nil
	}

	patch, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("encode the patch: %w", err)
	}

	return api.CoreV1().Nodes().Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: "evenkeel-controller"})
}

// severalBudgets returns refusals of pods that have more than one
// PodDisruptionBudget. The API server would answer 500 to their evictions, but
// only after other pods of the node were evicted in vain.
func severalBudgets(ctx context.Context, api kubernetes.Interface, pods []corev1.Pod) (refused answers, err error) {
	budgets := map[string][]policyv1.PodDisruptionBudget{}
	for i := range pods {
		pod := &pods[i]
		if pod.Status.Phase == corev1.PodPending {
			continue // evicted without regard to budgets
		}

		found, listed := budgets[pod.Namespace]
		if !listed {
			if found, err = budgetsIn(ctx, api, pod.Namespace); err != nil {
				return nil, err
			}

			budgets[pod.Namespace] = found
		}

		var names []string
		for j := range found {
			if fleet.Covers(&found[j], pod) {
				names = append(names, found[j].Name)
			}
		}

		if len(names) > 1 {
			refused.add(refusedFor(pod, " ("+strings.Join(few(names), ", ")+")"))
		}
	}

	return refused, nil
}

// budgetsIn lists the PodDisruptionBudgets of a namespace.
func budgetsIn(ctx context.Context, api kubernetes.Interface, namespace string) ([]policyv1.PodDisruptionBudget, error) {
	var all []policyv1.PodDisruptionBudget
	options := metav1.ListOptions{Limit: pageSize}
	for len(all) <= maxObjects {
		list, err := api.PolicyV1().PodDisruptionBudgets(namespace).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list the PodDisruptionBudgets in %s: %w", namespace, err)
		}

		all = append(all, list.Items...)
		if options.Continue = list.Continue; options.Continue == "" {
			return all, nil
		}
	}

	return nil, fmt.Errorf("namespace %s has more than %d PodDisruptionBudgets", namespace, maxObjects)
}

func refusedFor(pod *corev1.Pod, budgets string) string {
	return nameOf(pod) + " has more than one PodDisruptionBudget" + budgets + ", with which the API server evicts no pod: keep one of them"
}
