// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// Health says how a node fares. Every node has one, so that the numbers of all
// healths add up to the fleet.
type Health string

const (
	// HealthNotReady means: the Node is not Ready, whatever its agent reported
	// before.
	HealthNotReady Health = v1alpha1.ReasonNotReady
	// HealthHealthy means: the kubelet runs the configuration that it is to
	// run, or keeps its configuration because of its pods.
	HealthHealthy Health = "Healthy"
	// HealthOnTrial means: the kubelet runs a configuration on trial, or the
	// verdict on it is provisional.
	HealthOnTrial Health = "OnTrial"
	// HealthFailed means: the node refused its configuration, or rolled back,
	// or needs a person; or it failed in its rollout.
	HealthFailed Health = "Failed"
	// HealthUnknown means: the agent is silent, or does not know.
	HealthUnknown Health = "Unknown"
	// HealthNoAgent means: no agent has ever reported.
	HealthNoAgent Health = "NoAgent"
	// HealthOptedOut means: the agent does not take configurations from the
	// API.
	HealthOptedOut Health = "OptedOut"
)

// Healths are all values of Health, those that need a person first.
var Healths = []Health{HealthFailed, HealthNotReady, HealthUnknown, HealthNoAgent, HealthOnTrial, HealthHealthy, HealthOptedOut}

// Position is the place of a node in the rollout that owns it. It is empty if
// no rollout does, or if the plan is not known.
type Position string

const (
	// PositionWaiting means: the node waits for its turn.
	PositionWaiting Position = "Waiting"
	// PositionInFlight means: the node was assigned the revision, or is being
	// drained for it, and has not passed its soak time.
	PositionInFlight Position = "InFlight"
	// PositionUpdated means: the node runs the revision.
	PositionUpdated Position = "Updated"
	// PositionFailed means: the node failed in the rollout.
	PositionFailed Position = "Failed"
	// PositionBlocked means: the node's pods prevent a restart of its kubelet.
	PositionBlocked Position = "Blocked"
	// PositionSkipped means: the rollout does not change the node now, for
	// example because its agent is silent.
	PositionSkipped Position = "Skipped"
)

// Positions are all values of Position, those that need a person first.
var Positions = []Position{PositionFailed, PositionBlocked, PositionInFlight, PositionWaiting, PositionUpdated, PositionSkipped}

// Standing is the health of a node, and separately its position in a rollout.
type Standing struct {
	Health   Health   `json:"health"`
	Cause    string   `json:"cause,omitempty"` // why the health is not Healthy
	Position Position `json:"position,omitempty"`
	State    string   `json:"state,omitempty"` // the rollout's own name for the position: Trial, Soaking, Stale, ...
	Why      string   `json:"why,omitempty"`   // explains the position
	New      bool     `json:"-"`               // the Node is so new that it need not be Ready, and need not have an agent
	// Maintained reports whether somebody works on the node. Only a summary
	// depends on it.
	Maintained bool `json:"-"`
}

// StandingOf returns the standing of a node. A user who may not read Nodes sees
// what the NodeConfig says. s is nil if no rollout owns the node, or if its
// plan is not known and it is not in FailedIn. An agent that has not answered
// for agentTimeout counts as silent.
func StandingOf(p fleet.Pair, s *rollout.NodeState, agentTimeout time.Duration, now time.Time) Standing {
	var out Standing
	out.Health, out.Cause = healthOf(p.Config, agentTimeout, now)
	out.New = p.Node != nil && now.Sub(p.Node.CreationTimestamp.Time) < joinGrace
	switch {
	case p.Node == nil && !p.NodeUnread:
		out.Health, out.Cause = HealthUnknown, "the Node does not exist"
	case out.Health != HealthFailed && p.Node != nil && !fleet.IsReady(p.Node):
		out.Health, out.Cause = HealthNotReady, "the Node is not Ready"
	}

	out.New = out.New && (out.Health == HealthNoAgent || out.Health == HealthNotReady)
	if s != nil {
		out = out.In(*s)
	}

	return out
}

