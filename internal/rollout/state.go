// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Reasons of failures that the controller finds, not the node.
const (
	FailedTimeout  = "Timeout"
	FailedNotReady = "NodeNotReady"
)

// agentVerdicts are the reasons of ConfigOK with which a node says that the
// assigned configuration is bad, or revoked. Every other reason says nothing
// about it, or only for now.
var agentVerdicts = []string{v1alpha1.ReasonValidationFailed, v1alpha1.ReasonCrashLooped, v1alpha1.ReasonNotHealthy,
	v1alpha1.ReasonNotReady, v1alpha1.ReasonWorkloadHarmed, v1alpha1.ReasonPodsCannotStart, v1alpha1.ReasonLostAPI,
	v1alpha1.ReasonRevoked}

// deriveStates derives the state of each node, and counts nodes.
func (d *planner) deriveStates() {
	d.Counts.Selected = int32(len(d.nodes))
	for i := range d.nodes {
		n := &d.nodes[i]
		s := d.nodeState(n)
		d.States[i] = s.State
		d.countNode(n, s)
		if s.State == Failed && len(d.failed) < v1alpha1.MaxFailedNodes {
			d.failed = append(d.failed, i)
		}
	}

	d.Counts.Budget = roundDown(d.in.Spec.Strategy.MaxUnavailable, d.Counts.Members)
}

// hasTarget reports whether a node's spec names the target. It compares
// payloads: the ConfigMap may have been created again.
func (d *planner) hasTarget(n *Node) bool {
	t := &d.in.Target
	return t.Number != 0 && isConfigMap(n.Source) && n.Source.By().Name == d.in.Name && n.Source.Content().SHA256 == t.ConfigMapRef.SHA256
}

// assignedTarget reports whether a node was assigned the target since it became
// the target. Nodes that had the same content before do not count as failures.
// The number distinguishes them: a content that becomes the target again gets
// the next number.
func (d *planner) assignedTarget(n *Node) bool {
	return d.hasTarget(n) && n.Source.By().Revision == d.in.Target.Number
}

// wentNotReady returns when a node was last seen to become NotReady.
func (d *planner) wentNotReady(n *Node) time.Time {
	if n.WentNotReady.IsZero() && len(d.in.Outages) > 0 {
		return d.in.Outages[0].To
	}

	return n.WentNotReady
}

// runsTarget reports whether a node runs the content of the target.
func (d *planner) runsTarget(n *Node) bool {
	return n.Active.Digest() == d.in.Target.ConfigMapRef.SHA256
}

// proven reports whether a node runs the target and has passed the trial.
func (d *planner) proven(n *Node) bool {
	return d.runsTarget(n) && n.LastKnownGood.Digest() == d.in.Target.ConfigMapRef.SHA256 && !n.InTrial
}

// nodeState returns a node's state, and says which records were not used for
// it.
func (d *planner) nodeState(n *Node) NodeState {
	s := d.stateOf(n)
	if n.Ignored != "" {
		s.Message = strings.TrimPrefix(s.Message+"; ignored, because the controller did not write it: "+n.Ignored, "; ")
	}

	return s
}

