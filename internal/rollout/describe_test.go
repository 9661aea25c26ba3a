// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

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

// After a chain of commands, 60 nodes run four configurations, and the last
// rollback is over.
func TestAFinishedRollbackSaysHowManyNodesRunWhat(t *testing.T) {
	source := func(number int64, sha256, rollout string) *v1alpha1.NodeConfigSource {
		return given(rollout, revision(number, "cm-"+sha256, sha256, sha256), time.Time{})
	}
	p := Input{
		Claim: Claim{Name: "workers"}, Target: revision(3, "workers-c", "c", "c"), Now: epoch, Stopped: []string{"workers-b"},
		Contents: map[string]Content{"a": {Number: 1}, "b": {Number: 2, Stopped: true}, "c": {Number: 3}},
	}
	p.Status = stoppedStatus(p.Target, v1alpha1.HaltAborted, "stopped by a person")
	p.Status.Halt.Rollback = true
	var nodes []Node
	add := func(n int, s *v1alpha1.NodeConfigSource) {
		var running *v1alpha1.ConfigRevision
		if isConfigMap(s) {
			running = ref(string(s.Content().UID), s.Content().SHA256)
		}

		for range n {
			nodes = append(nodes, Node{Name: fmt.Sprint("n", len(nodes)), Ready: true, HasConfig: true, Reported: true, OK: "True", Source: s, Active: running})
		}
	}
	add(26, source(1, "a", "workers"))
	add(23, local(3, time.Time{}))
	add(10, source(2, "b", "workers"))
	add(1, source(4, "d", "others"))
	const want = "now 26 on revision 1, 23 on the local configuration, 10 on revision 2 (stopped), 1 on revision 4 of rollout others"
	r := Plan(p, nodes)
	assert.Equal(t, r.Next.Phase, v1alpha1.RolloutRolledBack, "the phase")
	assert.That(t, strings.HasSuffix(r.Next.History[0].Message, "; "+want), "the outcome is %s", r.Next.History[0].Message)
	assert.That(t, strings.Contains(r.Next.Message, "its nodes were rolled back; "+want+"; push a fixed configuration"), "the message is %s", r.Next.Message)
}

func TestAMessageNamesACommandOnlyIfItIsTheSafeNextStep(t *testing.T) {
	good := revision(1, "workers-a", "a", "a")
	for name, tt := range map[string]struct {
		edit func(*Input)
		want string // the end of the message
	}{
		"a failed node, and an earlier revision": {func(*Input) {}, "; push a fixed configuration, or: kubectl evenkeel rollout retry workers n0, or: kubectl evenkeel rollout undo workers"},
		"nothing before it":                      {func(p *Input) { p.LastSucceeded = v1alpha1.RolloutRevision{} }, "; push a fixed configuration, or: kubectl evenkeel rollout retry workers n0"},
		"the earlier revision failed later":      {func(p *Input) { p.Stopped = []string{"workers-a"} }, "; push a fixed configuration, or: kubectl evenkeel rollout retry workers n0"},
		"an outage": {func(p *Input) { p.Status.Halt.Reason = v1alpha1.HaltInconclusive },
			"; when the outage is over: kubectl evenkeel rollout retry workers, or: kubectl evenkeel rollout undo workers"},
		"after an undo, the template is not offered": {func(p *Input) {
			p.Status.Halt, p.PassPauses, p.Replaced = nil, true, "the template: revision 2 was stopped (TooManyFailures: 1 node failed (limit 1): w-7 CrashLooped)"
		}, "; spec.pin holds this revision in place of the template: revision 2 was stopped (TooManyFailures: 1 node failed (limit 1): w-7 CrashLooped)"},
		"a content that failed before": {func(p *Input) { p.Status.Halt, p.TargetFailed = nil, "revision 2 was stopped (Aborted: by a person)" },
			"; the same content failed before: revision 2 was stopped (Aborted: by a person)"},
	} {
		p := Input{Claim: Claim{Name: "workers"}, Target: revision(3, "workers-c", "c", "c"), Now: epoch, LastSucceeded: good}
		p.Spec.FailurePolicy.MaxFailures = number(9)
		p.Status = stoppedStatus(p.Target, v1alpha1.HaltTooManyFailures, "1 node failed")
		tt.edit(&p)
		n := Node{Name: "n0", Ready: true, HasConfig: true, Reported: true, OK: "False", Reason: v1alpha1.ReasonCrashLooped,
			Source: given("workers", p.Target, time.Time{})}
		got := Plan(p, []Node{n}).Next.Message
		assert.That(t, strings.HasSuffix(got, tt.want), "%s: the message is %s\nwant the end %s", name, got, tt.want)
	}
}

