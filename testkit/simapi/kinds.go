// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simapi

import (
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/config"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// Kinds returns the kinds that evenkeel uses. Events are not stored, every
// review allows, and nothing has defaults.
func Kinds() []Kind {
	v1 := func(group, resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
	}
	own := v1alpha1.GroupVersion
	events := []string{"involvedObject.kind", "involvedObject.name", "involvedObject.uid", "source"}
	allowed := map[string]any{"status": map[string]any{"allowed": true}}

	return []Kind{
		{GroupVersionResource: v1("apiextensions.k8s.io", "customresourcedefinitions"), Kind: "CustomResourceDefinition"},
		{GroupVersionResource: v1("", "nodes"), Kind: "Node", Status: true, Type: corev1.Node{}},
		{GroupVersionResource: v1("", "pods"), Kind: "Pod", Namespaced: true, Status: true, Type: corev1.Pod{}, Fields: []string{"spec.nodeName"}},
		{GroupVersionResource: v1("", "configmaps"), Kind: "ConfigMap", Namespaced: true, Type: corev1.ConfigMap{}},
		{GroupVersionResource: v1("", "secrets"), Kind: "Secret", Namespaced: true},
		{GroupVersionResource: v1("", "events"), Kind: "Event", Namespaced: true, Sink: true, Fields: events},
		{GroupVersionResource: v1("events.k8s.io", "events"), Kind: "Event", Namespaced: true, Sink: true},
		{GroupVersionResource: v1("apps", "daemonsets"), Kind: "DaemonSet", Namespaced: true, Status: true, Generation: true},
		{GroupVersionResource: v1("apps", "deployments"), Kind: "Deployment", Namespaced: true, Status: true, Generation: true},
		{GroupVersionResource: v1("apps", "controllerrevisions"), Kind: "ControllerRevision", Namespaced: true},
		{GroupVersionResource: v1("coordination.k8s.io", "leases"), Kind: "Lease", Namespaced: true, Conditional: true},
		{GroupVersionResource: v1("discovery.k8s.io", "endpointslices"), Kind: "EndpointSlice", Namespaced: true},
		{GroupVersionResource: v1("policy", "poddisruptionbudgets"), Kind: "PodDisruptionBudget", Namespaced: true, Status: true, Conditional: true},
		{GroupVersionResource: v1("authorization.k8s.io", "selfsubjectaccessreviews"), Kind: "SelfSubjectAccessReview", Sink: true, Answer: allowed},
		{GroupVersionResource: own.WithResource("nodeconfigs"), Kind: "NodeConfig", Status: true, Generation: true, Conditional: true},
		{GroupVersionResource: own.WithResource("nodeconfigrollouts"), Kind: "NodeConfigRollout", Status: true, Generation: true, Conditional: true},
		{GroupVersionResource: own.WithResource("nodeconfigpreflights"), Kind: "NodeConfigPreflight", Status: true, Generation: true, Conditional: true},
	}
}

// KindsWithDefaults returns Kinds with the defaults of the CRDs.
func KindsWithDefaults() []Kind {
	all := Kinds()
	for i := range all {
		if k := &all[i]; k.Group == v1alpha1.GroupName {
			k.Defaults = defaultsOf(k.Resource)
		}
	}

	return all
}

// defaultsOf returns the schema of the CRD of a resource.
func defaultsOf(resource string) *Schema {
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema *Schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	raw := must.Get(config.Files.ReadFile(filepath.Join("api/crd", v1alpha1.GroupName+"_"+resource+".yaml")))
	must.OK(yaml.Unmarshal(raw, &crd))
	must.That(len(crd.Spec.Versions) == 1, "%s has %d versions", resource, len(crd.Spec.Versions))

	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}
