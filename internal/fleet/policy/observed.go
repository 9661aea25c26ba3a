package policy

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
)

// observed is an observation as the NodeConfig's annotation stores it.
type observed struct {
	Rollout   string     `json:"rollout"`
	Revision  int64      `json:"revision"`
	Attempt   int64      `json:"attempt"`
	FineSince *time.Time `json:"fineSince,omitempty"`
	FailedIn  int64      `json:"failedInAttempt,omitempty"`
	Joined    bool       `json:"joined,omitempty"`
	BlockedAt *time.Time `json:"blockedAt,omitempty"`
	Offers    int        `json:"offers,omitempty"`
	Reason    string     `json:"reason,omitempty"`
	Message   string     `json:"message,omitempty"`
}

// ObservationOf returns the observation in a NodeConfig's annotation; zero if there is none or it cannot be read.
func ObservationOf(nc *v1alpha1.NodeConfig) rollout.Observation {
	text, there := nc.Annotations[v1alpha1.AnnotationObserved]
	if !there {
		return rollout.Observation{}
	}
	var o observed
	if json.Unmarshal([]byte(text), &o) != nil {
		return rollout.Observation{}
	}
	m := rollout.Observation{Rollout: o.Rollout, Revision: o.Revision, Attempt: o.Attempt, Failed: o.FailedIn, Joined: o.Joined, Offers: o.Offers, Reason: o.Reason, Message: o.Message}
	if o.BlockedAt != nil {
		m.Blocked = *o.BlockedAt
	}
	if o.FineSince != nil {
		m.HealthySince = *o.FineSince
	}
	return m
}

// ObservationText returns an observation as the annotation stores it.
func ObservationText(m rollout.Observation) (string, error) {
	o := observed{Rollout: m.Rollout, Revision: m.Revision, Attempt: m.Attempt, FailedIn: m.Failed, Joined: m.Joined, Offers: m.Offers, Reason: m.Reason, Message: m.Message}
	if !m.Blocked.IsZero() {
		o.BlockedAt = new(m.Blocked.UTC())
	}
	if !m.HealthySince.IsZero() {
		o.FineSince = new(m.HealthySince.UTC())
	}
	text, err := json.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("encode an observation: %w", err)
	}
	return string(text), nil
}
