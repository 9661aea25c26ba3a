package rollout

import (
	"fmt"
	"time"
)

// Reasons of a failure that are not the node's own.
const (
	FailedTimeout  = "Timeout"
	FailedNotReady = "NodeNotReady"
)

// Reasons of ConfigOK that mean something here.
const (
	agentInconclusive = "Inconclusive"
	agentNotReady     = "NotReady"
	agentLostAPI      = "LostAPI"
)

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

// ours tells whether a node was given the target since it is that: a content that has been the target before may be on
// nodes already, and how they fare is old news.
func (d *planner) ours(n *Node) bool {
	return d.has(n) && !n.Source.AssignedAt.Before(d.next.Started.Truncate(time.Second))
}

// since is when something began that was seen from then on.
func (d *planner) since(t time.Time) time.Time {
	if t.Before(d.p.Since) {
		return d.p.Since
	}
	return t
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
	case n.Elsewhere == "Disabled":
		return Standing{State: Skipped, Why: "its agent has opted out of remote configuration"}
	case n.Elsewhere != "":
		return Standing{State: Skipped, Why: fmt.Sprintf("it takes its configuration from a %s of its own", n.Elsewhere)}
	case d.has(n):
		return d.standingOfGiven(n)
	case !n.Ready:
		return Standing{State: Skipped, Why: "NotReady before it could be given the revision"}
	case !n.HasConfig:
		return Standing{State: Stale, Why: "it has no NodeConfig: no agent has created one"}
	case !n.Reported:
		return Standing{State: Stale, Why: "no agent has ever written to its NodeConfig: is evenkeel-agent installed there?"}
	case n.Observed != n.Generation:
		// Just written to, or by an agent that was found silent before.
		answer := d.since(n.Source.AssignedAt).Add(d.p.AgentTimeout)
		if n.Source.Kind != SourceNone && d.p.Now.Before(answer) {
			d.at(answer)
			return Standing{State: Pending, Why: "its agent has not answered what it was given before"}
		}
		return Standing{State: Stale, Why: "its agent does not answer; it is tried again when the agent writes"}
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
	case answered && n.OK == "False":
		return Standing{Failed, n.Reason, n.Error, n.OKChanged}
	case d.next.Succeeded && proven:
		return Standing{State: Updated} // what happens to it later is not the rollout's fault
	case !n.Ready && (!d.ours(n) || n.ReadyChanged.Before(n.Source.AssignedAt) || n.Created.After(n.Source.AssignedAt)):
		return Standing{State: Skipped, Why: "NotReady before it was given the revision, or made anew since"}
	case !n.Ready:
		if end := d.since(n.ReadyChanged).Add(d.p.NotReadyGrace); now.Before(end) {
			d.at(end)
			break
		}
		return Standing{Failed, FailedNotReady, fmt.Sprintf("the Node has been NotReady since %s, after it was given the revision", n.ReadyChanged.UTC().Format(time.RFC3339)), n.ReadyChanged}
	}
	switch {
	case proven:
		return d.soaking(n)
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
		return Standing{Failed, FailedTimeout, fmt.Sprintf("its trial had not ended by %s, %s after it was assigned: %s", end.UTC().Format(time.RFC3339), end.Sub(assigned), n.Error), end}
	case n.InTrial:
		return Standing{State: Trial, Why: "in its trial"}
	}
	return Standing{State: Trial, Why: "it has answered, and not decided: " + n.Error}
}

// soaking tells a node that has proven the target from one that is to be watched longer.
func (d *planner) soaking(n *Node) Standing {
	since := n.Promoted
	for _, t := range []time.Time{n.ReadyChanged, n.OKChanged} {
		if t.After(since) {
			since = t
		}
	}
	end := since.Add(d.p.Soak)
	if n.Ready && !d.p.Now.Before(end) {
		return Standing{State: Updated}
	}
	d.at(end)
	return Standing{State: Soaking, Why: fmt.Sprintf("fine since %s, of %s", since.UTC().Format(time.RFC3339), d.p.Soak)}
}

// count counts a node, with what it costs.
func (d *planner) count(n *Node, s Standing) {
	c := &d.counts
	*[...]*int{&c.Pending, &c.Assigned, &c.Trial, &c.Soaking, &c.Updated, &c.Failed, &c.Skipped, &c.Stale, &c.Conflicted, &c.Manual}[s.State]++
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
		if d.goesBack(n) {
			d.moving++
		}
		return
	case s.State == Skipped:
		return
	}
	d.given++
	if s.State == Failed && d.counted(n, s) {
		d.failures++
	}
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
	case s == Failed:
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
	switch s {
	case Assigned, Trial, Soaking:
		return true
	case Pending:
		return n.Source.Rollout == d.p.Name && n.inFlight()
	case Stale:
		return d.has(n) // until it is taken back
	}
	return false
}

// counted tells whether a failed node counts towards the stop. What failed before the newest attempt does not, nor what
// had the content before it became the target, nor anything once the revision has succeeded: a node that fails then is
// one node, and spends the budget of those to come.
func (d *planner) counted(n *Node, s Standing) bool {
	return !d.next.Succeeded && d.ours(n) && (n.Source.Attempt >= d.next.Attempt || s.Since.After(d.next.Tried))
}

// goesBack tells whether a healthy node is on its way back after the stop. A silent agent does not hold the others up.
func (d *planner) goesBack(n *Node) bool {
	h := d.next.Halt
	if h == nil || !h.Rollback || !n.Ready || n.Source.Rollout != d.p.Name || !n.inFlight() || n.Source.AssignedAt.Before(h.Time.Truncate(time.Second)) {
		return false
	}
	most := d.p.NodeTimeout + n.TrialLength
	if n.Observed != n.Generation {
		most = d.p.AgentTimeout
	}
	end := d.since(n.Source.AssignedAt).Add(most)
	d.at(end)
	return d.p.Now.Before(end)
}
