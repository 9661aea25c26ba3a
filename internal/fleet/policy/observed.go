package policy

import (
	"encoding/json"
	"fmt"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
)

// ObservationOf returns the observation in a NodeConfig's annotation; zero if there is none or it cannot be read.
func ObservationOf(nc *v1alpha1.NodeConfig) rollout.Observation {
	var o rollout.Observation
	if json.Unmarshal([]byte(nc.Annotations[v1alpha1.AnnotationObserved]), &o) != nil {
		return rollout.Observation{}
	}
	return o
}

// ObservationText returns an observation as the annotation stores it.
func ObservationText(o rollout.Observation) (string, error) {
	o.HealthySince, o.Blocked = o.HealthySince.UTC(), o.Blocked.UTC()
	o.Maintenance.Since, o.Maintenance.Ended = o.Maintenance.Since.UTC(), o.Maintenance.Ended.UTC()
	text, err := json.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("encode an observation: %w", err)
	}
	return string(text), nil
}
