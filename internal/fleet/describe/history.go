package describe

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Foreign says which ConfigMaps are labelled as revisions of a rollout without being any that its status names; empty if
// there are none. Those that nodes still run may be among them: the history is short.
func Foreign(r *v1alpha1.NodeConfigRollout, objects map[string]*corev1.ConfigMap) string {
	known := policy.RecordedIn(&r.Status)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		cm := objects[name]
		if !slices.ContainsFunc(known, func(x policy.Recorded) bool { return x.Name == name && x.Is(cm) }) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("ConfigMaps with the label %s=%s that the rollout's status does not name are ignored: %s", v1alpha1.LabelRollout, r.Name, printable.Few(names))
}