// FailedIn returns the state of a failed node that the status of its rollout
// lists; nil for other nodes. It is what is known of nodes that only a plan
// shows as failed, such as those with a timeout. The list keeps nodes that have
// gone back: they run something else.
func FailedIn(rollouts []v1alpha1.NodeConfigRollout) func(fleet.Pair) *rollout.NodeState {
	statuses := map[string]*v1alpha1.NodeConfigRolloutStatus{}
	for i := range rollouts {
		statuses[rollouts[i].Name] = &rollouts[i].Status
	}

	return func(p fleet.Pair) *rollout.NodeState {
		if p.Config == nil {
			return nil
		}

		by := p.Config.Spec.ConfigSource.By()
		if st := statuses[by.Name]; st != nil && st.Target() == by.Revision {
			for _, n := range st.FailedNodes {
				if n.Name == p.Config.Name {
					return &rollout.NodeState{State: rollout.Failed, Reason: n.Reason, Message: n.Message}
				}
			}
		}

		return nil
	}
}

// joinGrace is how long a new Node may be not Ready, or without an agent.
const joinGrace = 10 * time.Minute

// In returns the standing of a node in this state of its rollout. A node that
// looks well and failed in its rollout, such as one whose trial takes too long,
// has failed.
func (s Standing) In(state rollout.NodeState) Standing {
	s.Position, s.State, s.Why = positions[state.State], state.State.String(), JoinWords(state.Reason, state.Message)
	if state.State == rollout.Failed && (s.Health == HealthHealthy || s.Health == HealthOnTrial) {
		s.Health, s.Cause = HealthFailed, s.Why
	}

	return s
}

// Place returns the position for people, with the rollout's own name for it
// where that says more: InFlight/Soaking.
func (s Standing) Place() string {
	switch s.State {
	case "", string(s.Position), rollout.Pending.String():
		return string(s.Position)
	}

	return string(s.Position) + "/" + s.State
}

func healthOf(nc *v1alpha1.NodeConfig, agentTimeout time.Duration, now time.Time) (Health, string) {
	if nc == nil || !fleet.HasReported(nc) {
		return HealthNoAgent, "no agent has reported"
	}

	st := &nc.Status
	ok := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionConfigOK)
	if ok == nil {
		return HealthUnknown, "the agent has not reported a ConfigOK condition"
	}

	cause := JoinWords(ok.Reason, cmp.Or(st.Error, ok.Message))
	switch {
	case ok.Status == metav1.ConditionFalse && provisional(st, nc.Spec.ConfigSource):
		return HealthOnTrial, cause
	case ok.Status == metav1.ConditionFalse && AboutPods(ok.Reason):
	case ok.Status == metav1.ConditionFalse:
		return HealthFailed, cause
	case st.RemoteConfig == v1alpha1.RemoteConfigDisabled:
		return HealthOptedOut, "its agent does not take configurations from the API (--remote-config=false, or no --dynamic-config-dir)"
	}

	if at := nc.Spec.ConfigSource.By().AssignedAt; takesFromNodeConfig(nc) && st.ObservedGeneration != nc.Generation && !at.IsZero() &&
		now.Sub(at.Time) > agentTimeout {
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

// positions are those of the states.
var positions = map[rollout.State]Position{
	rollout.Pending: PositionWaiting, rollout.Assigned: PositionInFlight, rollout.Trial: PositionInFlight, rollout.Soaking: PositionInFlight,
	rollout.Draining: PositionInFlight, rollout.Updated: PositionUpdated, rollout.Failed: PositionFailed, rollout.Blocked: PositionBlocked,
	rollout.Skipped: PositionSkipped, rollout.Stale: PositionSkipped, rollout.Conflicted: PositionSkipped, rollout.Manual: PositionSkipped,
}
