// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/query"
)

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

// ActiveRollouts returns the names of rollouts that write NodeConfigs now or later.
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

// LabelledNodes returns the names of nodes with an agent, or with a failed install or uninstall.
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

// RemoveFromCluster removes evenkeel's workloads after the last agent was removed. It pauses rollouts, and deletes the
// controller, the installer and the uninstaller. With purge it deletes the CustomResourceDefinitions too, with every object.
// It calls done after each change.
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
		done(fmt.Sprintf("%s deleted, with all objects", crd.GetName()))
	}
	return nil
}
