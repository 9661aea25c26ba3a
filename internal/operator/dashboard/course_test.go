// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

var begin = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// minute returns a time so many minutes after begin.
func minute(n int) time.Time { return begin.Add(time.Duration(n) * time.Minute) }

// inSteps returns a rollout of revision 2 with the steps 1 node, a pause and all nodes, which began at begin.
func inSteps(step int32, stepTime time.Time) *v1alpha1.NodeConfigRollout {
	one, all := intstr.FromInt32(1), intstr.FromString("100%")
	r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "workers"}}
	r.Spec.AllNodes = true
	r.Spec.Strategy.Steps = []v1alpha1.RolloutStep{{Nodes: &one}, {Pause: &v1alpha1.RolloutPause{}}, {Nodes: &all}}
	r.Status = v1alpha1.NodeConfigRolloutStatus{
		UpdateRevision: &v1alpha1.RolloutRevision{Number: 2, ConfigMapRef: v1alpha1.ConfigMapReference{UID: "u2"}},
		StartTime:      new(metav1.NewTime(begin)), Step: step, StepTime: new(metav1.NewTime(stepTime)),
	}
	return r
}

// succeeded returns the history of a revision that was complete at a time.
func succeeded(revision int64, end time.Time) []v1alpha1.RolloutOutcome {
	return []v1alpha1.RolloutOutcome{{Revision: revision, Outcome: v1alpha1.OutcomeSucceeded, EndTime: new(metav1.NewTime(end))}}
}

// at formats a time as minutes after begin.
func at(t time.Time) string { return strings.TrimSuffix(t.Sub(begin).String(), "m0s") }

func (t *course) words() string {
	var points, bands []string
	for _, p := range t.Points {
		points = append(points, fmt.Sprintf("%s:%d/%d", at(p.T), p.Updated, p.Failed))
	}
	for _, b := range t.Bands {
		to := ""
		if b.To != nil {
			to = at(*b.To)
		}
		bands = append(bands, fmt.Sprintf("%s %s %s-%s", b.Kind, b.Label, at(b.From), to))
	}
	end := ""
	if t.End != nil {
		end = "; end " + at(*t.End)
	}
	return strings.Join(points, " ") + "; " + strings.Join(bands, ", ") + end
}

