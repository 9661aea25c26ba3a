// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

var allPhases = []v1alpha1.RolloutPhase{
	"", v1alpha1.RolloutInvalid, v1alpha1.RolloutFrozen, v1alpha1.RolloutRollingBack, v1alpha1.RolloutRolledBack, v1alpha1.RolloutHalted,
	v1alpha1.RolloutComplete, v1alpha1.RolloutPaused, v1alpha1.RolloutAwaitingApproval, v1alpha1.RolloutWaiting, v1alpha1.RolloutStuck,
	v1alpha1.RolloutProgressing, v1alpha1.RolloutNoNodes,
}

// inPhase returns a rollout. waiting is the number of nodes that it has not
// updated.
func inPhase(phase v1alpha1.RolloutPhase, frozen, paused bool, waiting int32) v1alpha1.NodeConfigRollout {
	r := v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "workers"}}
	r.Spec.Frozen, r.Spec.Paused, r.Status.Phase, r.Status.Nodes.Pending = frozen, paused, phase, waiting
	return r
}

// Every combination of phase x frozen x paused x progress x leader x API server
// x kinds that can be read x health x position obeys the rules.
func TestTheSummaryOfEveryCombination(t *testing.T) {
	for _, phase := range allPhases {
		for bits := range 1 << 6 {
			is := func(bit int) bool { return bits>>bit&1 == 1 }
			frozen, paused, waiting, leads, away, readable := is(0), is(1), is(2), is(3), is(4), is(5)
			r := inPhase(phase, frozen, paused, map[bool]int32{true: 3}[waiting])
			for _, health := range Healths {
				for _, position := range append([]Position{""}, Positions...) {
					kind := nodeKind{Health: health, Position: position, Agentless: health == HealthNoAgent && position != ""}
					s := Situation{Unanswered: away, Rollouts: []v1alpha1.NodeConfigRollout{r}, Nodes: map[nodeKind]int{kind: 7}}
					if !leads {
						s.NoLeader = "no controller leads"
					}
					if !readable {
						s.Unread = []string{"Nodes"}
					}

					wrong := ruleBroken(s, kind, SummaryOf(s))
					assert.Must(t, wrong == "", "%s: %q frozen=%t paused=%t waiting=%t leads=%t away=%t readable=%t %v: %+v",
						wrong, phase, frozen, paused, waiting, leads, away, readable, kind, s)
				}
			}
		}
	}

	assert.That(t, len(allPhases) == 13 && len(Healths) == 7 && len(Positions) == 6,
		"of %d phases, %d healths and %d positions", len(allPhases), len(Healths), len(Positions))
}

// ruleBroken returns the rule that a summary breaks; empty if it breaks none.
func ruleBroken(s Situation, kind nodeKind, got Summary) string {
	r := &s.Rollouts[0]
	count := map[string]int{}
	healths := 0
	for i, l := range got {
		if i > 0 && slices.Index(levels, l.Level) < slices.Index(levels, got[i-1].Level) {
			return "the most urgent is not the first"
		}
		if l.Level == LevelProblem && strings.HasPrefix(l.Reason, "Rollouts") && !strings.HasPrefix(l.Next, "kubectl evenkeel ") {
			return "a problem has no next step"
		}

		count[l.Reason] += l.Count
		if strings.HasPrefix(l.Reason, "Nodes") && l.Reason != "NodesBlocked" {
			healths += l.Count
		}
	}

	stopped, n := Stopped(r.Status.Phase), r.Status.Nodes.Pending
	midway := r.Status.Phase == v1alpha1.RolloutFrozen && n > 0
	problem := s.Unanswered || len(s.Unread) > 0 || s.NoLeader != "" || stopped || midway || kind.Agentless ||
		slices.Contains([]Health{HealthFailed, HealthNotReady, HealthUnknown}, kind.Health)
	switch {
	case healths != 7:
		return fmt.Sprintf("%d of 7 nodes are counted by health", healths)
	case (got.Level() == LevelProblem) != problem:
		return "the level is " + string(got.Level())
	case s.Unanswered && got[0].Reason != "APIServerAway":
		return "an API server that does not answer is not the first"
	case (count["NoController"] == 1) != (s.NoLeader != ""):
		return "the controller"
	case kind.Health == HealthNotReady && (count["NodesHealthy"] > 0 || count["NodesNotReady"] != 7):
		return "nodes that are not Ready are counted as something else"
	case (kind.Position == PositionBlocked) != (count["NodesBlocked"] == 7):
		return "blocked nodes"
	case r.Status.Phase == v1alpha1.RolloutComplete && len(got.Words(LevelNotice)) > 0 && kind.Position != PositionBlocked:
		return "a complete rollout needs a person"
	}

	return ""
}