// stateOf derives a node's state from observations only.
func (d *planner) stateOf(n *Node) NodeState {
	switch {
	case n.Owner != "":
		return NodeState{State: Conflicted, Message: fmt.Sprintf("rollout %s has the node", n.Owner)}
	case n.manual():
		return NodeState{State: Manual, Message: "a person set its configuration; to return it to the rollout: kubectl evenkeel assign " +
			n.Name + " --release"}
	case n.OtherSource == v1alpha1.RemoteConfigDisabled:
		return NodeState{State: Skipped, Message: "its agent has opted out of remote configuration"}
	case n.OtherSource != "":
		return NodeState{State: Skipped, Message: fmt.Sprintf("its configuration comes from its own %s", n.OtherSource)}
	case d.isDraining(n):
		return d.draining(n)
	case d.hasTarget(n):
		return d.assignedNodeState(n)
	case n.Maintenance != "" && !d.isBeingEmptied(n) && !d.returning(n):
		return NodeState{State: Skipped, Message: "under maintenance (" + n.Maintenance + "): not updated until that ends"}
	case !n.Ready && d.returning(n):
		return NodeState{State: Skipped, Message: "NotReady; " + waitsForAnswer}
	case !n.Ready:
		return NodeState{State: Skipped, Message: "NotReady before the revision could be assigned"}
	case !n.HasConfig:
		return NodeState{State: Stale, Message: "no NodeConfig: no agent has created one"}
	case !n.Reported:
		return NodeState{State: Stale, Message: "no agent has ever written to its NodeConfig: is evenkeel-agent installed there?"}
	case d.wasBlocked(n) && d.answerExpected(n):
		return NodeState{Blocked, n.Observation.Reason, n.Observation.Message + "; the assignment is being taken back"}
	case d.returning(n):
		return NodeState{State: Stale, Message: "its agent is silent; " + waitsForAnswer}
	case n.Observed != n.Generation:
		if n.Source != nil && d.before(d.answerDue(n)) { // the assignment is new, or the agent was silent before
			return NodeState{State: Pending, Message: "its agent has not answered the previous assignment"}
		}

		return NodeState{State: Stale, Message: "its agent does not answer; retried when the agent does"}
	}

	if d.Next.Halt != nil {
		return NodeState{State: Pending, Message: "the revision is stopped"}
	}

	if d.wasBlocked(n) {
		again := Latest(d.nextOffer(n), d.window.next)
		d.requeueAt(again)
		return NodeState{Blocked, n.Observation.Reason,
			fmt.Sprintf("%s; the revision is offered again in its turn, not before %s", n.Observation.Message, again.UTC().Format(time.RFC3339))}
	}

	if d.closed() {
		return NodeState{State: Pending, Message: "waiting for a maintenance window"}
	}

	return NodeState{State: Pending, Message: "waiting for its turn"}
}

// assignedNodeState is nodeState for a node whose spec names the target.
func (d *planner) assignedNodeState(n *Node) NodeState {
	// An agent that cannot read its NodeConfig for the moment reports
	// generation 0. It continues the trial that it has begun.
	continues := n.Observed == 0 && n.InTrial && d.runsTarget(n)
	answered, proven := n.Observed == n.Generation || continues, d.proven(n) && n.OK != "False"
	probe, why := d.probed(n)
	switch {
	case answered && n.OK == "False" && n.Provisional:
		return NodeState{State: Trial, Message: "the node's verdict is provisional: " + n.Error}
	case n.refuses():
		return NodeState{Blocked, n.Reason, n.Error}
	case answered && n.OK == "False":
		return NodeState{Failed, n.Reason, n.Error}
	case proven && !d.succeeded && n.PodStarts == v1alpha1.PodsStartFailed && d.assignedTarget(n) && !d.refusedBefore(n):
		return NodeState{Failed, n.PodStarts, n.PodsRefused}
	case probe == ProbeFailed:
		return NodeState{Failed, v1alpha1.ReasonPodsCannotStart, why}
	case d.succeeded && proven:
		return d.afterProbe(n, NodeState{State: Updated}, probe, why) // a later failure is not caused by the rollout
	case !n.Ready && (!d.assignedTarget(n) || n.Created.After(n.Source.By().AssignedAt.Time)):
		return NodeState{State: Skipped, Message: "NotReady before the revision was assigned, or created again since"}
	case !n.Ready: // it was Ready when it was assigned: only Ready nodes are
		judged, is := d.judgedNotReadySince(n)
		if !is {
			return NodeState{State: Skipped, Message: "NotReady under maintenance (" + n.Maintenance + ") that began earlier: no failure, and " +
				timeoutsWait}
		}

		if d.before(d.deadline(judged, d.in.Controller.NotReadyGrace.Duration)) {
			break
		}

		return NodeState{Failed, FailedNotReady, fmt.Sprintf("the Node has been NotReady since %s, after the revision was assigned",
			d.wentNotReady(n).UTC().Format(time.RFC3339))}
	}

	switch {
	case proven:
		return d.afterProbe(n, d.soaking(n), probe, why)
	case n.stale():
		return NodeState{State: Assigned, Message: "its agent rejects the assignment: the controller that made it no longer leads, or the " +
			"revision was stopped"}
	case !answered:
		switch _, over, excused := d.timeout(n, d.in.Controller.AgentTimeout.Duration); {
		case n.Ready && excused:
			return d.excused(n, "its agent has not answered yet")
		case n.Ready && over:
			return NodeState{State: Stale, Message: fmt.Sprintf("its agent has not accepted the assignment within %s",
				d.in.Controller.AgentTimeout.Duration)}
		}

		return NodeState{State: Assigned, Message: "its agent has not answered yet"}
	}

	end, late, excused := d.timeout(n, seconds(d.in.Spec.NodeTimeoutSeconds)+n.TrialLength)
	switch {
	case n.Reason == v1alpha1.ReasonInconclusive || n.Reason == v1alpha1.ReasonLostAPI:
		return NodeState{State: Trial, Message: "the node's verdict is inconclusive: " + n.Error}
	case excused:
		return d.excused(n, "its trial has not ended yet")
	case late:
		return NodeState{Failed, FailedTimeout, fmt.Sprintf("the trial had not ended by %s, %s after the assignment: %s",
			end.UTC().Format(time.RFC3339), end.Sub(n.Source.By().AssignedAt.Time), n.Error)}
	case n.InTrial:
		return d.afterProbe(n, NodeState{State: Trial, Message: "on trial"}, probe, why)
	}

	return NodeState{State: Trial, Message: "its agent has answered without a verdict: " + n.Error}
}

