package rollout

import (
	"fmt"
	"slices"
	"time"
)

// Reasons of a failure that are not the node's own.
const (
	FailedTimeout  = "Timeout"
	FailedNotReady = "NodeNotReady"
)

// Reasons of ConfigOK that mean something here, as the API has them.
const (
	agentAllChecksPassed = "AllChecksPassed"
	agentInconclusive    = "Inconclusive"
	agentCrashLooped     = "CrashLooped"
	agentNotReady        = "NotReady"
	agentLostAPI         = "LostAPI"
	agentEvicts          = "WouldEvictPods"
	agentNeedsDrain      = "NeedsDrain"
	agentStale           = "StaleAssignment"
)

// elsewhereDisabled is the Elsewhere of a node that takes no remote configuration.
const remoteConfigDisabled = "Disabled"

// stand derives how each node stands to the target, and counts.
func (d *planner) deriveStates() {
	d.counts.Selected = len(d.nodes)
	for i := range d.nodes {
		n := &d.nodes[i]
		s := d.nodeState(n)
		d.states[i] = s.State
		d.countNode(n, s)
		if s.State == Failed && len(d.failed) < MostFailed {
			d.failed = append(d.failed, i)
		}
	}
	d.counts.Budget = d.p.MaxUnavailable.roundDown(d.counts.Members)
}

// has tells whether a node's spec holds the target, by its payload: the ConfigMap may have been made anew.
func (d *planner) hasTarget(n *Node) bool {
	t := d.p.Target
	return t.Number != 0 && n.Source.Kind == SourceConfigMap && n.Source.Rollout == d.p.Name && n.Source.SHA256 == t.SHA256
}

// ours reports whether a node was given the target since it became the target: a content that was the target before may
// be on nodes already, and how they fare is old news. The number tells it: a content that comes back takes the next one.
func (d *planner) assignedTarget(n *Node) bool {
	return d.hasTarget(n) && n.Source.Revision == d.next.Revision
}

// since is when something began that was seen from then on.
func (d *planner) since(t time.Time) time.Time {
	if t.Before(d.p.Since) {
		return d.p.Since
	}
	return t
}

// wentNotReady is when a node was seen to become NotReady last.
func (d *planner) wentNotReady(n *Node) time.Time {
	if n.WentNotReady.IsZero() {
		return d.p.Since
	}
	return n.WentNotReady
}

// proven tells whether a node runs the target and has passed its trial.
func (d *planner) proven(n *Node) bool {
	return n.Active.SHA256 == d.p.Target.SHA256 && n.LastKnownGood.SHA256 == d.p.Target.SHA256 && !n.InTrial
}

// standing derives a node's state from what is observed of it, and nothing else.
func (d *planner) nodeState(n *Node) NodeState {
	switch {
	case n.Owner != "":
		return NodeState{State: Conflicted, Message: fmt.Sprintf("rollout %s has it", n.Owner)}
	case n.Source.Kind != SourceNone && n.Source.Rollout == "":
		return NodeState{State: Manual, Message: "a person wrote its source; remove spec.configSource of its NodeConfig to hand it over"}
	case n.OtherSource == remoteConfigDisabled:
		return NodeState{State: Skipped, Message: "its agent has opted out of remote configuration"}
	case n.OtherSource != "":
		return NodeState{State: Skipped, Message: fmt.Sprintf("it takes its configuration from a %s of its own", n.OtherSource)}
	case d.hasTarget(n):
		return d.assignedNodeState(n)
	case !n.Ready && d.returning(n):
		return NodeState{State: Skipped, Message: "NotReady; " + waitsForAnswer}
	case !n.Ready:
		return NodeState{State: Skipped, Message: "NotReady before it could be given the revision"}
	case !n.HasConfig:
		return NodeState{State: Stale, Message: "it has no NodeConfig: no agent has created one"}
	case !n.Reported:
		return NodeState{State: Stale, Message: "no agent has ever written to its NodeConfig: is evenkeel-agent installed there?"}
	case d.wasBlocked(n) && d.answerExpected(n):
		return NodeState{Blocked, n.Observation.Reason, n.Observation.Message + "; the assignment is being taken back"}
	case d.returning(n):
		return NodeState{State: Stale, Message: "its agent is silent; " + waitsForAnswer}
	case n.Observed != n.Generation:
		// Just written to, or by an agent that was found silent before.
		answer := d.since(n.Source.AssignedAt).Add(d.p.AgentTimeout)
		if n.Source.Kind != SourceNone && d.p.Now.Before(answer) {
			d.requeueAt(answer)
			return NodeState{State: Pending, Message: "its agent has not answered what it was given before"}
		}
		return NodeState{State: Stale, Message: "its agent does not answer; it is tried again when the agent writes"}
	}
	if d.next.Halt != nil {
		return NodeState{State: Pending, Message: "the revision is stopped"}
	}
	if d.wasBlocked(n) {
		again := d.nextOffer(n)
		d.requeueAt(again)
		return NodeState{Blocked, n.Observation.Reason, fmt.Sprintf("%s; it is offered the revision again in its turn, not before %s", n.Observation.Message, again.UTC().Format(time.RFC3339))}
	}
	return NodeState{State: Pending, Message: "its turn has not come"}
}

