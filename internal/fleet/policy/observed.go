package policy

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
)

// observed is a mark as a NodeConfig's annotation has it.
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

// MarkOf returns the mark that a NodeConfig has. One that cannot be read is none.
func MarkOf(nc *v1alpha1.NodeConfig) rollout.Mark {
	text, there := nc.Annotations[v1alpha1.AnnotationObserved]
	if !there {
		return rollout.Mark{}
	}
	var o observed
	if json.Unmarshal([]byte(text), &o) != nil {
		return rollout.Mark{}
	}
	m := rollout.Mark{Rollout: o.Rollout, Revision: o.Revision, Attempt: o.Attempt, Failed: o.FailedIn, Joined: o.Joined, Offers: o.Offers, Reason: o.Reason, Why: o.Message}
	if o.BlockedAt != nil {
		m.Blocked = *o.BlockedAt
	}
	if o.FineSince != nil {
		m.Fine = *o.FineSince
	}
	return m
}

// MarkText is a mark as an annotation has it.
func MarkText(m rollout.Mark) (string, error) {
	o := observed{Rollout: m.Rollout, Revision: m.Revision, Attempt: m.Attempt, FailedIn: m.Failed, Joined: m.Joined, Offers: m.Offers, Reason: m.Reason, Message: m.Why}
	if !m.Blocked.IsZero() {
		o.BlockedAt = new(m.Blocked.UTC())
	}
	if !m.Fine.IsZero() {
		o.FineSince = new(m.Fine.UTC())
	}
	text, err := json.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("encode what was observed: %w", err)
	}
	return string(text), nil
}