// timeoutsWait says what maintenance does to the timeouts of an assignment.
const timeoutsWait = "the timeouts continue when the maintenance ends"

// excused is the state of a Ready node that would have failed without its
// maintenance: it is missing.
func (d *planner) excused(n *Node, what string) NodeState {
	return NodeState{State: Skipped, Message: what + ", and the node is under maintenance (" + n.Maintenance + "): " + timeoutsWait}
}

// soaking derives the state of a node that has proven the target: Soaking or
// Updated. The soak begins when the node was first seen healthy, whatever time
// the node reports.
func (d *planner) soaking(n *Node) NodeState {
	switch since := d.healthySince(n); {
	case !n.Ready:
		return NodeState{State: Soaking, Message: "NotReady: the soak starts again when the node is Ready"}
	case seconds(d.in.Spec.SoakSeconds) == 0, !d.assignedTarget(n) && !d.resultObserved(n):
		return NodeState{State: Updated}
	case !n.healthy():
		return NodeState{State: Soaking, Message: "ConfigOK is not True: the soak starts again when it is: " + n.Error}
	case d.before(d.ends(since, seconds(d.in.Spec.SoakSeconds))):
		return NodeState{State: Soaking, Message: fmt.Sprintf("healthy since %s, soaks for %s", since.UTC().Format(time.RFC3339),
			seconds(d.in.Spec.SoakSeconds))}
	}

	return NodeState{State: Updated}
}

// healthy reports whether a node is Ready and ConfigOK is True.
func (n *Node) healthy() bool { return n.Ready && n.OK == "True" }

// observationApplies reports whether a node's observation is about its current
// source.
func (d *planner) observationApplies(n *Node) bool {
	return n.Observation.Rollout == d.in.Name && n.isObserved()
}

// newObservation returns an observation about a node's assignment, without a
// result.
func (d *planner) newObservation(n *Node) Observation {
	by := n.Source.By()
	return Observation{Rollout: d.in.Name, Revision: by.Revision, Attempt: by.Attempt, Joined: n.joined()}
}

// resultObserved reports whether a node's observation has a result of the
// current source: healthy or failed.
func (d *planner) resultObserved(n *Node) bool {
	return d.observationApplies(n) && (!n.Observation.HealthySince.IsZero() || n.Observation.Failed > 0)
}

// healthySince returns when a node was first seen healthy; now if that was not
// recorded.
func (d *planner) healthySince(n *Node) time.Time {
	if d.observationApplies(n) && !n.Observation.HealthySince.IsZero() && n.Observation.HealthySince.Before(d.in.Now) {
		return n.Observation.HealthySince
	}

	return d.in.Now
}

// failedIn returns the attempt in which a failed node failed. A failure that
// was not recorded is new.
func (d *planner) failedIn(n *Node) int64 {
	if d.observationApplies(n) && n.Observation.Failed > 0 {
		return n.Observation.Failed
	}
	if retried := d.in.Target.Number == d.in.Status.Target() && d.Next.Attempt > d.in.Status.Attempt; retried {
		return d.in.Status.Attempt
	}

	return d.Next.Attempt
}