// standingOfGiven is standing of a node whose spec holds the target.
func (d *planner) assignedNodeState(n *Node) NodeState {
	now, assigned := d.p.Now, d.since(n.Source.AssignedAt)
	answered, proven := n.Observed == n.Generation, d.proven(n) && n.OK != "False"
	switch {
	case answered && n.OK == "False" && n.Provisional:
		return NodeState{State: Trial, Message: "the node's verdict is provisional: " + n.Error}
	case n.refuses():
		return NodeState{Blocked, n.Reason, n.Error}
	case answered && n.OK == "False":
		return NodeState{Failed, n.Reason, n.Error}
	case d.next.Succeeded && proven:
		return NodeState{State: Updated} // what happens to it later is not the rollout's fault
	case !n.Ready && (!d.assignedTarget(n) || n.Created.After(n.Source.AssignedAt)):
		return NodeState{State: Skipped, Message: "NotReady before it was given the revision, or made anew since"}
	case !n.Ready: // it was Ready when it was given the revision: no other node is
		if end := d.since(n.WentNotReady).Add(d.p.NotReadyGrace); now.Before(end) {
			d.requeueAt(end)
			break
		}
		return NodeState{Failed, FailedNotReady, fmt.Sprintf("the Node has been NotReady since %s, after it was given the revision", d.wentNotReady(n).UTC().Format(time.RFC3339))}
	}
	switch {
	case proven:
		return d.soaking(n)
	case n.stale():
		return NodeState{State: Assigned, Message: "its agent does not take it up, because the controller that assigned it does not lead any more, or the revision was stopped"}
	case !answered:
		end := assigned.Add(d.p.AgentTimeout)
		if n.Ready && !now.Before(end) {
			return NodeState{State: Stale, Message: fmt.Sprintf("its agent has not taken the assignment up within %s", d.p.AgentTimeout)}
		}
		d.requeueAt(end)
		return NodeState{State: Assigned, Message: "its agent has not answered yet"}
	}
	end := assigned.Add(d.p.NodeTimeout + n.TrialLength)
	late := !now.Before(end)
	d.requeueAt(end)
	switch {
	case n.Reason == agentInconclusive || n.Reason == agentLostAPI:
		return NodeState{State: Trial, Message: "the node itself cannot tell: " + n.Error}
	case late:
		return NodeState{Failed, FailedTimeout, fmt.Sprintf("its trial had not ended by %s, %s after it was assigned: %s", end.UTC().Format(time.RFC3339), end.Sub(assigned), n.Error)}
	case n.InTrial:
		return NodeState{State: Trial, Message: "in its trial"}
	}
	return NodeState{State: Trial, Message: "it has answered, and not decided: " + n.Error}
}

// soaking tells a node that has proven the target from one that is to be watched longer. The time counts from when the
// node was first seen to be fine, whatever the node says.
func (d *planner) soaking(n *Node) NodeState {
	switch since := d.healthySince(n); {
	case !n.Ready:
		return NodeState{State: Soaking, Message: "it is NotReady: its soak begins anew when it is Ready"}
	case d.p.Soak == 0, !d.assignedTarget(n) && !d.resultObserved(n):
		return NodeState{State: Updated}
	case !n.healthy():
		return NodeState{State: Soaking, Message: "its ConfigOK is not True: its soak begins anew when it is: " + n.Error}
	default:
		end := since.Add(d.p.Soak)
		if !d.p.Now.Before(end) {
			return NodeState{State: Updated}
		}
		d.requeueAt(end)
		return NodeState{State: Soaking, Message: fmt.Sprintf("fine since %s, of %s", since.UTC().Format(time.RFC3339), d.p.Soak)}
	}
}

// fine reports whether nothing speaks against a node that has proven the target.
func (n *Node) healthy() bool { return n.Ready && n.OK == "True" }

