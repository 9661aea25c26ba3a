// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// fleet is a world with that many nodes in one zone, which may all be given
// revision 1 at once.
func fleet(nodes int) *world {
	w := newWorld()
	w.add(nodes, 1)
	w.in.Spec.Strategy.MaxUnavailable, w.in.Spec.Strategy.Steps = percent(100), []v1alpha1.RolloutStep{{Nodes: percent(100)}}
	w.target("r1")

	return w
}

// given has nodes hold revision 1 since the beginning, answered and in their
// trials.
func (w *world) assigned(names ...string) {
	at := apiTime(epoch)
	w.in.Status = v1alpha1.NodeConfigRolloutStatus{
		Phase: v1alpha1.RolloutProgressing, UpdateRevision: new(w.in.Target), Attempt: 1, AttemptTime: at, StartTime: at, StepTime: at, ProgressTime: at,
	}
	for _, name := range names {
		n := w.node(name)
		n.Source = given("workers", revision(1, "workers-r1", "uid-r1", "r1"), epoch)
		n.Generation, n.Observed, n.Active, n.InTrial, n.TrialLength = 2, 2, ref("uid-r1", "r1"), true, trialLength
	}
}

// judge has nodes report this of their assignments, while they run their local
// configurations.
func (w *world) judge(ok metav1.ConditionStatus, reason string, names ...string) {
	for _, name := range names {
		n := w.node(name)
		n.Active, n.InTrial, n.OK, n.Reason = nil, false, ok, reason
	}
}

// proves has nodes pass their trials.
func (w *world) proves(names ...string) {
	for _, name := range names {
		n := w.node(name)
		n.LastKnownGood, n.InTrial = n.Active, false
	}
}

func (w *world) wantMoves(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, m := range w.plan().Moves {
		got = append(got, fmt.Sprintf("%s %s", m.Kind, w.nodes[m.Node].Name))
	}

	slices.Sort(got)
	assert.That(t, slices.Equal(got, want), "moves are %q, want %q", got, want)
}

// An earlier leader, frozen in the middle of a write, assigned n2 when this one
// had already used the budget for n1.
func TestALateAssignmentOfAnEarlierLeaderWaitsForItsTurn(t *testing.T) {
	w := fleet(2)
	w.assigned("n1", "n2")
	w.in.Term, w.in.Spec.Strategy.MaxUnavailable = 2, number(1)
	w.node("n1").Source.By().Term, w.node("n2").Source.By().Term = 2, 1
	w.judge("Unknown", v1alpha1.ReasonStaleAssignment, "n2")
	w.wantMoves(t)
	w.proves("n1")
	w.wantMoves(t, "Renew n2")
}

func TestAStopDoesNotMoveNodesThatHaveProvenTheRevision(t *testing.T) {
	w := fleet(2)
	w.assigned("n1", "n2")
	w.proves("n1")
	w.node("n1").Observed = 1 // it has not answered the newest write
	w.node("n2").Observed = 1
	w.in.Spec.Abort = &v1alpha1.RolloutAbort{Revision: 1}
	w.wantMoves(t, "TakeBack n2")
}

func TestAnInconclusiveStopRevokesNothing(t *testing.T) {
	for reason, want := range map[string][]types.UID{v1alpha1.HaltInconclusive: nil, v1alpha1.HaltTooManyFailures: {"uid-r1"}} {
		w := fleet(1)
		w.assigned("n1")
		w.node("n1").Observed = 1
		w.in.Status.Halt = &v1alpha1.RolloutHalt{Attempt: 1, Reason: reason, Time: metav1.NewTime(epoch)}
		moves := w.plan().Moves
		assert.That(t, len(moves) == 1 && moves[0].Kind == TakeBack && slices.Equal(moves[0].Revoked, want), "%s: %+v", reason, moves)
	}
}

func TestTheNewestTenRevocationsAreKept(t *testing.T) {
	var list []types.UID
	for i := range 10 {
		list = append(list, types.UID(fmt.Sprint(i)))
	}

	got := revoked(list, "new", "")
	assert.That(t, len(got) == 10 && got[0] == "1" && got[9] == "new", "%q", got)
}

