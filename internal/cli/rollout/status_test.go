// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *metav1.Time { return &metav1.Time{Time: noon.Add(-d)} }

// moving is a rollout in the middle of its steps.
func moving() *v1alpha1.NodeConfigRollout {
	r := &v1alpha1.NodeConfigRollout{}
	r.Name, r.Generation = "workers", 3
	one, tenth := intstr.FromInt32(1), intstr.FromString("10%")
	r.Spec.AllNodes = true
	r.Spec.Strategy.Steps = []v1alpha1.RolloutStep{
		{Nodes: &one}, {Pause: &v1alpha1.RolloutPause{Duration: &metav1.Duration{Duration: 10 * time.Minute}}}, {Nodes: &tenth}, {Pause: &v1alpha1.RolloutPause{}},
	}
	r.Status = v1alpha1.NodeConfigRolloutStatus{
		ObservedGeneration: 3, Phase: v1alpha1.RolloutProgressing, Message: "3 nodes are in flight", Attempt: 2, Step: 2,
		StartTime:      ago(12 * time.Minute),
		UpdateRevision: &v1alpha1.RolloutRevision{Number: 4, ConfigMapRef: v1alpha1.ConfigMapReference{Name: "workers-7f9c4d1a2b", UID: "u4", SHA256: "s4"}},
		Nodes:          v1alpha1.RolloutCounts{Selected: 120, Members: 120, Pending: 56, Assigned: 1, Trial: 2, Updated: 61, Failed: 1, Unavailable: 4},
	}

	return r
}

func TestTheView(t *testing.T) {
	const title, going = "workers  revision 4 (workers-7f9c4d1a2b), attempt 2  ", "Progressing  started 12m ago\n"
	preflight := &v1alpha1.PreflightResult{Accepted: 7, Refused: 1, Groups: []v1alpha1.PreflightGroup{
		{Verdict: "Refused", Reason: "ValidationFailed", Message: "maxPods", Nodes: 1, Examples: []string{"node-7"}},
	}}
	for _, tt := range []struct {
		name   string
		change func(*v1alpha1.NodeConfigRollout)
		begins string
		has    string
		ends   string
	}{
		{name: "steps and counts", change: func(*v1alpha1.NodeConfigRollout) {},
			begins: title + going + "3 nodes are in flight\n\nSteps  ✓ 1 node  ✓ pause 10m  ▶ 10%  pause\n",
			ends:   "  pause\nNodes  61/120 updated, 56 pending, 1 assigned, 2 in trial, 1 failed, 4 unavailable\n"},
		{name: "old data", change: func(r *v1alpha1.NodeConfigRollout) { r.Generation = 4 },
			begins: title + going + "the controller has not observed this change yet; if this stays so: kubectl evenkeel doctor\n"},
		{name: "the age of a halt", change: func(r *v1alpha1.NodeConfigRollout) {
			r.Status.Phase, r.Status.Halt = v1alpha1.RolloutHalted, &v1alpha1.RolloutHalt{Time: *ago(6 * time.Second)}
		}, begins: title + "Halted  stopped 6s ago\n"},
		{name: "the rest of a pause", change: func(r *v1alpha1.NodeConfigRollout) { r.Status.Step, r.Status.StepTime = 1, ago(4*time.Minute) },
			has: "\nSteps  ✓ 1 node  ▶ pause 10m (6m left)  10%  pause\n"},
		{name: "steps that make no sense", change: func(r *v1alpha1.NodeConfigRollout) {
			r.Spec.Strategy.Steps[0].Nodes = new(intstr.FromString("many"))
		}, has: `"many" is neither`},
		{name: "more failed nodes", change: func(r *v1alpha1.NodeConfigRollout) {
			r.Status.Nodes.Failed = 3
			r.Status.FailedNodes = []v1alpha1.FailedNode{{Name: "node-7", Reason: "Timeout", Message: "took\ntoo long"}}
		}, ends: "\nnode-7  Timeout  took too long\nand 2 more failed nodes: kubectl evenkeel nodes --rollout workers --failed\n"},
		{name: "draining nodes", change: func(r *v1alpha1.NodeConfigRollout) {
			r.Status.Nodes.Draining = 2
			r.Status.DrainingNodes = []v1alpha1.DrainingNode{{Name: "node-8", Since: *ago(3 * time.Minute), Message: "2 pods\x1b[2J to evict"}}
		}, has: "56 pending, 2 draining, 1 assigned",
			ends: "\nnode-8  draining for 3m  2 pods\\x1b[2J to evict\nand 1 more draining nodes: kubectl evenkeel nodes --rollout workers\n"},
		{name: "answers of a preflight", change: func(r *v1alpha1.NodeConfigRollout) { r.Status.Preflight = preflight },
			ends: "\nAgents 7 accepted, 1 refused\n"},
		{name: "refusals that stopped it", change: func(r *v1alpha1.NodeConfigRollout) {
			r.Status.Preflight, r.Status.Halt = preflight, &v1alpha1.RolloutHalt{Time: *ago(time.Second)}
		}, has: "\n       1 node refuses\n         1 ValidationFailed (node-7): maxPods\n"},
	} {
		r := moving()
		tt.change(r)
		got := strings.Join(view{rollout: r, now: noon}.lines(), "\n") + "\n"
		assert.That(t, strings.HasPrefix(got, tt.begins) && strings.Contains(got, tt.has) && strings.HasSuffix(got, tt.ends),
			"%s: the view is\n%s", tt.name, got)
	}
}