// marked reports whether a node's mark is about the source that it has.
func (d *planner) observationApplies(n *Node) bool {
	m := &n.Observation
	return m.Rollout == d.p.Name && m.Revision == n.Source.Revision && m.Attempt == n.Source.Attempt
}

// watched reports whether a node's mark says how it fared with the source that it has, and not only that it had joined.
func (d *planner) resultObserved(n *Node) bool {
	return d.observationApplies(n) && (!n.Observation.HealthySince.IsZero() || n.Observation.Failed > 0)
}

// fineSince is when a node was first seen to be fine: now, if that was not recorded.
func (d *planner) healthySince(n *Node) time.Time {
	if d.observationApplies(n) && !n.Observation.HealthySince.IsZero() && n.Observation.HealthySince.Before(d.p.Now) {
		return n.Observation.HealthySince
	}
	return d.p.Now
}

// failedIn is the attempt in which a node failed that has failed. What was not recorded as older is new.
func (d *planner) failedIn(n *Node) int64 {
	if d.observationApplies(n) && n.Observation.Failed > 0 {
		return n.Observation.Failed
	}
	if retried := d.next.Revision == d.was.Revision && d.next.Attempt > d.was.Attempt; retried {
		return d.was.Attempt
	}
	return d.next.Attempt
}

// mark records when nodes began to soak, and which had failed before a retry. A later leader then goes on from there.
// Once the revision has succeeded neither matters.
func (d *planner) updateObservations() {
	if d.next.Succeeded || d.next.Revision == 0 {
		return
	}
	for i := range d.nodes {
		n, s := &d.nodes[i], d.states[i]
		if !d.hasTarget(n) || s == Conflicted || s == Manual {
			continue
		}
		want := Observation{Rollout: d.p.Name, Revision: n.Source.Revision, Attempt: n.Source.Attempt, Joined: n.joined()}
		switch {
		case d.returning(n): // from an earlier revision: its place depends on the mark
			continue
		case d.wasBlocked(n) && (s == Blocked || s == Assigned || s == Trial): // how often counts until it has taken it up
			continue
		case s == Failed && n.Source.Attempt < d.next.Attempt && d.failedIn(n) < d.next.Attempt:
			want.Failed = d.failedIn(n)
		case (s == Soaking || s == Updated) && d.p.Soak > 0 && n.healthy() && (d.assignedTarget(n) || d.resultObserved(n)):
			want.HealthySince = d.healthySince(n)
		case d.observationApplies(n) && !want.Joined:
			want = Observation{}
		case d.observationApplies(n):
		case n.Observation.Rollout == d.p.Name && !n.Observation.Blocked.IsZero() && n.Observation.Revision != d.next.Revision: // it refused an earlier revision
			want = Observation{}
		default:
			continue
		}
		if want != n.Observation {
			d.observations = append(d.observations, NewObservation{i, want})
		}
	}
}

// carry records of a node that has the target from before, and is given it again, that it has been fine for as long as
// that is known; for the whole soak if nothing else is.
func (d *planner) carryObservation(i int) {
	n := &d.nodes[i]
	if d.p.Soak == 0 || d.next.Succeeded || d.assignedTarget(n) || !d.proven(n) || !n.healthy() {
		return
	}
	fine := d.p.Now.Add(-d.p.Soak)
	if d.resultObserved(n) {
		fine = d.healthySince(n)
	}
	d.observations = slices.DeleteFunc(d.observations, func(x NewObservation) bool { return x.Node == i })
	if m := (Observation{Rollout: d.p.Name, Revision: d.next.Revision, Attempt: d.next.Attempt, HealthySince: fine}); m != n.Observation {
		d.observations = append(d.observations, NewObservation{i, m})
	}
}