func TestAStoppedRevisionIsTakenBackFromANodeThatCannotJudgeIt(t *testing.T) {
	for name, c := range map[string]struct {
		happen func(n *Node)
		want   []string
	}{
		"cannot save it":                      {func(n *Node) { n.OK, n.Reason, n.Active = "Unknown", "SyncFailed", nil }, []string{"TakeBack n1"}},
		"cannot validate it":                  {func(n *Node) { n.OK, n.Reason, n.Active = "Unknown", "CouldNotValidate", nil }, []string{"TakeBack n1"}},
		"has a kubelet that is broken anyway": {func(n *Node) { n.OK, n.Reason, n.Active = "False", "DeadEnd", nil }, []string{"TakeBack n1"}},
		"has an invalid file of its own":      {func(n *Node) { n.OK, n.Reason, n.Active = "False", "LocalInvalid", nil }, []string{"TakeBack n1"}},
		"protects a field":                    {func(n *Node) { n.OK, n.Reason, n.Active = "False", "ProtectedFields", nil }, []string{"TakeBack n1"}},
		"has pods that it would lose":         {func(n *Node) { n.OK, n.Reason, n.Active = "False", "WouldEvictPods", nil }, []string{"TakeBack n1"}},
		"gives a reason of a newer agent":     {func(n *Node) { n.OK, n.Reason, n.Active = "False", "Unheard", nil }, []string{"TakeBack n1"}},
		"withdrew its verdict":                {func(n *Node) { n.OK, n.Reason, n.Active = "Unknown", "Inconclusive", nil }, []string{"TakeBack n1"}},
		"has a provisional verdict":           {func(n *Node) { n.OK, n.Reason, n.Active, n.Provisional = "False", "CrashLooped", nil, true }, nil},
		"rejected it":                         {func(n *Node) { n.OK, n.Reason, n.Active = "False", "ValidationFailed", nil }, nil},
		"rolled back from it":                 {func(n *Node) { n.OK, n.Reason, n.Active = "False", "NotHealthy", nil }, nil},
		"runs it":                             {func(n *Node) { n.OK, n.Reason = "Unknown", "SyncFailed" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := fleet(1)
			w.in.Spec.FailurePolicy.MaxFailures = number(2)
			w.assigned("n1")
			n := w.node("n1")
			n.InTrial = false
			c.happen(n)
			w.wantMoves(t) // before the stop
			w.in.Spec.Abort = &v1alpha1.RolloutAbort{Revision: 1}
			w.wantMoves(t, c.want...)
		})
	}
}

// other returns a revision of another rollout, as the source of a node.
func other(number int64) *v1alpha1.NodeConfigSource {
	content := fmt.Sprint("zone-r", number)
	return given("zone", revision(number, content, content, content), time.Time{})
}

// previous returns a source as the one before another.
func previous(s *v1alpha1.NodeConfigSource) *v1alpha1.PreviousSource {
	return &v1alpha1.PreviousSource{ConfigMapRef: *s.ConfigMapRef, Rollout: s.RolloutRef.Name, Revision: s.RolloutRef.Revision, Attempt: s.RolloutRef.Attempt}
}

func TestAStoppedRevisionOfAnotherRolloutIsNoPreviousSource(t *testing.T) {
	w := fleet(1)
	n, before, rejected := w.node("n1"), other(1), other(2)
	rejected.RolloutRef.Previous = previous(before)
	n.Source = rejected
	n.Active, n.LastKnownGood = ref("zone-r1", "zone-r1"), ref("zone-r1", "zone-r1") // it rejected the second
	w.in.Stopped = []string{rejected.Content().Name}
	moves := w.plan().Moves
	assert.Must(t, len(moves) == 1 && moves[0].Source.By().Previous != nil, "moves are %+v", moves)
	assert.Equal(t, moves[0].Source.By().Previous.ConfigMapRef.Name, "zone-r1", "the previous source is")
	assert.Equal(t, fmt.Sprint(moves[0].Revoked), "[zone-r2]", "revoked are")
}