func TestTheStatusSaysThatAFailedNodeIsGone(t *testing.T) {
	api := newAPI(t)
	api.AddNode("there", "x", "z1")
	api.AddRolledOut("workers", func(r *v1alpha1.NodeConfigRollout) {
		r.Status.FailedNodes = []v1alpha1.FailedNode{{Name: "there", Reason: "Timeout", Message: "late"}, {Name: "gone", Reason: "Timeout", Message: "late"}}
	})
	api.Run("rollout", "status", "workers").WantOutput(t, "there Timeout late\n", "gone Timeout late (the node no longer exists)\n")
	api.Forbid("get", "Node")
	api.Run("rollout", "status", "workers").WantOutput(t, "gone Timeout late\n")
}

func TestAWaitGivesTheControllerTimeToObserveAChange(t *testing.T) {
	api := newAPI(t)
	api.AddRolledOut("workers", func(r *v1alpha1.NodeConfigRollout) { r.Status.ObservedGeneration = -1 })
	got := api.Run("rollout", "status", "workers", "-w", "--timeout", "2s")
	assert.That(t, got.Code == command.ExitTimeout && got.Out == "", "after two seconds: exit %d, %s%s", got.Code, got.Out, got.Err)
}

func TestALineSaysNothingTwice(t *testing.T) {
	r := moving()
	for message, want := range map[string]string{
		"revision 4: 61 of 120 nodes updated, 3 in flight":             "workers revision 4 attempt 2: Progressing, 2/4 steps done: 61 of 120 nodes updated, 3 in flight",
		"revision 4: 2/4 steps done; waiting; 61 of 120 nodes updated": "workers revision 4 attempt 2: Progressing: 2/4 steps done; waiting; 61 of 120 nodes updated",
		"revision 4 was stopped":                                       "workers revision 4 attempt 2: Progressing, 2/4 steps done, 61/120 updated, 3 in flight, 1 failed: revision 4 was stopped",
	} {
		r.Status.Message = message
		assert.Equal(t, plainLine(r), want)
	}
}

func TestTheExitCodeOfEachPhase(t *testing.T) {
	type verdictOf struct {
		code int
		over bool
	}
	paused := goal{paused: true}
	for _, tt := range []struct {
		phase       v1alpha1.RolloutPhase
		end, paused verdictOf
	}{
		{v1alpha1.RolloutComplete, verdictOf{0, true}, verdictOf{0, true}},
		{v1alpha1.RolloutHalted, verdictOf{2, true}, verdictOf{2, true}},
		{v1alpha1.RolloutRollingBack, verdictOf{2, false}, verdictOf{2, false}},
		{v1alpha1.RolloutRolledBack, verdictOf{2, true}, verdictOf{2, true}},
		{v1alpha1.RolloutInvalid, verdictOf{2, true}, verdictOf{2, true}},
		{v1alpha1.RolloutStuck, verdictOf{2, true}, verdictOf{2, true}},
		{v1alpha1.RolloutAwaitingApproval, verdictOf{4, true}, verdictOf{0, true}},
		{v1alpha1.RolloutWaiting, verdictOf{0, false}, verdictOf{0, true}},
		{v1alpha1.RolloutPaused, verdictOf{0, false}, verdictOf{0, true}},
		{v1alpha1.RolloutFrozen, verdictOf{0, false}, verdictOf{0, false}},
		{v1alpha1.RolloutProgressing, verdictOf{0, false}, verdictOf{0, false}},
		{v1alpha1.RolloutNoNodes, verdictOf{0, false}, verdictOf{0, false}},
		{"", verdictOf{0, false}, verdictOf{0, false}},
	} {
		r := moving()
		r.Status.Phase = tt.phase
		if tt.phase == v1alpha1.RolloutWaiting { // at a timed pause
			code, over := exitCode(r, paused)
			assert.That(t, code == 0 && !over, "Waiting at a step of nodes, such as for a gate, is %d, over %v, want it to go on", code, over)
			r.Spec.Strategy.Steps = []v1alpha1.RolloutStep{{Pause: &v1alpha1.RolloutPause{Duration: &metav1.Duration{Duration: time.Hour}}}}
			r.Status.Step = 0
		}

		for _, g := range []struct {
			goal goal
			want verdictOf
		}{{goal{}, tt.end}, {paused, tt.paused}} {
			var got verdictOf
			got.code, got.over = exitCode(r, g.goal)
			assert.That(t, got == g.want, "%s for %+v is %+v, want %+v", tt.phase, g.goal, got, g.want)
		}

		r.Generation++
		code, over := exitCode(r, paused)
		assert.That(t, code == 0 && !over, "%s of an older spec is %d, over %v, want nothing to be believed", tt.phase, code, over)
	}
}

