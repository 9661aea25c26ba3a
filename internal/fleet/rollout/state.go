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
	agentFine         = "AllChecksPassed"
	agentInconclusive = "Inconclusive"
	agentCrashLooped  = "CrashLooped"
	agentNotReady     = "NotReady"
	agentLostAPI      = "LostAPI"
	agentEvicts       = "WouldEvictPods"
	agentNeedsDrain   = "NeedsDrain"
	agentStale        = "StaleAssignment"
)

// elsewhereDisabled is the Elsewhere of a node that takes no remote configuration.
const elsewhereDisabled = "Disabled"

// stand derives how each node stands to the target, and counts.
func (d *planner) stand() {
	d.counts.Selected = len(d.nodes)
	for i := range d.nodes {
		n := &d.nodes[i]
		s := d.standing(n)
		d.states[i] = s.State
		d.count(n, s)
		if s.State == Failed && len(d.failed) < MostFailed {
			d.failed = append(d.failed, i)
		}
	}
	d.counts.Budget = d.p.MaxUnavailable.down(d.counts.Members)
}

// has tells whether a node's spec holds the target, by its payload: the ConfigMap may have been made anew.
func (d *planner) has(n *Node) bool {
	t := d.p.Target
	return t.Number != 0 && n.Source.Kind == SourceConfigMap && n.Source.Rollout == d.p.Name && n.Source.SHA256 == t.SHA256
}