// The node has revision 1. It goes back, or its assignment is taken back, or it
// is assigned revision 2, with a source to go back to later.
func TestANodeGoesBackToWhatItRunsOrHadBefore(t *testing.T) {
	had, own := previous(other(1)), previous(other(1)) // of another rollout, and of this one
	own.Rollout = "workers"
	r1, zone, unknown := ref("uid-r1", "r1"), ref("zone-r1", "zone-r1"), ref("", "r9")
	rollback := func(stopped ...string) func(w *world) {
		return func(w *world) {
			w.in.Stopped, w.in.Spec.Abort = stopped, &v1alpha1.RolloutAbort{Revision: 1, Rollback: true}
			if n := w.node("n1"); n.Active.Digest() == "r1" {
				n.OK = "True"
			} else {
				n.Observed--
			}
		}
	}
	abort := func(exist ...types.UID) func(w *world) {
		return func(w *world) { w.in.Revisions, w.in.Spec.Abort = exist, &v1alpha1.RolloutAbort{Revision: 1} }
	}
	push := func(exist ...types.UID) func(w *world) {
		return func(w *world) {
			w.target("r2")
			w.in.Revisions = exist
		}
	}
	for name, c := range map[string]struct {
		previous *v1alpha1.PreviousSource
		running  *v1alpha1.ConfigRevision
		happen   func(w *world)
		want     string // the name of the source; of an assignment, of its previous one
	}{
		"not adopted":                             {had, nil, rollback(), "TakeBack zone-r1"},
		"not adopted, stopped":                    {had, nil, rollback("zone-r1"), "TakeBack "},
		"stopped, but the node runs it":           {had, zone, rollback("zone-r1"), "TakeBack zone-r1"},
		"adopted":                                 {had, r1, rollback(), "GoBack zone-r1"},
		"adopted, and the other was stopped":      {had, r1, rollback("zone-r1"), "GoBack "},
		"its ConfigMap exists":                    {own, nil, abort("zone-r1", "uid-r1"), "TakeBack zone-r1"},
		"not known which exist":                   {own, nil, abort(), "TakeBack zone-r1"},
		"gone":                                    {own, nil, abort("uid-r1"), "TakeBack "},
		"created again":                           {own, nil, abort("uid-r1", "another UID"), "TakeBack "},
		"gone, but the node runs it":              {own, zone, abort("uid-r1"), "TakeBack zone-r1"},
		"all are gone":                            {own, nil, abort([]types.UID{}...), "TakeBack "},
		"it has adopted revision 1":               {had, r1, push(), "Assign workers-r1"},
		"it has kept what it had":                 {had, zone, push(), "Assign zone-r1"},
		"it has kept its local configuration":     {nil, nil, push(), "Assign "},
		"it runs something that no source says":   {had, unknown, push(), "Assign workers-r1"},
		"nothing says what it had, and it runs":   {nil, unknown, push(), "Assign workers-r1"},
		"revision 1 is gone, and it runs it":      {had, r1, push("uid-r2"), "Assign workers-r1"},
		"revision 1 is gone, and it never ran it": {had, zone, push("uid-r2"), "Assign zone-r1"},
	} {
		w := fleet(1)
		w.assigned("n1")
		n := w.node("n1")
		n.Source.By().Previous, n.Active, n.LastKnownGood, n.InTrial = c.previous, c.running, c.running, false
		n.OK, n.Reason = "Unknown", "CouldNotValidate"
		c.happen(w)
		moves := w.plan().Moves
		assert.Must(t, len(moves) == 1, "%s: moves are %+v", name, moves)
		source := moves[0].Source.Content().Name
		if moves[0].Kind == Assign {
			source = ""
			if p := moves[0].Source.By().Previous; p != nil {
				source = p.ConfigMapRef.Name
			}
		}

		assert.Equal(t, fmt.Sprintf("%s %s", moves[0].Kind, source), c.want, name)
	}
}

func TestOnePlanAssignsAtMostAThousandNodesAndJoinsAHundredWithoutPods(t *testing.T) {
	for most, w := range map[int]*world{1000: fleet(1001), 100: newcomers(101)} {
		r := w.plan()
		assert.That(t, len(r.Moves) == most && r.RequeueAfter == time.Millisecond, "%d moves, again after %s", len(r.Moves), r.RequeueAfter)
		assert.Equal(t, len(w.plan().Moves), 1, "moves after", most)
	}
}

// An outage explains that nodes are NotReady, and no other failure. It has been
// one if, at the same time, half of the nodes without the revision went
// NotReady, too.
func TestAnOutageExplainsFailuresAtTheSameTimeAndHalfTheRate(t *testing.T) {
	for _, c := range []struct {
		reason       string // that nodes give; empty: they are NotReady
		alsoNotReady int
		before       time.Duration // the failed nodes
		want         string
	}{
		{"", 0, 0, v1alpha1.HaltTooManyFailures},
		{"", 1, 0, v1alpha1.HaltTooManyFailures},
		{"", 2, 0, v1alpha1.HaltInconclusive},
		{"", 2, 5 * time.Minute, v1alpha1.HaltInconclusive},
		{"", 2, -5 * time.Minute, v1alpha1.HaltInconclusive},
		{"", 4, 5*time.Minute + time.Second, v1alpha1.HaltTooManyFailures},
		{"", 4, -5*time.Minute - time.Second, v1alpha1.HaltTooManyFailures},
		{v1alpha1.ReasonCrashLooped, 4, 0, v1alpha1.HaltTooManyFailures},
		{v1alpha1.ReasonNotReady, 4, 0, v1alpha1.HaltInconclusive},
	} {
		w := fleet(6) // of which four have not been given it
		w.assigned("n1", "n2")
		w.in.Spec.FailurePolicy.MaxFailures = number(2)
		at := epoch.Add(10 * time.Minute)
		for i := range w.nodes[:2+c.alsoNotReady] {
			n := &w.nodes[i]
			n.Ready, n.WentNotReady = i < 2 && c.reason != "", at
			if i >= 2 {
				n.WentNotReady = at.Add(-c.before)
			}
		}

		if c.reason != "" {
			w.judge("False", c.reason, "n1", "n2")
		}

		w.now = epoch.Add(20 * time.Minute)
		h := w.plan().Next.Halt
		assert.That(t, h != nil && h.Reason == c.want, "%+v: %+v", c, h)
	}
}

