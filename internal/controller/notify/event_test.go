// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

var began = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func at(seconds int) metav1.Time {
	return metav1.NewTime(began.Add(time.Duration(seconds) * time.Second))
}

// rolloutIn returns a rollout in a phase, at revision 3.
func rolloutIn(phase v1alpha1.RolloutPhase, with ...func(*v1alpha1.NodeConfigRolloutStatus)) *v1alpha1.NodeConfigRollout {
	r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "workers", UID: "uid"}}
	st := &r.Status
	st.Phase, st.Message, st.Attempt, st.UpdateRevision = phase, "what happens", 1, &v1alpha1.RolloutRevision{Number: 3}
	st.StepTime, st.ProgressTime = new(at(10)), new(at(20))
	for _, f := range with {
		f(st)
	}

	return r
}

func halted(st *v1alpha1.NodeConfigRolloutStatus) {
	st.Halt = &v1alpha1.RolloutHalt{Attempt: 1, Reason: v1alpha1.HaltTooManyFailures, Time: at(30)}
}

func frozen(r *v1alpha1.NodeConfigRollout) *v1alpha1.NodeConfigRollout {
	r.Spec.Frozen = true
	return r
}

// ended records the outcome of revision 3, beside that of an earlier one.
func ended(outcome string, seconds int) func(*v1alpha1.NodeConfigRolloutStatus) {
	return func(st *v1alpha1.NodeConfigRolloutStatus) {
		st.History = []v1alpha1.RolloutOutcome{{Revision: 3, Outcome: outcome, EndTime: new(at(seconds))}, {Revision: 2, Outcome: outcome, EndTime: new(at(1))}}
	}
}

func isNot(kind string, seconds int) func(*v1alpha1.NodeConfigRolloutStatus) {
	return func(st *v1alpha1.NodeConfigRolloutStatus) {
		st.Conditions = append(st.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, LastTransitionTime: at(seconds)})
	}
}

func is(kind, reason string) func(*v1alpha1.NodeConfigRolloutStatus) {
	return func(st *v1alpha1.NodeConfigRolloutStatus) {
		st.Conditions = append(st.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: kind + " message", LastTransitionTime: at(40)})
	}
}

func counts(blocked, trial, draining int32) func(*v1alpha1.NodeConfigRolloutStatus) {
	return func(st *v1alpha1.NodeConfigRolloutStatus) {
		st.Nodes.Blocked, st.Nodes.Trial, st.Nodes.Draining = blocked, trial, draining
	}
}

