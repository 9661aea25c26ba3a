// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simapi

import (
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Kinds returns the kinds that evenkeel uses. Events are not stored, every
// review allows, and nothing has defaults.
func Kinds() []Kind {
	core, apps, own := corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion, v1alpha1.GroupVersion
	allowed := map[string]any{"status": map[string]any{"allowed": true}}

	return []Kind{
		{GroupVersionResource: schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, Kind: "CustomResourceDefinition"},
		{GroupVersionResource: core.WithResource("nodes"), Kind: "Node", Status: true, Type: corev1.Node{}},
		{GroupVersionResource: core.WithResource("pods"), Kind: "Pod", Namespaced: true, Status: true, Type: corev1.Pod{}},
		{GroupVersionResource: core.WithResource("configmaps"), Kind: "ConfigMap", Namespaced: true, Type: corev1.ConfigMap{}},
		{GroupVersionResource: core.WithResource("secrets"), Kind: "Secret", Namespaced: true},
		{GroupVersionResource: core.WithResource("events"), Kind: "Event", Namespaced: true, Sink: true},
		{GroupVersionResource: eventsv1.SchemeGroupVersion.WithResource("events"), Kind: "Event", Namespaced: true, Sink: true},
		{GroupVersionResource: apps.WithResource("daemonsets"), Kind: "DaemonSet", Namespaced: true, Status: true, Generation: true},
		{GroupVersionResource: apps.WithResource("deployments"), Kind: "Deployment", Namespaced: true, Status: true, Generation: true},
		{GroupVersionResource: apps.WithResource("controllerrevisions"), Kind: "ControllerRevision", Namespaced: true},
		{GroupVersionResource: coordinationv1.SchemeGroupVersion.WithResource("leases"), Kind: "Lease", Namespaced: true},
		{GroupVersionResource: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), Kind: "EndpointSlice", Namespaced: true},
		{GroupVersionResource: policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), Kind: "PodDisruptionBudget", Namespaced: true, Status: true},
		{GroupVersionResource: authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews"), Kind: "SelfSubjectAccessReview", Sink: true, Answer: allowed},
		{GroupVersionResource: own.WithResource("nodeconfigs"), Kind: "NodeConfig", Status: true, Generation: true},
		{GroupVersionResource: own.WithResource("nodeconfigrollouts"), Kind: "NodeConfigRollout", Status: true, Generation: true},
		{GroupVersionResource: own.WithResource("nodeconfigpreflights"), Kind: "NodeConfigPreflight", Status: true, Generation: true},
	}
}
