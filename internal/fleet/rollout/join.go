package rollout

import (
	"fmt"
	"strings"
	"time"
)

// What a node says about its workload pods is believed for a short time after its Node was created: its agent does not
// write its status for a change of that number alone. So many of those that had none are served in one decision, at most:
// what they do may be a reason to stop.
const (
	idleAge      = 10 * time.Minute
	maxIdleJoins = 100
)

// idle reports whether a node has no workload pods, as far as that can be known.
func (d *planner) idle(n *Node) bool { return n.Idle && d.p.Now.Before(n.Created.Add(idleAge)) }

// join serves nodes that came after the rollout did and have nothing yet. They do not wait for their turn, but there are
// not more of them in flight than maxJoining, and none is served when too many have failed. A node without workload pods
// has nothing to lose: it does not wait for the others, unless there is a reason to doubt the revision.
func (d *planner) join() {
	if d.p.Frozen || d.next.Revision == 0 {
		return
	}
	to := d.lastGood()
	if d.p.NewNodesTarget && !d.stopped() || d.next.Succeeded && d.next.Halt == nil {
		to = d.p.Target
	}
	if to.Number == 0 || to.Gone {
		return
	}
	flying, doubt := d.joiners(to)
	most := d.p.MaxUnavailable
	if d.p.MaxJoining != nil {
		most = *d.p.MaxJoining
	}
	budget, waiting, exempt := most.roundDown(d.counts.Members), 0, 0
	d.newcomers = map[int]bool{}
	for i := range d.nodes {
		n := &d.nodes[i]
		if d.states[i] != Pending || n.Observed != n.Generation || n.Source.Kind != SourceNone || !n.Created.After(d.p.Created) {
			continue
		}
		free := !doubt && d.idle(n)
		if free && exempt == maxIdleJoins && !d.joiningStopped {
			d.newcomers[i] = to.Number == d.next.Revision
			d.requeueAt(d.p.Now.Add(time.Millisecond))
			continue
		}
		if d.joiningStopped || !free && flying >= budget {
			waiting++
			d.newcomers[i] = to.Number == d.next.Revision
			continue
		}
		if free {
			exempt++
		} else {
			flying++
		}
		d.assignRevision(i, Join, to)
		m := d.moves[len(d.moves)-1].Source
		d.observations = append(d.observations, NewObservation{i, Observation{Rollout: m.Rollout, Revision: m.Revision, Attempt: m.Attempt, Joined: true}})
		d.countMove(n, 1) // no other budget holds it up, but it holds others up
		if to.Number == d.next.Revision {
			d.assigned++
		}
	}
	if waiting > 0 && !d.joiningStopped {
		d.joiningMessage = fmt.Sprintf("%s to join: maxJoining is spent: %d of %d", plural(waiting, "node"), flying, budget)
	} else if waiting > 0 {
		d.joiningMessage += fmt.Sprintf("; %s to join", plural(waiting, "node"))
	}
}

// joined reports whether a node has its source because it had joined.
func (n *Node) joined() bool {
	m := &n.Observation
	return m.Joined && m.Rollout == n.Source.Rollout && m.Revision == n.Source.Revision && m.Attempt == n.Source.Attempt
}

// joiners counts the nodes in flight that were given a revision because they had joined, and have workload pods. It finds
// out whether so many of those that were given it since the revision is the target, or was tried again, have failed that
// joining is stopped. There is doubt about the revision while one of them has failed, whenever that was, or a node that
// was given it after a retry has not proven it: then those without workload pods count like the others.
func (d *planner) joiners(to Revision) (flying int, doubt bool) {
	const most = 3
	failed, idle := 0, 0
	var names []string
	for i := range d.nodes {
		n := &d.nodes[i]
		if n.Owner != "" || n.OtherSource != "" || n.Source.Rollout != d.p.Name || n.Source.Kind != SourceConfigMap {
			continue
		}
		same := n.Source.SHA256 == to.SHA256
		doubt = doubt || same && n.Source.Attempt > 1 && n.LastKnownGood.SHA256 != to.SHA256 && !n.Created.After(n.Source.AssignedAt)
		if !n.joined() {
			continue
		}
		reason := d.joinFailed(n)
		doubt = doubt || same && reason != ""
		switch {
		case reason == "" && !d.joinInProgress(n):
		case reason == "" && d.idle(n):
			idle++
		case reason == "":
			flying++
		case same && !n.Source.AssignedAt.Before(d.next.AttemptTime.Truncate(time.Second)):
			if failed++; failed <= most {
				names = append(names, n.Name+" "+reason)
			}
		}
	}
	if doubt {
		flying += idle
	}
	if failed < d.limit() {
		return flying, doubt
	}
	if failed > most {
		names = append(names, "...")
	}
	d.joiningStopped = true
	d.joiningMessage = fmt.Sprintf("joining is stopped: revision %d failed on %s that joined (limit %d): %s; mend or remove them, or let others join: kubectl evenkeel rollout retry %s",
		to.Number, plural(failed, "node"), d.limit(), strings.Join(names, ", "), d.p.Name)
	return flying, doubt
}

// joinFailed returns in one word how the revision failed on a node that had joined; empty if it did not. What comes after
// its trial is not the revision's fault.
func (d *planner) joinFailed(n *Node) string {
	given := d.since(n.Source.AssignedAt)
	answered := n.Observed == n.Generation
	switch {
	case n.LastKnownGood.SHA256 == n.Source.SHA256, n.refuses(), n.Created.After(n.Source.AssignedAt):
		return ""
	case answered && n.OK == "False" && !n.Provisional:
		return n.Reason
	case !n.Ready:
		end := d.since(n.WentNotReady).Add(d.p.NotReadyGrace)
		d.requeueAt(end)
		if !d.p.Now.Before(end) {
			return FailedNotReady
		}
	case answered && n.Reason != agentInconclusive && n.Reason != agentLostAPI:
		end := given.Add(d.p.NodeTimeout + n.TrialLength)
		d.requeueAt(end)
		if !d.p.Now.Before(end) {
			return FailedTimeout
		}
	}
	return ""
}

// joins reports whether a node that had joined, and has not failed, is in flight.
func (d *planner) joinInProgress(n *Node) bool {
	if n.LastKnownGood.SHA256 == n.Source.SHA256 || n.refuses() || n.Created.After(n.Source.AssignedAt) {
		return false
	}
	if n.Observed == n.Generation {
		return true
	}
	end := d.since(n.Source.AssignedAt).Add(d.p.AgentTimeout)
	d.requeueAt(end)
	return d.p.Now.Before(end)
}