func TestATimelineCountsNodesAndShowsSteps(t *testing.T) {
	node := func(assigned, ended int, state rollout.State) courseNode {
		return courseNode{Assigned: minute(assigned), Ended: minute(ended), State: state}
	}
	halted := func(r *v1alpha1.NodeConfigRollout) {
		r.Status.Halt = &v1alpha1.RolloutHalt{Reason: "TooManyFailures", Time: metav1.NewTime(minute(40))}
	}
	complete := func(r *v1alpha1.NodeConfigRollout) { r.Status.History = succeeded(2, minute(50)) }
	for _, tt := range []struct {
		name  string
		r     *v1alpha1.NodeConfigRollout
		edit  func(*v1alpha1.NodeConfigRollout)
		nodes []courseNode
		want  string
	}{
		{"in the first step", inSteps(0, minute(0)), nil, []courseNode{node(1, 0, rollout.Trial)}, "0s:0/0 1h0:0/0; step 1 node 0s-"},
		{"at the pause", inSteps(1, minute(20)), nil, []courseNode{node(1, 20, rollout.Updated)}, "0s:0/0 20:1/0 1h0:1/0; step 1 node 0s-20, pause pause 20-"},
		{"in the last step", inSteps(2, minute(30)), nil, []courseNode{node(1, 20, rollout.Updated), node(31, 45, rollout.Updated), node(31, 50, rollout.Failed), node(46, 0, rollout.Assigned)},
			"0s:0/0 20:1/0 45:2/0 50:2/1 1h0:2/1; step 1 node 0s-20, pause pause 20-30, step 100% 30-"},
		{"complete", inSteps(3, minute(50)), complete, []courseNode{node(1, 20, rollout.Updated), node(31, 50, rollout.Updated)},
			"0s:0/0 20:1/0 50:2/0 1h0:2/0; step 1 node 0s-20, pause pause 20-31, step 100% 31-50; end 50"},
		{"approved at once to all nodes", inSteps(3, begin), func(r *v1alpha1.NodeConfigRollout) { r.Status.History = succeeded(1, minute(-5)) }, []courseNode{node(0, 20, rollout.Updated), node(0, 0, rollout.Trial)},
			"0s:0/0 20:1/0 1h0:1/0; step all nodes 0s-"},
		{"approved at once, and halted", inSteps(3, begin), halted, []courseNode{node(0, 40, rollout.Failed)}, "0s:0/0 40:0/1 1h0:0/1; step all nodes 0s-40, halt TooManyFailures 40-"},
		{"complete, and halted by a node that joined", inSteps(3, minute(30)), func(r *v1alpha1.NodeConfigRollout) {
			halted(r)
			r.Status.History = []v1alpha1.RolloutOutcome{{Revision: 2, Outcome: v1alpha1.OutcomeHalted, EndTime: new(metav1.NewTime(minute(40)))}}
		}, []courseNode{node(1, 20, rollout.Updated), node(35, 40, rollout.Failed)},
			"0s:0/0 20:1/0 40:1/1 1h0:1/1; step 1 node 0s-20, pause pause 20-30, step all nodes 30-40, halt TooManyFailures 40-"},
		{"approved after the first node, and complete", inSteps(3, minute(10)), complete, []courseNode{node(1, 10, rollout.Updated), node(10, 50, rollout.Updated)}, "0s:0/0 10:1/0 50:2/0 1h0:2/0; step 1 node 0s-10, step all nodes 10-50; end 50"},
		{"halted", inSteps(2, minute(30)), halted, []courseNode{node(1, 20, rollout.Updated), node(31, 40, rollout.Failed)},
			"0s:0/0 20:1/0 40:1/1 1h0:1/1; step 1 node 0s-20, pause pause 20-30, step 100% 30-40, halt TooManyFailures 40-"},
		{"halted by failures whose time nobody reports", inSteps(0, minute(0)), halted, []courseNode{{Assigned: minute(1), State: rollout.Failed}},
			"0s:0/0 40:0/1 1h0:0/1; step 1 node 0s-40, halt TooManyFailures 40-"},
		{"rolled back", inSteps(2, minute(30)), func(r *v1alpha1.NodeConfigRollout) {
			halted(r)
			r.Status.Halt.Rollback = true
			r.Status.History = []v1alpha1.RolloutOutcome{{Revision: 2, Updated: 7, Failed: 1}}
		}, []courseNode{{Ended: minute(39), State: rollout.Failed}}, "0s:0/0 39:0/1 40:7/1 1h0:0/1; step 1 node 0s-30, step 100% 30-40, halt TooManyFailures 40-"},
		{"paused by a person", inSteps(0, minute(0)), func(r *v1alpha1.NodeConfigRollout) {
			r.Spec.Paused, r.Spec.PausedReason = true, "a storm"
			r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(minute(5))}}
		}, nil, "0s:0/0 1h0:0/0; step 1 node 0s-, pause paused: a storm 5-"},
		{"clocks of nodes that are wrong", inSteps(2, minute(30)), nil, []courseNode{node(1, -10000, rollout.Updated), node(31, 10000, rollout.Updated), node(-5, 20, rollout.Failed)},
			"0s:0/0 1:1/0 20:1/1 1h0:2/1 1h0:2/1; step 1 node 0s-1, pause pause 1-30, step 100% 30-"},
		{"a status with impossible times", inSteps(9, minute(9999)), func(r *v1alpha1.NodeConfigRollout) {
			r.Status.History = succeeded(2, minute(99999))
			r.Status.StepTime = nil
		}, nil,
			"0s:0/0 1h0:0/0; step 100% 0s-1h0; end 1h0"},
		{"a negative step", inSteps(-7, minute(-100)), nil, nil, "0s:0/0 1h0:0/0; step 1 node 0s-"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.edit != nil {
				tt.edit(tt.r)
			}
			got := courseOf(tt.r, tt.nodes, len(tt.nodes), minute(60))
			if got.words() != tt.want {
				t.Errorf("it is\n%s\nwant\n%s", got.words(), tt.want)
			}
			last := got.Start
			for _, p := range got.Points {
				assert.That(t, !p.T.Before(last) && !p.T.After(got.Now), "the point %+v is out of order", p)
				last = p.T
			}
		})
	}
}

func TestATimelineOfManyNodesIsBounded(t *testing.T) {
	var nodes []courseNode
	for i := range 5000 {
		nodes = append(nodes, courseNode{Assigned: begin, Ended: begin.Add(time.Duration(i) * time.Second / 2), State: rollout.Updated})
	}
	got := courseOf(inSteps(2, begin), nodes, len(nodes), minute(60))
	n := len(got.Points)
	assert.That(t, n <= maxPoints+2 && n >= 50, "it has %d points", n)
	last := got.Points[len(got.Points)-1]
	assert.That(t, last.Updated == 5000 && last.T.Equal(minute(60)), "it ends with %+v", last)
}

func TestTheTimelineOfALongCompleteRolloutShowsItsCourse(t *testing.T) {
	var nodes []courseNode
	for i := range 60 {
		nodes = append(nodes, courseNode{Assigned: begin, Ended: minute(i), State: rollout.Updated})
	}
	for i := range 5000 { // they joined later
		nodes = append(nodes, courseNode{Assigned: begin, Ended: minute(61 + 8*i), State: rollout.Updated})
	}
	r := inSteps(3, minute(60))
	r.Status.History = succeeded(2, minute(60))
	got := courseOf(r, nodes, len(nodes), minute(60+8*5000))
	n := 0
	for n < len(got.Points) && !got.Points[n].T.After(*got.End) {
		n++
	}
	if n != 61 || len(got.Points) > 2*maxPoints+5 || got.Points[len(got.Points)-1].Updated != 5060 {
		t.Errorf("%d of %d points are before its end %s; the last is %+v", n, len(got.Points), got.End, got.Points[len(got.Points)-1])
	}
}

