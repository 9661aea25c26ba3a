// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// maxApplied is the longest annotation of SaveApplied, in bytes: all annotations of an object have 256 KiB. kubectl apply cannot write
// a longer one either.
const maxApplied = 200 << 10

// SaveApplied records the fields of after's spec that differ from before in the annotation from which kubectl apply and Argo CD
// derive what to remove. Without it they would merge the next configuration from a repository into this one. before is nil for a new
// rollout.
func SaveApplied(before, after *v1alpha1.NodeConfigRollout) error {
	changed, err := specMap(after)
	if err != nil {
		return err
	}
	applied := map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NodeConfigRollout",
		"metadata": map[string]any{"name": after.Name}}
	if before != nil {
		after.Annotations = maps.Clone(before.Annotations)
		stored, err := specMap(before)
		if err != nil {
			return err
		}
		maps.DeleteFunc(changed, func(key string, value any) bool { return reflect.DeepEqual(value, stored[key]) })
		var last map[string]any // nil if there is none, or none that a tool can read
		_ = json.Unmarshal([]byte(before.Annotations[corev1.LastAppliedConfigAnnotation]), &last)
		maps.Copy(applied, last)
	}
	if recorded, is := applied["spec"].(map[string]any); is {
		maps.Copy(recorded, changed)
	} else {
		applied["spec"] = changed
	}
	text, err := json.Marshal(applied)
	if err != nil || len(changed) == 0 || len(text) > maxApplied {
		return err
	}
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, corev1.LastAppliedConfigAnnotation, string(text))
	return nil
}
