// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheHealthOfANodeIsWhatItsNodeConfigAndItsNodeSay(t *testing.T) {
	now := time.Unix(10_000, 0)
	ok := func(status metav1.ConditionStatus, reason string) v1alpha1.NodeConfigStatus {
		return v1alpha1.NodeConfigStatus{AgentVersion: "v1", ObservedGeneration: 3, Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionConfigOK, Status: status, Reason: reason, Message: "the message"}}}
	}
	with := func(st v1alpha1.NodeConfigStatus, change func(*v1alpha1.NodeConfigStatus)) v1alpha1.NodeConfigStatus {
		change(&st)
		return st
	}
	assigned := func(ago time.Duration) *v1alpha1.NodeConfigSource {
		s := sourceOf("new")
		s.RolloutRef = &v1alpha1.RolloutReference{Name: "w", AssignedAt: metav1.NewTime(now.Add(-ago))}
		return s
	}
	behind := func(st *v1alpha1.NodeConfigStatus) { st.ObservedGeneration = 2 }
	for _, tt := range []struct {
		name   string
		source *v1alpha1.NodeConfigSource
		status v1alpha1.NodeConfigStatus
		health Health
		cause  string
	}{
		{"no agent", nil, v1alpha1.NodeConfigStatus{}, HealthNoAgent, "no agent has reported"},
		{"no condition", nil, v1alpha1.NodeConfigStatus{AgentVersion: "v1"}, HealthUnknown, "the agent has not reported a ConfigOK condition"},
		{"fine", assigned(time.Hour), ok("True", "AllChecksPassed"), HealthHealthy, ""},
		{"on trial", assigned(time.Hour), with(ok("True", "AllChecksPassed"), func(st *v1alpha1.NodeConfigStatus) { st.Trial = &v1alpha1.Trial{} }), HealthOnTrial, ""},
		{"crashed", assigned(time.Hour), with(ok("False", "CrashLooped"), func(st *v1alpha1.NodeConfigStatus) { st.Error = "exit status 1" }), HealthFailed, "CrashLooped: exit status 1"},
		{"rejected", sourceOf("new"), ok("False", "ValidationFailed"), HealthFailed, "ValidationFailed: the message"},
		{"failed before the newest assignment", assigned(time.Second), with(ok("False", "CrashLooped"), behind), HealthFailed, "CrashLooped: the message"},
		{"a provisional verdict", assigned(time.Hour), with(ok("False", "CrashLooped"), func(st *v1alpha1.NodeConfigStatus) {
			st.BadConfigs = []v1alpha1.BadConfig{{UID: "new", Provisional: true}}
		}), HealthOnTrial, "CrashLooped: the message"},
		{"refused because of pods", assigned(time.Hour), ok("False", "WouldEvictPods"), HealthHealthy, ""},
		{"refused because of pods, at any restart", assigned(time.Hour), ok("False", "RestartWouldEvictPods"), HealthHealthy, ""},
		{"refused until it is drained", assigned(time.Hour), ok("False", "NeedsDrain"), HealthHealthy, ""},
		{"not known", assigned(time.Hour), ok("Unknown", "SyncFailed"), HealthUnknown, "SyncFailed: the message"},
		{"just assigned", assigned(59 * time.Second), with(ok("True", "AllChecksPassed"), behind), HealthHealthy, ""},
		{"silent", assigned(61 * time.Second), with(ok("True", "AllChecksPassed"), behind), HealthUnknown, "the agent has not answered the assignment of 1970-01-01T02:45:39Z"},
		{"a person's assignment without an answer", sourceOf("new"), with(ok("True", "AllChecksPassed"), behind), HealthHealthy, ""},
		{"opted out", nil, with(ok("True", "LocalInit"), func(st *v1alpha1.NodeConfigStatus) { st.RemoteConfig = v1alpha1.RemoteConfigDisabled }), HealthOptedOut,
			"its agent does not take configurations from the API (--remote-config=false, or no --dynamic-config-dir)"},
		{"opted out, and broken", nil, with(ok("False", "DeadEnd"), func(st *v1alpha1.NodeConfigStatus) { st.RemoteConfig = v1alpha1.RemoteConfigDisabled }), HealthFailed, "DeadEnd: the message"},
	} {
		nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Generation: 3}, Spec: v1alpha1.NodeConfigSpec{ConfigSource: tt.source}, Status: tt.status}
		got := StandingOf(fleet.Pair{Config: nc, Node: nodeReady(true)}, nil, time.Minute, now)
		want := (Standing{Health: tt.health, Cause: tt.cause})
		assert.That(t, got == want, "%s: got %+v, want %+v", tt.name, got, want)
		// The plan of a rollout changes the health only of a node that looks
		// well and failed in the rollout.
		for s := rollout.Pending; s <= rollout.Draining; s++ {
			in := StandingOf(fleet.Pair{Config: nc, NodeUnread: true}, &rollout.NodeState{State: s, Reason: "Timeout"}, time.Minute, now)
			if s == rollout.Failed && (want.Health == HealthHealthy || want.Health == HealthOnTrial) {
				assert.That(t, in.Health == HealthFailed && in.Cause == "Timeout", "%s, %v: got %+v", tt.name, s, in)
				continue
			}

			assert.That(t, in.Health == got.Health && in.Cause == got.Cause, "%s, %v: got %+v, want %+v", tt.name, s, in, got)
		}

		// Nothing that an agent reported before makes a dead node look healthy.
		dead := StandingOf(fleet.Pair{Config: nc, Node: nodeReady(false)}, nil, time.Minute, now)
		if want.Health != HealthFailed {
			want = Standing{Health: HealthNotReady, Cause: "the Node is not Ready"}
		}

		assert.That(t, dead == want, "%s, not Ready: got %+v, want %+v", tt.name, dead, want)
	}

	got := StandingOf(fleet.Pair{Config: &v1alpha1.NodeConfig{}}, nil, time.Minute, now)
	assert.That(t, got.Health == HealthUnknown && got.Cause == "the Node does not exist", "without a Node: %+v", got)
	got = StandingOf(fleet.Pair{Node: nodeReady(true)}, nil, time.Minute, now)
	assert.That(t, got.Health == HealthNoAgent && !got.New, "without a NodeConfig: %+v", got)
	got = StandingOf(fleet.Pair{Node: nodeReady(true)}, nil, time.Minute, nodeReady(true).CreationTimestamp.Add(time.Minute))
	assert.That(t, got.Health == HealthNoAgent && got.New, "a new node: %+v", got)
	got = StandingOf(fleet.Pair{Node: nodeReady(false)}, nil, time.Minute, nodeReady(true).CreationTimestamp.Add(time.Minute))
	assert.That(t, got.Health == HealthNotReady && got.New, "a new node that is not Ready: %+v", got)
}

