// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// IgnoredConfigMaps names the ConfigMaps that are labelled as revisions of a rollout, but are not in its status; empty if there
// are none. Nodes can still run some of them, since the history is short.
func IgnoredConfigMaps(r *v1alpha1.NodeConfigRollout, objects map[string]*corev1.ConfigMap) string {
	known := fleet.RecordedIn(&r.Status)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		cm := objects[name]
		if !slices.ContainsFunc(known, func(x v1alpha1.RolloutRevision) bool {
			return x.ConfigMapRef.Name == name && fleet.Holds(cm, &x.ConfigMapRef)
		}) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("ConfigMaps with the label %s=%s that the rollout's status does not list are ignored: %s", v1alpha1.LabelRollout,
		r.Name, printable.Few(names))
}