func TestWaitingForAWindowIsNoPauseAndIsShown(t *testing.T) {
	r := moving()
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	r.Status.Phase, r.Status.NextWindowTime = v1alpha1.RolloutWaiting, new(metav1.NewTime(now.Add(90*time.Minute)))
	code, over := exitCode(r, goal{paused: true})
	assert.That(t, code == 0 && !over, "it is %d, over %v", code, over)
	got := strings.Join(view{rollout: r, now: now}.lines(), "\n")
	assert.That(t, strings.Contains(got, "\nWindow 2030-01-01T13:30:00Z, in 90m"), "the view is\n%s", got)
}

func TestACompleteRolloutWithTooManyFailedNodesExitsWithHalted(t *testing.T) {
	r := moving()
	r.Status.Phase = v1alpha1.RolloutComplete
	for reason, want := range map[string]int{"NodesFailed": command.ExitComplete, rollout.DegradedTooMany: command.ExitHalted} {
		r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionTrue, Reason: reason}}
		code, over := exitCode(r, goal{})
		assert.That(t, code == want && over, "%s is %d, over %v, want %d", reason, code, over, want)
	}
}

// A failure that shows later is in the status, with the step back, and changes
// nothing else.
func TestTheStatusNamesAFailureThatShowsLater(t *testing.T) {
	api := newAPI(t)
	before, rev := api.AddRevision("later", 1, "maxPods: 110\n"), api.AddRevision("later", 2, "maxPods: 120\n")
	api.AddRollout("later", "later", nil, func(r *v1alpha1.NodeConfigRollout) {
		r.Spec.Template = fakeapi.Follow(rev.Namespace, rev.Name)
		r.Status.Phase, r.Status.ObservedGeneration, r.Status.Message = v1alpha1.RolloutComplete, 1, "revision 2: 5 of 5 nodes updated"
		r.Status.UpdateRevision = &v1alpha1.RolloutRevision{Number: 2, ConfigMapRef: fakeapi.RefTo(rev)}
		r.Status.Nodes = v1alpha1.RolloutCounts{Selected: 5, Members: 5, Updated: 5}
		r.Status.History = []v1alpha1.RolloutOutcome{{Revision: 2, Outcome: v1alpha1.OutcomeSucceeded}, {Revision: 1, Outcome: v1alpha1.OutcomeSucceeded}}
	})
	var late []*corev1.Node
	for i := range 20 {
		name := fmt.Sprint("node-", i)
		if i >= 5 {
			api.AddAgent(name, "later", nil, nil)
			continue
		}

		late = append(late, api.AddNode(name, "later", "z1"))
		api.AddNodeConfig(name, fakeapi.ByRollout("later", 2, rev, before), func(st *v1alpha1.NodeConfigStatus) { st.Active = fakeapi.Runs(rev) })
	}

	got := api.Run("rollout", "status", "later")
	assert.That(t, got.Code == command.ExitComplete && !strings.Contains(got.Out, "not Ready"), "all is well: %+v", got)
	for _, n := range late {
		n.Status.Conditions[0].Status = corev1.ConditionUnknown
		n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Minute))
		api.Report(n)
	}

	got = api.Run("rollout", "status", "later")
	got.Want(t, command.ExitComplete, []string{"5 of 20 nodes are not Ready; all 5 run later/2, received at most 11m", " earlier: kubectl evenkeel rollout undo later\n"}, "")
	assert.That(t, strings.HasSuffix(got.Out, "rollout undo later\n"), "the status waits for the nodes: %s", got.Out)
	api.Forbid("list", "Node")
	got = api.Run("rollout", "status", "later")
	assert.That(t, got.Code == command.ExitComplete && strings.Contains(got.Out, "revision 2: 5 of 5 nodes updated") && !strings.Contains(got.Out, "not Ready"), "without permission: %+v", got)
}