// updateObservations records what later plans and leaders need to know about
// nodes.
func (d *planner) updateObservations() {
	if d.in.Target.Number == 0 {
		return
	}

	for i := range d.nodes {
		n, s := &d.nodes[i], d.States[i]
		want := d.observedResult(n, s)
		if d.recordsMaintenance(n, s) {
			want = d.withMaintenance(n, want)
		}
		if s != Conflicted && s != Manual {
			want = d.withProbe(n, want)
		}
		if n.PodStarts == v1alpha1.PodsStartFailed && d.refusedBefore(n) {
			want = d.withRefusal(n, want, n.Observation.RefusedBefore)
		}

		if before := n.Observation.NotReadyBefore; before != "" {
			if want.Rollout == "" {
				want = d.newObservation(n)
			}

			want.NotReadyBefore = before
		}

		d.observe(i, want)
	}
}

// observedResult returns the observation to record about a node's result: when
// it began to soak, or that it failed before a retry. Neither matters after the
// revision has succeeded.
func (d *planner) observedResult(n *Node, s State) Observation {
	if d.succeeded || !d.hasTarget(n) || s == Conflicted || s == Manual {
		return n.Observation
	}

	want := d.newObservation(n)
	switch {
	case d.returning(n): // from an earlier revision: its place in the budget depends on the observation
		return n.Observation
	case s == Draining: // what is recorded of the attempt before the drain still counts
		return n.Observation
	// Offers counts until the node accepts
	case d.wasBlocked(n) && (s == Blocked || s == Assigned || s == Trial || s == Skipped && n.Maintenance != ""):
		return n.Observation
	case s == Failed && n.Source.By().Attempt < d.Next.Attempt && d.failedIn(n) < d.Next.Attempt:
		want.Failed = d.failedIn(n)
	case (s == Soaking || s == Updated) && seconds(d.in.Spec.SoakSeconds) > 0 && n.healthy() && (d.assignedTarget(n) || d.resultObserved(n)):
		want.HealthySince = d.healthySince(n)
	case d.observationApplies(n) && !want.Joined:
		return Observation{}
	case d.observationApplies(n):
	// of an earlier revision
	case n.Observation.Rollout == d.in.Name && !n.Observation.Blocked.IsZero() && n.Observation.Revision != d.in.Target.Number:
		return Observation{}
	default:
		return n.Observation
	}

	return want
}

// refusedBefore reports whether a node's report that it cannot start pods is
// about the time before its assignment. The agent starts no trial for a content
// that it runs already, and keeps the report.
func (d *planner) refusedBefore(n *Node) bool {
	by := n.Source.By()
	return n.Observation.Rollout == d.in.Name && n.Observation.RefusedBefore == assignmentOf(by.Revision, by.Attempt)
}

func assignmentOf(revision, attempt int64) string { return fmt.Sprintf("%d/%d", revision, attempt) }

// withRefusal adds to an observation before which assignment a node reported
// that it cannot start pods.
func (d *planner) withRefusal(n *Node, want Observation, assignment string) Observation {
	if want.Rollout != d.in.Name {
		want = d.newObservation(n)
	}

	want.RefusedBefore = assignment

	return want
}

// noteRefusal records that a node which is assigned the target now has reported
// that it cannot start pods.
func (d *planner) noteRefusal(i int) {
	n := &d.nodes[i]
	if n.PodStarts != v1alpha1.PodsStartFailed || !d.proven(n) {
		return
	}

	d.observe(i, d.withRefusal(n, d.observationOf(i), assignmentOf(d.in.Target.Number, d.Next.Attempt)))
}

// observationOf returns the observation that a node has after this decision.
func (d *planner) observationOf(i int) Observation {
	if o, changed := d.Observations[i]; changed {
		return o
	}

	return d.nodes[i].Observation
}

// observe records an observation of a node, unless the node has it already.
func (d *planner) observe(i int, o Observation) {
	delete(d.Observations, i)
	if o != d.nodes[i].Observation {
		d.Observations[i] = o
	}
}

// carryObservation keeps the soak time of a node that had the target before and
// gets it again. If nothing was recorded, the soak counts as over.
func (d *planner) carryObservation(i int) {
	n := &d.nodes[i]
	if seconds(d.in.Spec.SoakSeconds) == 0 || d.succeeded || d.assignedTarget(n) || !d.proven(n) || !n.healthy() {
		return
	}

	fine := d.in.Now.Add(-seconds(d.in.Spec.SoakSeconds))
	if d.resultObserved(n) {
		fine = d.healthySince(n)
	}

	d.observe(i, Observation{Rollout: d.in.Name, Revision: d.in.Target.Number, Attempt: d.Next.Attempt, HealthySince: fine})
}