func TestTheHeadlineOfASituation(t *testing.T) {
	degraded := inPhase(v1alpha1.RolloutProgressing, false, false, 3)
	degraded.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionTrue}}
	degradedAndHalted := inPhase(v1alpha1.RolloutHalted, false, false, 3)
	degradedAndHalted.Status.Conditions = degraded.Status.Conditions
	rollouts := func(all ...v1alpha1.NodeConfigRollout) []v1alpha1.NodeConfigRollout { return all }
	for _, tt := range []struct {
		name     string
		of       Situation
		headline string
		next     string // of the first line
	}{
		{"an empty cluster", Situation{}, "no problems", ""},
		{"all is well", Situation{Rollouts: rollouts(inPhase(v1alpha1.RolloutComplete, false, false, 0)), Nodes: map[nodeKind]int{{Health: HealthHealthy}: 60}}, "no problems", ""},
		{"36 dead nodes of 329 that the rollout counts as failed", Situation{
			Rollouts: rollouts(inPhase(v1alpha1.RolloutHalted, false, false, 200)),
			Nodes:    map[nodeKind]int{{Health: HealthNotReady, Position: PositionFailed}: 36, {Health: HealthHealthy, Position: PositionWaiting}: 293},
		}, "1 rollout halted, 36 nodes not Ready", "kubectl evenkeel rollout status workers"},
		{"rolling back", Situation{Rollouts: rollouts(inPhase(v1alpha1.RolloutRollingBack, false, false, 3))}, "1 rollout rolling back", "kubectl evenkeel rollout status workers"},
		{"rolling back and frozen", Situation{Rollouts: rollouts(inPhase(v1alpha1.RolloutRollingBack, true, false, 3))}, "1 rollout frozen while rolling back", "kubectl evenkeel rollout status workers"},
		{"frozen in the middle", Situation{Rollouts: rollouts(inPhase(v1alpha1.RolloutFrozen, true, false, 3))}, "1 rollout frozen before the end", "kubectl evenkeel rollout status workers"},
		{"frozen when it was complete", Situation{Rollouts: rollouts(inPhase(v1alpha1.RolloutFrozen, true, false, 0))}, "no problems, 1 rollout frozen", "kubectl evenkeel rollout status workers"},
		{"one awaits approval", Situation{Rollouts: rollouts(inPhase(v1alpha1.RolloutAwaitingApproval, false, false, 3))}, "no problems, 1 rollout waiting for approval", "kubectl evenkeel rollout status workers"},
		{"two await approval", Situation{Rollouts: rollouts(inPhase(v1alpha1.RolloutAwaitingApproval, false, false, 3), inPhase(v1alpha1.RolloutAwaitingApproval, false, false, 3))}, "no problems, 2 rollouts waiting for approval", "kubectl evenkeel rollout status workers"},
		{"degraded", Situation{Rollouts: rollouts(degraded)}, "1 rollout degraded", "kubectl evenkeel rollout status workers"},
		{"a halted rollout is degraded too", Situation{Rollouts: rollouts(degradedAndHalted)}, "1 rollout halted", "kubectl evenkeel rollout status workers"},
		{"no leader, and everything else is well", Situation{NoLeader: "no controller runs", Nodes: map[nodeKind]int{{Health: HealthHealthy}: 1}}, "no controller runs", "kubectl evenkeel doctor"},
		{"an agent that is missing, and one that nobody expects", Situation{Nodes: map[nodeKind]int{{Health: HealthNoAgent, Position: PositionSkipped, Agentless: true}: 1, {Health: HealthNoAgent}: 3}}, "1 node without an agent", "kubectl evenkeel nodes --problems"},
		{"nodes that need not be Ready", Situation{Nodes: map[nodeKind]int{Standing{Health: HealthNotReady, New: true}.Kind(): 4, Standing{Health: HealthNotReady, Maintained: true, New: true}.Kind(): 2}},
			"no problems, 2 nodes not Ready under maintenance", "kubectl evenkeel nodes --problems"},
		{"a phase of a later version", Situation{Rollouts: rollouts(inPhase("Dreaming", false, false, 0), inPhase(v1alpha1.RolloutComplete, false, false, 0))},
			"no problems, 1 rollout in an unknown phase", "kubectl evenkeel rollout status workers"},
		{"removed nodes are no problem", Situation{Orphans: 11}, "no problems", ""},
		{"a failure that shows later", Situation{Rollouts: rollouts(inPhase(v1alpha1.RolloutComplete, false, false, 0)), Healths: append(some(50, "a", 7, down(3*time.Minute)), some(250, "a", 6)...)},
			"50 of 300 nodes are not Ready; all 50 run workers/7, received at most 3m earlier", "kubectl evenkeel nodes --rollout workers --problems"},
	} {
		got := SummaryOf(tt.of)
		words := got.Words(LevelProblem)
		if len(words) == 0 {
			words = append(words, "no problems")
		}

		assert.Equal(t, strings.Join(append(words, got.Words(LevelNotice)...), ", "), tt.headline, tt.name)
		next := ""
		if len(got) > 0 {
			next = got[0].Next
		}

		assert.Equal(t, next, tt.next, tt.name+": the next step")
	}

	assert.Equal(t, SummaryOf(Situation{Orphans: 11})[0].Words, "11 NodeConfigs have no Node", "the line")
	assert.Equal(t, SummaryOf(Situation{Orphans: 1})[0].Words, "1 NodeConfig has no Node", "the line")
}
