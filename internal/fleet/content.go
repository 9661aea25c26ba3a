// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// ContentOf returns the payload of a template, as the ConfigMap of a revision
// stores it. named is the ConfigMap of the template's configMapRef, if it has
// one. The error says what is wrong with the configuration.
func ContentOf(t v1alpha1.RolloutTemplate, named *corev1.ConfigMap) (payload.Payload, error) {
	switch {
	case t.Kubelet != nil:
		return inline(payload.KeyKubelet, "kubelet", t.Kubelet)
	case t.KubeletDropIn != nil:
		return inline(payload.KeyKubeletDropin, "kubeletDropIn", t.KubeletDropIn)
	case t.ConfigMapRef == nil:
		return payload.Payload{}, fmt.Errorf("spec.template has none of kubelet, kubeletDropIn and configMapRef")
	}

	p, err := payload.FromConfigMap(named)
	if err != nil && named.Namespace != v1alpha1.SystemNamespace { // the author of the rollout may not be allowed to read it
		err = errors.New("it is not a valid configuration; the details are not shown, because it is outside of namespace " +
			v1alpha1.SystemNamespace + ": check it with kubectl evenkeel config validate FILE")
	}

	if err != nil {
		return payload.Payload{}, fmt.Errorf("ConfigMap %s/%s: %w", named.Namespace, named.Name, err)
	}

	return p, nil
}

// inline converts an object of the template to YAML: equal objects give equal
// bytes.
func inline(key, field string, raw *runtime.RawExtension) (payload.Payload, error) {
	if refused := payload.CheckLimits(raw.Raw); refused != nil { // converted to YAML, it could be many times as large
		return payload.Payload{}, fmt.Errorf("spec.template.%s: %w", field, refused)
	}

	data, err := yaml.JSONToYAML(raw.Raw)
	if err != nil {
		return payload.Payload{}, fmt.Errorf("spec.template.%s: %w", field, err)
	}

	p, err := payload.Decode(key, data)
	if err != nil {
		return payload.Payload{}, fmt.Errorf("spec.template.%s: %w", field, err)
	}

	return p, nil
}

// RevisionName returns the name of the ConfigMap for a content of a rollout. In
// a manifest, the digest can be too short.
func RevisionName(rollout, sha256 string) string {
	return rollout + "-" + sha256[:min(10, len(sha256))]
}
