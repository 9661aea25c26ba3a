// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"encoding/json"
	"maps"
	"reflect"

	kubeproxyv1alpha1 "k8s.io/kube-proxy/config/v1alpha1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// WithoutZeroes returns the fields of a component's configuration without zero
// values (syncFrequency: 0s), which the versioned type always writes and
// kubeadm's uploads are full of. A zero value means the default, like a missing
// field; but merged over another configuration it would remove that one's
// value.
func WithoutZeroes(c Component, fields map[string]any) map[string]any {
	return removeFields(fields, zeroFields(c))
}

// Overlay returns Next in a form that can be merged over another configuration:
// without the zero values of WithoutZeroes, except those with which a user
// resets a value of the cluster. If there is nothing to remove, it returns Next
// itself.
func (c *Change) Overlay() ([]byte, error) {
	next, err := Fields(c.Next)
	if err != nil {
		return nil, err
	}

	silent := zeroFields(c.Component)
	if now, err := Fields(c.Current); c.Action == Replace {
		if err != nil { // no current configuration, or an unreadable one
			now = nil
		}

		silent = intersection(silent, now)
	}

	rest := removeFields(next, silent)
	if reflect.DeepEqual(next, rest) {
		return c.Next, nil
	}

	return yaml.Marshal(rest)
}

// zeroFields returns the fields of a component's versioned type with nothing
// set.
func zeroFields(c Component) map[string]any {
	var empty any = &kubeletv1beta1.KubeletConfiguration{}
	if c.Name == "kube-proxy" {
		empty = &kubeproxyv1alpha1.KubeProxyConfiguration{}
	}

	text, _ := json.Marshal(empty) // cannot fail
	all, _ := Fields(text)

	return all
}

// intersection returns the fields that are equal in two trees.
func intersection(a, b map[string]any) map[string]any {
	both := map[string]any{}
	for name, value := range a {
		other, found := b[name]
		inner, isMap := value.(map[string]any)
		within, otherIsMap := other.(map[string]any)
		switch {
		case !found:
		case isMap && otherIsMap:
			both[name] = intersection(inner, within)
		case reflect.DeepEqual(value, other):
			both[name] = value
		}
	}

	return both
}

func removeFields(fields, zeroes map[string]any) map[string]any {
	rest := maps.Clone(fields)
	for name, zero := range zeroes {
		value, found := rest[name]
		inner, isMap := value.(map[string]any)
		within, zeroIsMap := zero.(map[string]any)
		switch {
		case !found:
		case isMap && zeroIsMap:
			if rest[name] = removeFields(inner, within); len(rest[name].(map[string]any)) == 0 {
				delete(rest, name)
			}
		case reflect.DeepEqual(value, zero):
			delete(rest, name)
		}
	}

	return rest
}