// countNode adds a node to the counts and budgets.
func (d *planner) countNode(n *Node, s NodeState) {
	c := &d.Counts
	*[...]*int32{&c.Pending, &c.Assigned, &c.Trial, &c.Soaking, &c.Updated, &c.Failed, &c.Skipped, &c.Stale, &c.Conflicted, &c.Manual,
		&c.Blocked, &c.Draining}[s.State]++
	if n.outside(s.State) {
		return
	}

	c.Members++
	dom := d.domain(n)
	dom.members++
	if d.countsUnavailable(n, s.State) {
		c.Unavailable++
		for _, u := range []*usage{&d.used, &dom.used} {
			u.unavailable++
			if d.settledDown(n, s.State) {
				u.settled++
			}
			if d.hasBegun(n, s.State) {
				u.begun++
			}
		}
	}

	if d.countsInFlight(n, s.State) {
		dom.inFlight++
	}

	waits := s.State == Failed && d.toRetry(n) && !d.retries(n)
	if s.State == Skipped || s.State == Stale || waits {
		d.missing++
	}
	if s.State == Skipped && n.Maintenance != "" || waits {
		d.resting++
	}

	switch {
	case !d.hasTarget(n):
		if d.answerExpected(n) {
			d.freeing++
		}

		if d.rollingBack(n) {
			d.back.moving++
			d.back.goingTo[d.in.sourceName(n.Source)]++
		}

		if s.State == Draining {
			d.assigned++ // it gets the target next
		}

		return
	case s.State == Skipped:
		return
	}

	d.assigned++
	switch {
	case s.State == Blocked:
		d.refusing++
	case s.State == Failed && d.counted(n):
		d.failures++
	}
}

// refuses reports whether a node's guards refuse its assignment because of its
// pods. It accepts the assignment when its pods have changed.
func (n *Node) refuses() bool {
	return n.Observed == n.Generation && n.OK == "False" &&
		(n.Reason == v1alpha1.ReasonWouldEvictPods || n.Reason == v1alpha1.ReasonRestartWouldEvictPods ||
			n.Reason == v1alpha1.ReasonNeedsDrain) &&
		isConfigMap(n.Source) && n.runsAnother()
}

// runsAnother reports whether a node has a source, and runs another content
// than that.
func (n *Node) runsAnother() bool {
	return n.Source != nil && n.Active.Digest() != n.Source.Content().SHA256
}

// judged reports whether a node has a verdict on its source, so that it does
// not try it again by itself. A provisional verdict counts: if it is withdrawn,
// OK becomes Unknown.
func (n *Node) judged() bool {
	return n.OK == "False" && slices.Contains(agentVerdicts, n.Reason)
}

// wasBlocked reports whether the target was taken back from a node that refused
// it.
func (d *planner) wasBlocked(n *Node) bool {
	m := &n.Observation
	return m.Rollout == d.in.Name && m.Revision == d.in.Target.Number && !m.Blocked.IsZero()
}

// waitsForAnswer explains why a silent node counts against the budget.
const waitsForAnswer = "the node counts against the budget until its agent confirms that the assignment was taken back"

// returning reports whether an agent may not know yet that a revision which its
// node refused was taken back. Until it answers, it may accept the revision. A
// later assignment, or a Node that was created again, ends this.
func (d *planner) returning(n *Node) bool {
	m := &n.Observation
	return m.Rollout == d.in.Name && !m.Blocked.IsZero() && n.Observed != n.Generation && !n.Created.After(m.Blocked) &&
		(n.Source == nil || !n.Source.By().AssignedAt.Time.After(m.Blocked))
}

// answerExpected reports whether the agent of a returning node is expected to
// answer soon.
func (d *planner) answerExpected(n *Node) bool {
	return d.returning(n) && d.before(d.deadline(n.Observation.Blocked, d.in.Controller.AgentTimeout.Duration))
}

// The delay between two offers of the target to a node that refused it. It
// doubles with each offer.
const (
	shortestOffer = time.Minute
	longestOffer  = 10 * time.Minute
)

// nextOffer returns when a node that refused the target may be offered it
// again. The controller cannot see that the node's pods have changed, so it
// offers the target again, less and less often. After a retry it does so at
// once.
func (d *planner) nextOffer(n *Node) time.Time {
	if n.Observation.Attempt < d.Next.Attempt {
		return TimeOf(d.Next.AttemptTime)
	}
	if d.isBeingEmptied(n) {
		return nextOfferWhenEmptied(n)
	}

	return n.Observation.Blocked.Add(min(longestOffer, shortestOffer<<min(max(n.Observation.Offers-1, 0), 10)))
}

