// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simapi

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Kinds returns the kinds that evenkeel uses. Events are not stored, every
// review allows, and nothing has defaults.
func Kinds() []Kind {
	v1 := func(group, resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
	}
	own := v1alpha1.GroupVersion
	allowed := map[string]any{"status": map[string]any{"allowed": true}}

	return []Kind{
		{GroupVersionResource: v1("apiextensions.k8s.io", "customresourcedefinitions"), Kind: "CustomResourceDefinition"},
		{GroupVersionResource: v1("", "nodes"), Kind: "Node", Status: true, Type: corev1.Node{}},
		{GroupVersionResource: v1("", "pods"), Kind: "Pod", Namespaced: true, Status: true, Type: corev1.Pod{}},
		{GroupVersionResource: v1("", "configmaps"), Kind: "ConfigMap", Namespaced: true, Type: corev1.ConfigMap{}},
		{GroupVersionResource: v1("", "secrets"), Kind: "Secret", Namespaced: true},
		{GroupVersionResource: v1("", "events"), Kind: "Event", Namespaced: true, Sink: true},
		{GroupVersionResource: v1("events.k8s.io", "events"), Kind: "Event", Namespaced: true, Sink: true},
		{GroupVersionResource: v1("apps", "daemonsets"), Kind: "DaemonSet", Namespaced: true, Status: true, Generation: true},
		{GroupVersionResource: v1("apps", "deployments"), Kind: "Deployment", Namespaced: true, Status: true, Generation: true},
		{GroupVersionResource: v1("apps", "controllerrevisions"), Kind: "ControllerRevision", Namespaced: true},
		{GroupVersionResource: v1("coordination.k8s.io", "leases"), Kind: "Lease", Namespaced: true},
		{GroupVersionResource: v1("discovery.k8s.io", "endpointslices"), Kind: "EndpointSlice", Namespaced: true},
		{GroupVersionResource: v1("policy", "poddisruptionbudgets"), Kind: "PodDisruptionBudget", Namespaced: true, Status: true},
		{GroupVersionResource: v1("authorization.k8s.io", "selfsubjectaccessreviews"), Kind: "SelfSubjectAccessReview", Sink: true, Answer: allowed},
		{GroupVersionResource: own.WithResource("nodeconfigs"), Kind: "NodeConfig", Status: true, Generation: true},
		{GroupVersionResource: own.WithResource("nodeconfigrollouts"), Kind: "NodeConfigRollout", Status: true, Generation: true},
		{GroupVersionResource: own.WithResource("nodeconfigpreflights"), Kind: "NodeConfigPreflight", Status: true, Generation: true},
	}
}