// nodeReady returns a Node that is old enough to have an agent.
func nodeReady(ready bool) *corev1.Node {
	n := &corev1.Node{}
	n.CreationTimestamp = metav1.NewTime(time.Unix(1, 0))
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	if ready {
		n.Status.Conditions[0].Status = corev1.ConditionTrue
	}

	return n
}

func TestThePositionOfANodeFollowsItsStateInTheRollout(t *testing.T) {
	silent := &v1alpha1.NodeConfig{Status: v1alpha1.NodeConfigStatus{AgentVersion: "v1"}}
	for _, tt := range []struct {
		state    rollout.State
		nc       *v1alpha1.NodeConfig
		position Position
		place    string
	}{
		{rollout.Pending, silent, PositionWaiting, "Waiting"},
		{rollout.Assigned, silent, PositionInFlight, "InFlight/Assigned"},
		{rollout.Trial, silent, PositionInFlight, "InFlight/Trial"},
		{rollout.Soaking, silent, PositionInFlight, "InFlight/Soaking"},
		{rollout.Draining, silent, PositionInFlight, "InFlight/Draining"},
		{rollout.Updated, silent, PositionUpdated, "Updated"},
		{rollout.Failed, silent, PositionFailed, "Failed"},
		{rollout.Blocked, silent, PositionBlocked, "Blocked"},
		{rollout.Stale, silent, PositionSkipped, "Skipped/Stale"},
		{rollout.Stale, nil, PositionSkipped, "Skipped/Stale"},
		{rollout.Skipped, silent, PositionSkipped, "Skipped"},
		{rollout.Conflicted, silent, PositionSkipped, "Skipped/Conflicted"},
		{rollout.Manual, silent, PositionSkipped, "Skipped/Manual"},
	} {
		got := StandingOf(fleet.Pair{Config: tt.nc, NodeUnread: true}, &rollout.NodeState{State: tt.state, Reason: "Reason", Message: "words"}, time.Minute, time.Unix(0, 0))
		assert.That(t, got.Position == tt.position && got.Place() == tt.place && got.Why == "Reason: words",
			"%v: got %+v, %s, want %s, %s", tt.state, got, got.Place(), tt.position, tt.place)
	}

	none := StandingOf(fleet.Pair{Config: silent, NodeUnread: true}, nil, time.Minute, time.Unix(0, 0))
	assert.That(t, none.Position == "" && none.Place() == "", "without a rollout: %+v", none)
}

