package describe

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/query"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
)

// Health says how a node fares with its configuration, whatever a rollout wants of it.
type Health string

const (
	// HealthHealthy means: the kubelet runs the configuration that it is to run, or keeps its configuration because of its pods.
	HealthHealthy Health = "Healthy"
	// HealthOnTrial means: the kubelet runs a configuration on trial, or the verdict on it is provisional.
	HealthOnTrial Health = "OnTrial"
	// HealthFailed means: the node refused its configuration, or rolled back, or needs a person.
	HealthFailed Health = "Failed"
	// HealthUnknown means: no agent has reported, the agent is silent, or it does not know.
	HealthUnknown Health = "Unknown"
	// HealthOptedOut means: the agent does not take configurations from the API.
	HealthOptedOut Health = "OptedOut"
)

// Healths are all values of Health, those that need a person first.
var Healths = []Health{HealthFailed, HealthUnknown, HealthOnTrial, HealthHealthy, HealthOptedOut}

// Position is the place of a node in the rollout that owns it. It is empty if no rollout does, or if the plan is not known.
type Position string

const (
	// PositionWaiting means: the node waits for its turn.
	PositionWaiting Position = "Waiting"
	// PositionInFlight means: the node was assigned the revision, or is being drained for it, and has not passed its soak time.
	PositionInFlight Position = "InFlight"
	// PositionUpdated means: the node runs the revision.
	PositionUpdated Position = "Updated"
	// PositionBlocked means: the node cannot continue by itself. It failed, its pods prevent a restart, or its agent is silent.
	PositionBlocked Position = "Blocked"
	// PositionSkipped means: the rollout does not change the node now.
	PositionSkipped Position = "Skipped"
)

// Positions are all values of Position, those that need a person first.
var Positions = []Position{PositionBlocked, PositionInFlight, PositionWaiting, PositionUpdated, PositionSkipped}

// Standing is the health of a node, and separately its position in a rollout.
type Standing struct {
	Health   Health   `json:"health"`
	Cause    string   `json:"cause,omitempty"` // why the health is not Healthy
	Position Position `json:"position,omitempty"`
	State    string   `json:"state,omitempty"` // the rollout's own name for the position: Trial, Soaking, Stale, ...
	Why      string   `json:"why,omitempty"`   // explains the position
}

// StandingOf returns the standing of a node with this NodeConfig, which may be nil. Only the NodeConfig decides about the
// health, so that a user who may read less sees less, and never something different. s is nil if no rollout owns the node, or
// if its plan is not known. An agent that has not answered for agentTimeout counts as silent.
func StandingOf(nc *v1alpha1.NodeConfig, s *rollout.NodeState, agentTimeout time.Duration, now time.Time) Standing {
	var out Standing
	out.Health, out.Cause = healthOf(nc, agentTimeout, now)
	if s != nil {
		out = out.In(*s, nc != nil && query.HasReported(nc))
	}
	return out
}

// In returns the standing with the position of a node in this state of its rollout. reported says whether an agent has ever
// written the status of the node's NodeConfig.
func (s Standing) In(state rollout.NodeState, reported bool) Standing {
	s.Position = positionOf(state.State, reported)
	s.State, s.Why = state.State.String(), JoinWords(state.Reason, state.Message)
	return s
}

// Place returns the position for people, with the rollout's own name for it where that says more: InFlight/Soaking.
func (s Standing) Place() string {
	switch s.State {
	case "", string(s.Position), rollout.Pending.String():
		return string(s.Position)
	}
	return string(s.Position) + "/" + s.State
}

func healthOf(nc *v1alpha1.NodeConfig, agentTimeout time.Duration, now time.Time) (Health, string) {
	if nc == nil || !query.HasReported(nc) {
		return HealthUnknown, "no agent has reported"
	}
	st := &nc.Status
	ok := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionConfigOK)
	if ok == nil {
		return HealthUnknown, "the agent has not reported a ConfigOK condition"
	}
	cause := JoinWords(ok.Reason, cmp.Or(st.Error, ok.Message))
	switch {
	case ok.Status == metav1.ConditionFalse && nc.Spec.ConfigSource != nil && provisional(st, nc.Spec.ConfigSource):
		return HealthOnTrial, cause
	case ok.Status == metav1.ConditionFalse && AboutPods(ok.Reason):
	case ok.Status == metav1.ConditionFalse:
		return HealthFailed, cause
	case st.RemoteConfig == v1alpha1.RemoteConfigDisabled:
		return HealthOptedOut, "its agent does not take configurations from the API (--remote-config=false, or no --dynamic-config-dir)"
	}
	if at := assignedAt(nc); takesFromNodeConfig(nc) && st.ObservedGeneration != nc.Generation && !at.IsZero() && now.Sub(at.Time) > agentTimeout {
		return HealthUnknown, fmt.Sprintf("the agent has not answered the assignment of %s", at.UTC().Format(time.RFC3339))
	}
	switch {
	case ok.Status == metav1.ConditionUnknown:
		return HealthUnknown, cause
	case st.Trial != nil:
		return HealthOnTrial, ""
	}
	return HealthHealthy, ""
}

// assignedAt returns when a rollout assigned the present source; nil if none did.
func assignedAt(nc *v1alpha1.NodeConfig) *metav1.Time {
	if s := nc.Spec.ConfigSource; s != nil && s.RolloutRef != nil {
		return &s.RolloutRef.AssignedAt
	}
	return nil
}

// positionOf returns the position of a node in a state. A node on which no agent was ever installed is skipped, not blocked.
func positionOf(s rollout.State, reported bool) Position {
	switch s {
	case rollout.Pending:
		return PositionWaiting
	case rollout.Assigned, rollout.Trial, rollout.Soaking, rollout.Draining:
		return PositionInFlight
	case rollout.Updated:
		return PositionUpdated
	case rollout.Failed, rollout.Blocked:
		return PositionBlocked
	case rollout.Stale:
		if reported {
			return PositionBlocked
		}
	}
	return PositionSkipped
}