// ours reports whether a node was given the target since it became the target: a content that was the target before may
// be on nodes already, and how they fare is old news. The number tells it: a content that comes back takes the next one.
func (d *planner) ours(n *Node) bool {
	return d.has(n) && n.Source.Revision == d.next.Revision
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
func (d *planner) standing(n *Node) Standing {
	switch {
	case n.Owner != "":
		return Standing{State: Conflicted, Why: fmt.Sprintf("rollout %s has it", n.Owner)}
	case n.Source.Kind != SourceNone && n.Source.Rollout == "":
		return Standing{State: Manual, Why: "a person wrote its source; remove spec.configSource of its NodeConfig to hand it over"}
	case n.Elsewhere == elsewhereDisabled:
		return Standing{State: Skipped, Why: "its agent has opted out of remote configuration"}
	case n.Elsewhere != "":
		return Standing{State: Skipped, Why: fmt.Sprintf("it takes its configuration from a %s of its own", n.Elsewhere)}
	case d.has(n):
		return d.standingOfGiven(n)
	case !n.Ready && d.returning(n):
		return Standing{State: Skipped, Why: "NotReady; " + notAnswered}
	case !n.Ready:
		return Standing{State: Skipped, Why: "NotReady before it could be given the revision"}
	case !n.HasConfig:
		return Standing{State: Stale, Why: "it has no NodeConfig: no agent has created one"}
	case !n.Reported:
		return Standing{State: Stale, Why: "no agent has ever written to its NodeConfig: is evenkeel-agent installed there?"}
	case d.wasBlocked(n) && d.freed(n):
		return Standing{Blocked, n.Mark.Reason, n.Mark.Why + "; the assignment is being taken back"}
	case d.returning(n):
		return Standing{State: Stale, Why: "its agent is silent; " + notAnswered}
	case n.Observed != n.Generation:
		// Just written to, or by an agent that was found silent before.
		answer := d.since(n.Source.AssignedAt).Add(d.p.AgentTimeout)
		if n.Source.Kind != SourceNone && d.p.Now.Before(answer) {
			d.at(answer)
			return Standing{State: Pending, Why: "its agent has not answered what it was given before"}
		}
		return Standing{State: Stale, Why: "its agent does not answer; it is tried again when the agent writes"}
	}
	if d.next.Halt != nil {
		return Standing{State: Pending, Why: "the revision is stopped"}
	}
	if d.wasBlocked(n) {
		again := d.offer(n)
		d.at(again)
		return Standing{Blocked, n.Mark.Reason, fmt.Sprintf("%s; it is offered the revision again in its turn, not before %s", n.Mark.Why, again.UTC().Format(time.RFC3339))}
	}
	return Standing{State: Pending, Why: "its turn has not come"}
}

// standingOfGiven is standing of a node whose spec holds the target.
func (d *planner) standingOfGiven(n *Node) Standing {
	now, assigned := d.p.Now, d.since(n.Source.AssignedAt)
	answered, proven := n.Observed == n.Generation, d.proven(n) && n.OK != "False"
	switch {
	case answered && n.OK == "False" && n.Provisional:
		return Standing{State: Trial, Why: "the node's verdict is provisional: " + n.Error}
	case n.refuses():
		return Standing{Blocked, n.Reason, n.Error}
	case answered && n.OK == "False":
		return Standing{Failed, n.Reason, n.Error}
	case d.next.Succeeded && proven:
		return Standing{State: Updated} // what happens to it later is not the rollout's fault
	case !n.Ready && (!d.ours(n) || n.Created.After(n.Source.AssignedAt)):
		return Standing{State: Skipped, Why: "NotReady before it was given the revision, or made anew since"}
	case !n.Ready: // it was Ready when it was given the revision: no other node is
		if end := d.since(n.WentNotReady).Add(d.p.NotReadyGrace); now.Before(end) {
			d.at(end)
			break
		}
		return Standing{Failed, FailedNotReady, fmt.Sprintf("the Node has been NotReady since %s, after it was given the revision", d.wentNotReady(n).UTC().Format(time.RFC3339))}
	}
	switch {
	case proven:
		return d.soaking(n)
	case n.stale():
		return Standing{State: Assigned, Why: "its agent does not take it up, because the controller that assigned it does not lead any more, or the revision was stopped"}
	case !answered:
		end := assigned.Add(d.p.AgentTimeout)
		if n.Ready && !now.Before(end) {
			return Standing{State: Stale, Why: fmt.Sprintf("its agent has not taken the assignment up within %s", d.p.AgentTimeout)}
		}
		d.at(end)
		return Standing{State: Assigned, Why: "its agent has not answered yet"}
	}
	end := assigned.Add(d.p.NodeTimeout + n.TrialLength)
	late := !now.Before(end)
	d.at(end)
	switch {
	case n.Reason == agentInconclusive || n.Reason == agentLostAPI:
		return Standing{State: Trial, Why: "the node itself cannot tell: " + n.Error}
	case late:
		return Standing{Failed, FailedTimeout, fmt.Sprintf("its trial had not ended by %s, %s after it was assigned: %s", end.UTC().Format(time.RFC3339), end.Sub(assigned), n.Error)}
	case n.InTrial:
		return Standing{State: Trial, Why: "in its trial"}
	}
	return Standing{State: Trial, Why: "it has answered, and not decided: " + n.Error}
}

// soaking tells a node that has proven the target from one that is to be watched longer. The time counts from when the
// node was first seen to be fine, whatever the node says.
func (d *planner) soaking(n *Node) Standing {
	switch since := d.fineSince(n); {
	case !n.Ready:
		return Standing{State: Soaking, Why: "it is NotReady: its soak begins anew when it is Ready"}
	case d.p.Soak == 0, !d.ours(n) && !d.watched(n):
		return Standing{State: Updated}
	case !n.fine():
		return Standing{State: Soaking, Why: "its ConfigOK is not True: its soak begins anew when it is: " + n.Error}
	default:
		end := since.Add(d.p.Soak)
		if !d.p.Now.Before(end) {
			return Standing{State: Updated}
		}
		d.at(end)
		return Standing{State: Soaking, Why: fmt.Sprintf("fine since %s, of %s", since.UTC().Format(time.RFC3339), d.p.Soak)}
	}
}

// fine reports whether nothing speaks against a node that has proven the target.
func (n *Node) fine() bool { return n.Ready && n.OK == "True" }

// marked reports whether a node's mark is about the source that it has.
func (d *planner) marked(n *Node) bool {
	m := &n.Mark
	return m.Rollout == d.p.Name && m.Revision == n.Source.Revision && m.Attempt == n.Source.Attempt
}

// watched reports whether a node's mark says how it fared with the source that it has, and not only that it had joined.
func (d *planner) watched(n *Node) bool {
	return d.marked(n) && (!n.Mark.Fine.IsZero() || n.Mark.Failed > 0)
}

// fineSince is when a node was first seen to be fine: now, if that was not recorded.
func (d *planner) fineSince(n *Node) time.Time {
	if d.marked(n) && !n.Mark.Fine.IsZero() && n.Mark.Fine.Before(d.p.Now) {
		return n.Mark.Fine
	}
	return d.p.Now
}

// failedIn is the attempt in which a node failed that has failed. What was not recorded as older is new.
func (d *planner) failedIn(n *Node) int64 {
	if d.marked(n) && n.Mark.Failed > 0 {
		return n.Mark.Failed
	}
	if retried := d.next.Revision == d.was.Revision && d.next.Attempt > d.was.Attempt; retried {
		return d.was.Attempt
	}
	return d.next.Attempt
}

// mark records when nodes began to soak, and which had failed before a retry. A later leader then goes on from there.
// Once the revision has succeeded neither matters.
func (d *planner) mark() {
	if d.next.Succeeded || d.next.Revision == 0 {
		return
	}
	for i := range d.nodes {
		n, s := &d.nodes[i], d.states[i]
		if !d.has(n) || s == Conflicted || s == Manual {
			continue
		}
		want := Mark{Rollout: d.p.Name, Revision: n.Source.Revision, Attempt: n.Source.Attempt, Joined: n.joined()}
		switch {
		case d.returning(n): // from an earlier revision: its place depends on the mark
			continue
		case d.wasBlocked(n) && (s == Blocked || s == Assigned || s == Trial): // how often counts until it has taken it up
			continue
		case s == Failed && n.Source.Attempt < d.next.Attempt && d.failedIn(n) < d.next.Attempt:
			want.Failed = d.failedIn(n)
		case (s == Soaking || s == Updated) && d.p.Soak > 0 && n.fine() && (d.ours(n) || d.watched(n)):
			want.Fine = d.fineSince(n)
		case d.marked(n) && !want.Joined:
			want = Mark{}
		case d.marked(n):
		case n.Mark.Rollout == d.p.Name && !n.Mark.Blocked.IsZero() && n.Mark.Revision != d.next.Revision: // it refused an earlier revision
			want = Mark{}
		default:
			continue
		}
		if want != n.Mark {
			d.marks = append(d.marks, NewMark{i, want})
		}
	}
}

// carry records of a node that has the target from before, and is given it again, that it has been fine for as long as
// that is known; for the whole soak if nothing else is.
func (d *planner) carry(i int) {
	n := &d.nodes[i]
	if d.p.Soak == 0 || d.next.Succeeded || d.ours(n) || !d.proven(n) || !n.fine() {
		return
	}
	fine := d.p.Now.Add(-d.p.Soak)
	if d.watched(n) {
		fine = d.fineSince(n)
	}
	d.marks = slices.DeleteFunc(d.marks, func(x NewMark) bool { return x.Node == i })
	if m := (Mark{Rollout: d.p.Name, Revision: d.next.Revision, Attempt: d.next.Attempt, Fine: fine}); m != n.Mark {
		d.marks = append(d.marks, NewMark{i, m})
	}
}

// count counts a node, with what it costs.
func (d *planner) count(n *Node, s Standing) {
	c := &d.counts
	*[...]*int{&c.Pending, &c.Assigned, &c.Trial, &c.Soaking, &c.Updated, &c.Failed, &c.Skipped, &c.Stale, &c.Conflicted, &c.Manual, &c.Blocked}[s.State]++
	if s.State == Conflicted || s.State == Manual || n.Elsewhere != "" {
		return
	}
	c.Members++
	dom := d.domain(n)
	dom.members++
	if d.costs(n, s.State) {
		c.Unavailable++
		dom.unavailable++
	}
	if d.flies(n, s.State) {
		dom.inFlight++
	}
	if s.State == Skipped || s.State == Stale {
		d.missing++
	}
	switch {
	case !d.has(n):
		if d.freed(n) {
			d.freeing++
		}
		if d.goesBack(n) {
			d.moving++
		}
		return
	case s.State == Skipped:
		return
	}
	d.given++
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
	m := &n.Mark
	return m.Rollout == d.p.Name && m.Revision == d.next.Revision && !m.Blocked.IsZero()
}

// notAnswered is why a node that cannot be seen to do anything holds a place.
const notAnswered = "it holds its place in the budget until its agent answers that the assignment was taken back"

// returning reports whether an agent may not know yet that a revision was taken back which its node refused: it may take it
// up until then, or have done so, whatever is seen of the node. What is written later is another matter, and so is a machine
// that was made anew.
func (d *planner) returning(n *Node) bool {
	m := &n.Mark
	return m.Rollout == d.p.Name && !m.Blocked.IsZero() && n.Observed != n.Generation && !n.Created.After(m.Blocked) &&
		(n.Source.Kind == SourceNone || !n.Source.AssignedAt.After(m.Blocked))
}

// freed reports whether a node that is returning is expected to answer soon, and to free its place by that.
func (d *planner) freed(n *Node) bool {
	end := d.since(n.Mark.Blocked).Add(d.p.AgentTimeout)
	if !d.returning(n) || !d.p.Now.Before(end) {
		return false
	}
	d.at(end)
	return true
}

// Between two offers of the target to a node that refused it. It doubles from the one to the other.
const (
	shortestOffer = time.Minute
	longestOffer  = 10 * time.Minute
)

// offer is when a node that refused the target may be offered it again. Nothing tells the controller that its pods have
// changed, so it is asked again, ever more rarely. A retry asks at once.
func (d *planner) offer(n *Node) time.Time {
	if n.Mark.Attempt < d.next.Attempt {
		return d.next.Tried
	}
	return n.Mark.Blocked.Add(min(longestOffer, shortestOffer<<min(max(n.Mark.Offers-1, 0), 10)))
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
func (d *planner) costs(n *Node, s State) bool {
	switch {
	case s == Failed, d.returning(n):
		return true
	case s == Updated:
		return !n.Ready
	case s == Skipped:
		return d.ours(n) && !n.Created.After(n.Source.AssignedAt) // it was Ready when that was decided
	}
	return d.flies(n, s)
}

// flies tells whether a node is in flight or soaking, be it for the target or for another revision of the rollout.
func (d *planner) flies(n *Node, s State) bool {
	if d.returning(n) {
		return true
	}
	switch s {
	case Assigned, Trial, Soaking:
		return true
	case Pending, Blocked: // what it refuses it may take up yet
		return n.Source.Rollout == d.p.Name && (n.inFlight() || n.refuses())
	case Stale:
		return d.has(n) // until it is taken back
	}
	return false
}

// counted tells whether a failed node counts towards the stop. What failed before the newest attempt does not, nor what
// had the content before it became the target, nor anything once the revision has succeeded: a node that fails then is
// one node, and spends the budget of those to come.
func (d *planner) counted(n *Node) bool {
	return !d.next.Succeeded && d.ours(n) && (n.Source.Attempt >= d.next.Attempt || d.failedIn(n) >= d.next.Attempt)
}

// mostGoingBack is how much of a node's own trial its place among those that go back lasts, at most: a node that claims a
// long trial must not hold the others up.
const mostGoingBack = time.Hour

// goesBack tells whether a healthy node is on its way back after the stop. A silent agent does not hold the others up.
func (d *planner) goesBack(n *Node) bool {
	h := d.next.Halt
	if h == nil || !h.Rollback || !n.Ready || n.Source.Rollout != d.p.Name || !n.inFlight() || n.Source.AssignedAt.Before(h.Time.Truncate(time.Second)) {
		return false
	}
	most := d.p.NodeTimeout + min(n.TrialLength, mostGoingBack)
	if n.Observed != n.Generation {
		most = d.p.AgentTimeout
	}
	end := d.since(n.Source.AssignedAt).Add(most)
	d.at(end)
	return d.p.Now.Before(end)
}