// The list of a stopped rollout keeps the names of nodes that have gone back:
// they have not failed with what they run now.
func TestANodeHasFailedOnlyWithTheRevisionThatItsRolloutListsItFor(t *testing.T) {
	r := v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "w"}, Status: v1alpha1.NodeConfigRolloutStatus{
		UpdateRevision: &v1alpha1.RolloutRevision{Number: 2}, FailedNodes: []v1alpha1.FailedNode{{Name: "n", Reason: rollout.FailedTimeout}},
	}}
	failed := FailedIn([]v1alpha1.NodeConfigRollout{{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, r})
	for _, tt := range []struct {
		name, node, rollout string
		revision            int64
		want                bool
	}{
		{"assigned", "n", "w", 2, true},
		{"gone back", "n", "w", 1, false},
		{"of another rollout", "n", "other", 2, false},
		{"not listed", "m", "w", 2, false},
		{"of a person", "n", "", 0, false},
	} {
		nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: tt.node}, Spec: v1alpha1.NodeConfigSpec{ConfigSource: sourceOf("new")}}
		if tt.rollout != "" {
			nc.Spec.ConfigSource.RolloutRef = &v1alpha1.RolloutReference{Name: tt.rollout, Revision: tt.revision}
		}

		s := failed(fleet.Pair{Config: nc})
		assert.That(t, (s != nil) == tt.want && (s == nil || s.State == rollout.Failed && s.Reason == rollout.FailedTimeout), "%s: %+v", tt.name, s)
	}

	assert.Equal(t, failed(fleet.Pair{}), nil, "a Node without a NodeConfig")
}

func TestAnOddTimeOfANodeIsPrintedAsOneThatCanBeParsed(t *testing.T) {
	nc := &v1alpha1.NodeConfig{}
	assert.NoError(t, json.Unmarshal([]byte(`{"status":{"agentVersion":"v1","conditions":[{"type":"ConfigOK","status":"True","lastTransitionTime":"9999-12-31T23:59:59-23:59"}]}}`), nc))
	text := assert.Value(json.Marshal(RowOf(fleet.Pair{Config: nc}, nil, time.Minute, time.Now())))(t)
	var row struct {
		ConfigOK struct{ Since metav1.Time } `json:"configOK"`
	}
	assert.NoError(t, json.Unmarshal(text, &row))
	assert.That(t, !row.ConfigOK.Since.IsZero(), "%s", text)
}