// stoppedStatus is the status of a rollout whose target was stopped in its
// first attempt.
func stoppedStatus(target v1alpha1.RolloutRevision, reason, message string) v1alpha1.NodeConfigRolloutStatus {
	return v1alpha1.NodeConfigRolloutStatus{
		UpdateRevision: new(target), Attempt: 1, Phase: v1alpha1.RolloutHalted,
		Halt: &v1alpha1.RolloutHalt{Attempt: 1, Reason: reason, Message: message, Time: metav1.NewTime(epoch)},
	}
}

func TestOnlyNodesAssignedWaitsForTheMoves(t *testing.T) {
	w := fleet(3)
	r := w.plan()
	var given []string
	for _, m := range r.Moves {
		given = append(given, w.nodes[m.Node].Name)
	}

	about := slices.DeleteFunc(slices.Clone(r.Events), func(e Event) bool { return len(e.Assigned) == 0 })
	assert.Must(t, len(about) == 1 && len(given) == 3 && slices.Equal(about[0].Assigned, given) && len(r.Events) >= 2,
		"given to %v, and the events are %+v", given, r.Events)
	// A batch that took several plans is told as one.
	all := w.in.NodesAssigned(r.Next.Step, append(given, "n4"))
	want := "revision 1 was assigned to 4 nodes (step 0/1): n2, n3, n1, n4"
	assert.That(t, all.Reason == about[0].Reason && all.Message == want, "got %s: %s, want %s", all.Reason, all.Message, want)
}

// Lists of names are cut at their limit, and a complete one does not look cut.
func TestListsAreCutAtTheirLimit(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f"}
	assert.Equal(t, joinNames(names[:5]), "a, b, c, d, e")
	assert.Equal(t, joinNames(names), "a, b, c, d, e, ...")
	for name, listed := range map[string]func(n int) int{
		"nodes that failed": func(n int) int {
			w := fleet(20)
			for i := range n {
				w.assigned(w.nodes[i].Name)
				w.judge("False", v1alpha1.ReasonCrashLooped, w.nodes[i].Name)
			}

			return len(w.plan().Next.FailedNodes)
		},
		"nodes that are drained": func(n int) int {
			w := fleet(20)
			w.assigned()
			w.in.Spec.Strategy.Drain, w.in.Spec.Strategy.MaxUnavailable = v1alpha1.DrainAlways, number(0) // no other drain begins
			for i := range n {
				w.drains(w.nodes[i].Name, 1)
				w.nodes[i].DrainReport = nil
			}

			return len(w.plan().Next.DrainingNodes)
		},
		"nodes whose drain begins": func(n int) int {
			w := fleet(n)
			w.in.Spec.Strategy.Drain = v1alpha1.DrainAlways
			return len(w.plan().Next.DrainingNodes)
		},
	} {
		assert.Equal(t, listed(v1alpha1.MaxFailedNodes), v1alpha1.MaxFailedNodes, name)
		assert.Equal(t, listed(v1alpha1.MaxFailedNodes+1), v1alpha1.MaxFailedNodes, name)
	}
}

func TestAComparisonHoldsAsItsOperatorSays(t *testing.T) {
	for operator, want := range map[string][3]bool{ // below, at, and above the number
		"<": {true, false, false}, "<=": {true, true, false}, ">": {false, false, true}, ">=": {false, true, true},
		"==": {false, true, false}, "!=": {true, false, true},
	} {
		c := Comparison{operator, 2}
		assert.Equal(t, [3]bool{c.Holds(1), c.Holds(2), c.Holds(3)}, want, "1, 2 and 3", c)
		assert.That(t, c.Holds(c.example()), "%v is no example of %s", c.example(), c)
	}
}