func (d *planner) domain(n *Node) *domain {
	dom := d.domains[n.Domain]
	if dom == nil {
		dom = &domain{}
		d.domains[n.Domain] = dom
	}

	return dom
}

// countsUnavailable reports whether a node counts against maxUnavailable: in
// progress, soaking, failed, or NotReady since it was assigned.
func (d *planner) countsUnavailable(n *Node, s State) bool {
	switch {
	case s == Failed, d.returning(n):
		return true
	case s == Updated:
		return !n.Ready
	case s == Skipped && d.hasTarget(n):
		return n.Ready || d.assignedTarget(n) && !n.Created.After(n.Source.By().AssignedAt.Time) // it was Ready when it was assigned
	}

	return d.countsInFlight(n, s)
}

// settledDown reports whether a node that counts as unavailable is Ready and
// has not begun to restart: the target failed there, its agent rejects the
// assignment, or its pods prevent an earlier revision.
func (d *planner) settledDown(n *Node, s State) bool {
	return n.Ready && !n.InTrial && n.Observed == n.Generation &&
		(s == Failed || s == Assigned && n.stale() || !d.hasBegun(n, s) && n.refuses())
}

// hasBegun reports whether a node has begun with the target, or is about to.
func (d *planner) hasBegun(n *Node, s State) bool {
	return s == Draining || d.returning(n) || d.hasTarget(n) && !(s == Assigned && n.stale())
}

// countsInFlight reports whether a node is in progress or soaking, for any
// revision of the rollout.
func (d *planner) countsInFlight(n *Node, s State) bool {
	if d.returning(n) {
		return true
	}

	switch s {
	case Assigned, Trial, Soaking, Draining:
		return true
	case Pending, Blocked: // it may still accept what it refuses
		return n.Source.By().Name == d.in.Name && (n.inFlight() && !d.leftBehind(n) || n.refuses())
	case Stale:
		return d.hasTarget(n) // until the assignment is taken back
	case Skipped:
		if !d.hasTarget(n) { // under maintenance, and maybe still on trial with an earlier revision
			return n.Ready && n.Source.By().Name == d.in.Name && (n.inFlight() || n.refuses()) && !d.leftBehind(n) &&
				(n.Observed == n.Generation || d.in.Now.Before(d.answerDue(n)))
		}

		// it continues after its maintenance
		return n.Ready || d.assignedTarget(n) && !d.maintenance(n).Since.IsZero() && !n.Created.After(n.Source.By().AssignedAt.Time)
	}

	return false
}

// leftBehind reports whether a node rejects an assignment of an earlier leader
// that is not renewed, because there is another target since. It adopts nothing
// until it gets that. If it counted as in flight, a few such nodes would use up
// the budget for ever.
func (d *planner) leftBehind(n *Node) bool {
	return n.stale() && !n.InTrial && d.Next.Halt == nil && !d.hasTarget(n) && n.Source.Content().SHA256 != d.lastGood().ConfigMapRef.SHA256
}

// counted reports whether a failed node counts towards the stop. Not counted
// are failures before the last attempt, failures of nodes that had the content
// before it became the target, and all failures after the revision has
// succeeded: these only use up budget.
func (d *planner) counted(n *Node) bool {
	return !d.succeeded && d.assignedTarget(n) && (n.Source.By().Attempt >= d.Next.Attempt || d.failedIn(n) >= d.Next.Attempt)
}

// maxRollbackTrial limits how much of a node's own trial length it may take in
// the rollback: a node that reports a long trial must not delay the others.
const maxRollbackTrial = time.Hour

// rollingBack reports whether a healthy node is being rolled back. A silent
// agent does not delay the others.
func (d *planner) rollingBack(n *Node) bool {
	h := d.Next.Halt
	if h == nil || !h.Rollback || !n.Ready || n.Source.By().Name != d.in.Name || !n.inFlight() ||
		n.Source.By().AssignedAt.Time.Before(h.Time.Truncate(time.Second)) {
		return false
	}

	most := seconds(d.in.Spec.NodeTimeoutSeconds) + min(n.TrialLength, maxRollbackTrial)
	if n.Observed != n.Generation {
		most = d.in.Controller.AgentTimeout.Duration
	}

	return d.before(d.deadline(n.Source.By().AssignedAt.Time, most))
}