func TestOnlyChangesAfterTheAssignmentFailANode(t *testing.T) {
	for _, c := range []struct {
		name   string
		happen func(w *world, n *Node)
		want   State
	}{
		{"it went NotReady", func(w *world, n *Node) { n.Ready, n.WentNotReady = false, epoch.Add(time.Second) }, Failed},
		{"NotReady while not observed", func(w *world, n *Node) {
			n.Ready, n.WentNotReady, w.in.Outages = false, epoch.Add(time.Second), Outages{{epoch, w.now}}
		}, Trial},
		{"it was created again", func(w *world, n *Node) { n.Ready, n.Created = false, epoch.Add(time.Second) }, Skipped},
		{"its agent is silent", func(w *world, n *Node) { n.Observed = 1 }, Stale},
		{"its agent cannot read its NodeConfig", func(w *world, n *Node) { n.Observed = 0 }, Trial},
		{"nor could it before the trial", func(w *world, n *Node) { n.Observed, n.InTrial, n.Active = 0, false, nil }, Stale},
		{"silent while not observed", func(w *world, n *Node) { n.Observed, w.in.Outages = 1, Outages{{epoch, w.now}} }, Assigned},
		{"its trial does not end", func(w *world, n *Node) { w.now = epoch.Add(time.Hour) }, Failed},
		{"it lost the API, and cannot tell why", func(w *world, n *Node) {
			w.now, n.OK, n.Reason = epoch.Add(time.Hour), "Unknown", "LostAPI"
		}, Trial},
	} {
		w := fleet(1)
		w.assigned("n1")
		w.now = epoch.Add(10 * time.Minute)
		c.happen(w, w.node("n1"))
		w.in.Now = w.now
		r := Plan(w.in, w.nodes)
		assert.Equal(t, r.States[0], c.want, c.name)
		assert.That(t, (c.want == Skipped) == (r.Counts.Unavailable == 0), "%s: %d unavailable", c.name, r.Counts.Unavailable)
	}
}

// newcomers are nodes without workload pods that join a fleet in which revision
// 1 has succeeded.
func newcomers(nodes int) *world {
	w := fleet(1)
	w.assigned("n1")
	w.proves("n1")
	w.plan()
	w.in.Spec.Strategy.MaxJoining = number(2)
	w.now = epoch.Add(time.Minute)
	w.add(nodes, 1)
	for i := range w.nodes[1:] {
		w.nodes[i+1].Created, w.nodes[i+1].Idle = w.now, true
	}

	return w
}

// The node has refused revision 1, which was taken back, and its agent has
// fallen silent after that.
func TestTheBudgetIsFreeWhenATakenBackAssignmentCannotBeAccepted(t *testing.T) {
	for name, c := range map[string]struct {
		happen func(n *Node)
		spent  int32
	}{
		"a silent agent":                    {func(n *Node) {}, 1},
		"a NotReady Node":                   {func(n *Node) { n.Ready, n.WentNotReady = false, epoch.Add(time.Second) }, 1},
		"it has answered":                   {func(n *Node) { n.Observed = n.Generation }, 0},
		"it has answered, and is NotReady":  {func(n *Node) { n.Observed, n.Ready = n.Generation, false }, 0},
		"its machine was created again":     {func(n *Node) { n.Created = epoch.Add(time.Second) }, 0},
		"its NodeConfig is gone":            {func(n *Node) { *n = Node{Name: n.Name, Created: n.Created, Ready: true} }, 0},
		"it was given something after that": {func(n *Node) { n.Source = local(1, epoch.Add(time.Second)) }, 0},
	} {
		w := fleet(1)
		w.assigned("n1")
		n := w.node("n1")
		n.Source, n.Active, n.InTrial, n.Generation = nil, nil, false, 3
		n.Observation = Observation{Rollout: "workers", Revision: 1, Attempt: 1, Blocked: epoch, Offers: 1, Reason: v1alpha1.ReasonWouldEvictPods}
		w.in.Now, w.in.Spec.Paused = epoch.Add(time.Hour), true
		c.happen(n)
		assert.Equal(t, Plan(w.in, w.nodes).Counts.Unavailable, c.spent, name, "unavailable")
	}
}