// count counts a node, with what it costs.
func (d *planner) countNode(n *Node, s NodeState) {
	c := &d.counts
	*[...]*int{&c.Pending, &c.Assigned, &c.Trial, &c.Soaking, &c.Updated, &c.Failed, &c.Skipped, &c.Stale, &c.Conflicted, &c.Manual, &c.Blocked}[s.State]++
	if s.State == Conflicted || s.State == Manual || n.OtherSource != "" {
		return
	}
	c.Members++
	dom := d.domain(n)
	dom.members++
	if d.countsUnavailable(n, s.State) {
		c.Unavailable++
		dom.unavailable++
	}
	if d.countsInFlight(n, s.State) {
		dom.inFlight++
	}
	if s.State == Skipped || s.State == Stale {
		d.missing++
	}
	switch {
	case !d.hasTarget(n):
		if d.answerExpected(n) {
			d.freeing++
		}
		if d.rollingBack(n) {
			d.moving++
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

// refuses reports whether a node's guards refuse what it is assigned because of its pods. It takes it up when they change.
func (n *Node) refuses() bool {
	return n.Observed == n.Generation && n.OK == "False" && (n.Reason == agentEvicts || n.Reason == agentNeedsDrain) &&
		n.Source.Kind == SourceConfigMap && n.Active.SHA256 != n.Source.SHA256
}

// wasBlocked reports whether the target was taken back from a node that refused it.
func (d *planner) wasBlocked(n *Node) bool {
	m := &n.Observation
	return m.Rollout == d.p.Name && m.Revision == d.next.Revision && !m.Blocked.IsZero()
}

// notAnswered is why a node that cannot be seen to do anything holds a place.
const waitsForAnswer = "it holds its place in the budget until its agent answers that the assignment was taken back"

// returning reports whether an agent may not know yet that a revision was taken back which its node refused: it may take it
// up until then, or have done so, whatever is seen of the node. What is written later is another matter, and so is a machine
// that was made anew.
func (d *planner) returning(n *Node) bool {
	m := &n.Observation
	return m.Rollout == d.p.Name && !m.Blocked.IsZero() && n.Observed != n.Generation && !n.Created.After(m.Blocked) &&
		(n.Source.Kind == SourceNone || !n.Source.AssignedAt.After(m.Blocked))
}

// freed reports whether a node that is returning is expected to answer soon, and to free its place by that.
func (d *planner) answerExpected(n *Node) bool {
	end := d.since(n.Observation.Blocked).Add(d.p.AgentTimeout)
	if !d.returning(n) || !d.p.Now.Before(end) {
		return false
	}
	d.requeueAt(end)
	return true
}

// Between two offers of the target to a node that refused it. It doubles from the one to the other.
const (
	shortestOffer = time.Minute
	longestOffer  = 10 * time.Minute
)

// offer is when a node that refused the target may be offered it again. Nothing tells the controller that its pods have
// changed, so it is asked again, ever more rarely. A retry asks at once.
func (d *planner) nextOffer(n *Node) time.Time {
	if n.Observation.Attempt < d.next.Attempt {
		return d.next.AttemptTime
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

// costs tells whether a node is one of those that maxUnavailable limits: in flight, soaking, failed, or gone NotReady
// since it was assigned.
func (d *planner) countsUnavailable(n *Node, s State) bool {
	switch {
	case s == Failed, d.returning(n):
		return true
	case s == Updated:
		return !n.Ready
	case s == Skipped:
		return d.assignedTarget(n) && !n.Created.After(n.Source.AssignedAt) // it was Ready when that was decided
	}
	return d.countsInFlight(n, s)
}

// flies tells whether a node is in flight or soaking, be it for the target or for another revision of the rollout.
func (d *planner) countsInFlight(n *Node, s State) bool {
	if d.returning(n) {
		return true
	}
	switch s {
	case Assigned, Trial, Soaking:
		return true
	case Pending, Blocked: // what it refuses it may take up yet
		return n.Source.Rollout == d.p.Name && (n.inFlight() || n.refuses())
	case Stale:
		return d.hasTarget(n) // until it is taken back
	}
	return false
}

// counted tells whether a failed node counts towards the stop. What failed before the newest attempt does not, nor what
// had the content before it became the target, nor anything once the revision has succeeded: a node that fails then is
// one node, and spends the budget of those to come.
func (d *planner) counted(n *Node) bool {
	return !d.next.Succeeded && d.assignedTarget(n) && (n.Source.Attempt >= d.next.Attempt || d.failedIn(n) >= d.next.Attempt)
}

// mostGoingBack is how much of a node's own trial its place among those that go back lasts, at most: a node that claims a
// long trial must not hold the others up.
const maxRollbackTrial = time.Hour

// goesBack tells whether a healthy node is on its way back after the stop. A silent agent does not hold the others up.
func (d *planner) rollingBack(n *Node) bool {
	h := d.next.Halt
	if h == nil || !h.Rollback || !n.Ready || n.Source.Rollout != d.p.Name || !n.inFlight() || n.Source.AssignedAt.Before(h.Time.Truncate(time.Second)) {
		return false
	}
	most := d.p.NodeTimeout + min(n.TrialLength, maxRollbackTrial)
	if n.Observed != n.Generation {
		most = d.p.AgentTimeout
	}
	end := d.since(n.Source.AssignedAt).Add(most)
	d.requeueAt(end)
	return d.p.Now.Before(end)
}