func TestARolloutWithoutARevisionHasNoTimeline(t *testing.T) {
	r := inSteps(0, begin)
	r.Status.UpdateRevision = nil
	if got := courseOf(r, nil, 0, minute(60)); got.Note != "the rollout has no revision yet" || len(got.Points)+len(got.Bands) > 0 || got.Points == nil || got.Bands == nil {
		t.Errorf("it is %+v", got)
	}
}

func TestTheTimesOfANodeComeFromTheControllerWhereItKnowsThem(t *testing.T) {
	r := inSteps(2, begin)
	r.Spec.SoakSeconds = 60
	withRevision := func(edit func(*v1alpha1.NodeConfig)) *v1alpha1.NodeConfig {
		nc := &v1alpha1.NodeConfig{}
		nc.Spec.ConfigSource = &v1alpha1.NodeConfigSource{
			ConfigMapRef: &v1alpha1.ConfigMapReference{UID: "u2"}, RolloutRef: &v1alpha1.RolloutReference{Name: "workers", Revision: 2, Attempt: 1, AssignedAt: metav1.NewTime(minute(1))},
		}
		nc.Status.Active = &v1alpha1.ConfigRevision{UID: "u2"}
		nc.Status.LastKnownGood = &v1alpha1.LastKnownGoodConfig{ConfigRevision: v1alpha1.ConfigRevision{UID: "u2"}, Since: new(metav1.NewTime(minute(11)))}
		nc.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(minute(2))}}
		if edit != nil {
			edit(nc)
		}
		return nc
	}
	failed := func(nc *v1alpha1.NodeConfig) {
		nc.Status.Conditions[0].Status, nc.Status.Conditions[0].Reason = metav1.ConditionFalse, v1alpha1.ReasonCrashLooped
	}
	bad := func(uid types.UID) func(*v1alpha1.NodeConfig) {
		return func(nc *v1alpha1.NodeConfig) {
			nc.Status.BadConfigs = []v1alpha1.BadConfig{{UID: uid, Time: new(metav1.NewTime(minute(5)))}}
		}
	}
	updated, stale := rollout.Updated, rollout.Stale
	for _, tt := range []struct {
		name  string
		nc    *v1alpha1.NodeConfig
		state *rollout.State
		want  string
	}{
		{"updated", withRevision(nil), nil, "1 11 Updated"},
		{"updated, as the controller saw", withRevision(func(nc *v1alpha1.NodeConfig) {
			text := assert.Value(fleet.ObservationText(rollout.Observation{Rollout: "workers", Revision: 2, HealthySince: minute(12)}))(t)
			nc.Annotations = map[string]string{v1alpha1.AnnotationObserved: text}
		}), &updated, "1 13 Updated"},
		{"with another state in the plan", withRevision(nil), &stale, "1  Stale"},
		{"on trial", withRevision(func(nc *v1alpha1.NodeConfig) { nc.Status.Trial = &v1alpha1.Trial{} }), nil, "1  Pending"},
		{"failed", withRevision(failed), nil, "1 2 Failed"},
		{"failed, with a verdict", withRevision(func(nc *v1alpha1.NodeConfig) { failed(nc); bad("u2")(nc) }), nil, "1 5 Failed"},
		{"updated, after a failure with other values", withRevision(bad("u2")), nil, "1 11 Updated"},
		{"refused because of pods", withRevision(func(nc *v1alpha1.NodeConfig) { failed(nc); nc.Status.Conditions[0].Reason = v1alpha1.ReasonNeedsDrain }), nil, "1  Pending"},
		{"rolled back after a failure", withRevision(func(nc *v1alpha1.NodeConfig) { nc.Spec.ConfigSource = nil; bad("u2")(nc) }), nil, " 5 Failed"},
		{"with the same content as an earlier revision", withRevision(func(nc *v1alpha1.NodeConfig) { nc.Spec.ConfigSource.RolloutRef.Revision = 1 }), nil, "1 11 Updated"},
		{"with another revision", withRevision(func(nc *v1alpha1.NodeConfig) {
			nc.Spec.ConfigSource.RolloutRef.Revision, nc.Spec.ConfigSource.ConfigMapRef.SHA256 = 1, "other"
			bad("u1")(nc)
		}), nil, "none"},
		{"of another rollout", withRevision(func(nc *v1alpha1.NodeConfig) { nc.Spec.ConfigSource.RolloutRef.Name = "others" }), nil, "none"},
	} {
		got := "none"
		if n, ok := courseNodeOf(r, tt.nc, tt.state); ok {
			words := func(t time.Time) string {
				if t.IsZero() {
					return ""
				}
				return at(t)
			}
			got = fmt.Sprintf("%s %s %s", words(n.Assigned), words(n.Ended), n.State)
		}
		assert.Equal(t, got, tt.want, tt.name)
	}
}