func TestEventsOfAState(t *testing.T) {
	stamp := func(seconds int) string { return fmt.Sprint(began.Unix() + int64(seconds)) }
	for name, tt := range map[string]struct {
		r      *v1alpha1.NodeConfigRollout
		moving bool
		want   []string // id: message
	}{
		"progressing": {rolloutIn(v1alpha1.RolloutProgressing), false, nil},
		"halted":      {rolloutIn(v1alpha1.RolloutHalted, halted), false, []string{"uid.3.1.Halted." + stamp(30) + ": what happens"}},
		"rolling back": {rolloutIn(v1alpha1.RolloutRollingBack, halted), true,
			[]string{"uid.3.1.Halted." + stamp(30) + ": what happens", "uid.3.1.RollingBack." + stamp(30) + ": what happens"}},
		"rolling back and frozen": {frozen(rolloutIn(v1alpha1.RolloutRollingBack, halted)), false,
			[]string{"uid.3.1.Halted." + stamp(30) + ": what happens", "uid.3.1.Frozen." + stamp(30) + ": what happens"}},
		"rolled back": {rolloutIn(v1alpha1.RolloutRolledBack, halted, ended(v1alpha1.OutcomeRolledBack, 35)), false,
			[]string{"uid.3.1.Halted." + stamp(30) + ": what happens", "uid.3.1.RolledBack." + stamp(35) + ": what happens"}},
		"frozen": {frozen(rolloutIn(v1alpha1.RolloutFrozen, isNot(v1alpha1.ConditionProgressing, 45))), false, []string{"uid.3.1.Frozen." + stamp(45) + ": what happens"}},
		"frozen when it was complete": {frozen(rolloutIn(v1alpha1.RolloutFrozen, isNot(v1alpha1.ConditionProgressing, 35), isNot(v1alpha1.ConditionComplete, 50))), false,
			[]string{"uid.3.1.Frozen." + stamp(50) + ": what happens"}},
		"complete again, after it was frozen": {rolloutIn(v1alpha1.RolloutComplete, is(v1alpha1.ConditionComplete, "AllUpdated"), ended(v1alpha1.OutcomeSucceeded, 25)), false,
			[]string{"uid.3.1.Complete." + stamp(25) + ": what happens"}},
		"halted is degraded, said once":  {rolloutIn(v1alpha1.RolloutHalted, halted, is(v1alpha1.ConditionDegraded, "NodesFailed")), false, []string{"uid.3.1.Halted." + stamp(30) + ": what happens"}},
		"waiting for an approval":        {rolloutIn(v1alpha1.RolloutAwaitingApproval), false, []string{"uid.3.1.AwaitingApproval." + stamp(10) + ": what happens"}},
		"at a timed pause":               {rolloutIn(v1alpha1.RolloutWaiting), false, nil},
		"complete":                       {rolloutIn(v1alpha1.RolloutComplete, is(v1alpha1.ConditionComplete, "AllUpdated")), false, []string{"uid.3.1.Complete." + stamp(40) + ": what happens"}},
		"blocked":                        {rolloutIn(v1alpha1.RolloutProgressing, counts(1, 0, 0)), false, []string{"uid.3.1.Blocked." + stamp(20) + ": what happens"}},
		"blocked and stuck":              {rolloutIn(v1alpha1.RolloutStuck, counts(1, 0, 0)), false, []string{"uid.3.1.Blocked." + stamp(20) + ": what happens"}},
		"blocked, another node in trial": {rolloutIn(v1alpha1.RolloutProgressing, counts(1, 1, 0)), false, nil},
		"blocked, another node drains":   {rolloutIn(v1alpha1.RolloutProgressing, counts(1, 0, 1)), false, nil},
		"blocked, other nodes move":      {rolloutIn(v1alpha1.RolloutProgressing, counts(1, 0, 0)), true, nil},
		"blocked and paused":             {rolloutIn(v1alpha1.RolloutPaused, counts(1, 0, 0)), false, nil},
		"degraded": {rolloutIn(v1alpha1.RolloutProgressing, is(v1alpha1.ConditionDegraded, "NodesFailed")), false,
			[]string{"uid.3.1.Degraded-NodesFailed." + stamp(40) + ": Degraded message"}},
		"complete and degraded": {rolloutIn(v1alpha1.RolloutComplete, is(v1alpha1.ConditionComplete, "AllUpdated"), is(v1alpha1.ConditionDegraded, "AgentsSilent")), false,
			[]string{"uid.3.1.Complete." + stamp(40) + ": what happens", "uid.3.1.Degraded-AgentsSilent." + stamp(40) + ": Degraded message"}},
		"without a revision": {rolloutIn(v1alpha1.RolloutInvalid, is(v1alpha1.ConditionDegraded, "TemplateInvalid"), func(st *v1alpha1.NodeConfigRolloutStatus) { st.UpdateRevision = nil }), false,
			[]string{"uid.0.1.Degraded-TemplateInvalid." + stamp(40) + ": Degraded message"}},
		"without a status": {&v1alpha1.NodeConfigRollout{}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range EventsOf(tt.r, tt.moving) {
				got = append(got, e.ID+": "+e.Data.Message)
			}

			assert.NoDiff(t, cmp.Diff(tt.want, got))
		})
	}
}

func TestTheFormatOfAnEvent(t *testing.T) {
	r := rolloutIn(v1alpha1.RolloutHalted, halted, func(st *v1alpha1.NodeConfigRolloutStatus) {
		st.FailedNodes = []v1alpha1.FailedNode{{Name: "node-7", Message: "not sent"}}
	})
	got := assert.Value(json.MarshalIndent(EventsOf(r, false)[0], "", " "))(t)
	head, nodes, _ := strings.Cut(string(got), `"nodes": {`)
	_, tail, _ := strings.Cut(nodes, "},")
	want := `{
 "specversion": "1.0",
 "id": "uid.3.1.Halted.1772600797",
 "source": "/apis/evenkeel.dev/v1alpha1/nodeconfigrollouts/workers",
 "type": "dev.evenkeel.rollout.halted",
 "subject": "workers",
 "time": "2026-03-04T05:06:37Z",
 "datacontenttype": "application/json",
 "data": {
  "kind": "Halted",
  "rollout": "workers",
  "uid": "uid",
  "revision": 3,
  "attempt": 1,
  "phase": "Halted",
  "reason": "TooManyFailures",
  "message": "what happens",
  "step": 0,
  
  "failedNodes": [
   "node-7"
  ]
 }
}`
	assert.NoDiff(t, cmp.Diff(want, head+tail))
}
