package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// judge stops a revision that a person aborts, or that failed on too many nodes.
func (d *planner) checkStop() {
	if d.next.Revision == 0 {
		return
	}
	h := d.next.Halt
	if a := d.p.Abort; a.Revision == d.next.Revision {
		switch {
		case h == nil:
			d.halt(HaltAborted, "stopped by a person", a.Rollback)
		case a.Rollback && !h.Rollback:
			stop := *h
			stop.Rollback, stop.Time = true, d.p.Now
			d.next.Halt = &stop
			d.event(true, "RolloutRollback", "revision %d goes back, as a person asks", stop.Revision)
		}
		return
	}
	limit := d.limit()
	switch again := d.failedAgain(); {
	case h != nil:
		return
	case again != "":
		d.halt(HaltTooManyFailures, fmt.Sprintf("it failed again on %s", again), d.p.RollbackOnFailure)
		return
	case d.failures < limit:
		return
	}
	excused, where := d.outageFailures()
	if d.failures-excused < limit {
		d.halt(HaltInconclusive, fmt.Sprintf("%s went NotReady, but so did nodes without the revision in %s: something else is wrong there", plural(excused, "node"), where), false)
		return
	}
	d.halt(HaltTooManyFailures, fmt.Sprintf("it failed on %s, and %d stop it: %s", plural(d.failures, "node"), limit, d.examples(true)), d.p.RollbackOnFailure)
}

// again returns the name of a node that a retry names and on which the target has failed again, empty if there is none.
func (d *planner) failedAgain() string {
	for i, s := range d.states {
		if n := &d.nodes[i]; s == Failed && d.namedByRetry(n) && n.Source.Attempt == d.next.Attempt && d.counted(n) {
			return n.Name
		}
	}
	return ""
}

// limit is how many failures stop a revision.
func (d *planner) limit() int { return max(1, d.p.MaxFailures.roundUp(d.counts.Members)) }

func (d *planner) halt(reason, message string, rollback bool) {
	d.next.Halt = &Halt{Revision: d.next.Revision, Attempt: d.next.Attempt, Reason: reason, Message: message, Time: d.p.Now, Rollback: rollback}
	d.event(true, "RolloutHalted", "revision %d is stopped (%s): %s", d.next.Revision, reason, message)
}

// examples names a few failed nodes: of all, or of those that count towards the stop.
func (d *planner) examples(counted bool) string {
	const most = 3
	var out []string
	for i, s := range d.states {
		if s != Failed {
			continue
		}
		standing := d.nodeState(&d.nodes[i])
		if counted && !d.counted(&d.nodes[i]) {
			continue
		}
		if len(out) == most {
			out = append(out, "...")
			break
		}
		out = append(out, d.nodes[i].Name+" "+standing.Reason)
	}
	return strings.Join(out, ", ")
}

// outageWindow is how far apart nodes may go NotReady for the same cause.
const outageWindow = 5 * time.Minute

// outage is what one domain tells about whether the revision is to blame.
type outage struct {
	assigned, untouched, alsoNotReady int
	failed                            []time.Time // when those that failed were seen to go NotReady, sorted
}

// near reports whether a failed node went NotReady at about that time.
func (o *outage) near(t time.Time) bool {
	i, _ := slices.BinarySearchFunc(o.failed, t.Add(-outageWindow), time.Time.Compare)
	return i < len(o.failed) && !o.failed[i].After(t.Add(outageWindow))
}

// excused counts failed nodes for which the revision is not to blame, and names their domains: they went NotReady, and
// nodes of their domain that do not have the revision did so at that time, at half the rate at least. What was NotReady
// already when the fleet was first seen is taken to have become so then.
func (d *planner) outageFailures() (n int, where string) {
	all := map[string]*outage{}
	for i := range d.nodes {
		node := &d.nodes[i]
		if !d.notReadyFailure(node, d.states[i]) {
			continue
		}
		o := all[node.Domain]
		if o == nil {
			o = &outage{}
			all[node.Domain] = o
		}
		o.failed = append(o.failed, d.wentNotReady(node))
	}
	if len(all) == 0 {
		return 0, ""
	}
	for _, o := range all {
		slices.SortFunc(o.failed, time.Time.Compare)
	}
	for i := range d.nodes {
		node, o := &d.nodes[i], all[d.nodes[i].Domain]
		switch {
		case o == nil:
		case d.hasTarget(node):
			o.assigned++
		default:
			o.untouched++
			if !node.Ready && o.near(d.wentNotReady(node)) {
				o.alsoNotReady++
			}
		}
	}
	for name, o := range all {
		if failed := len(o.failed); o.alsoNotReady > 0 && 2*o.alsoNotReady*o.assigned >= failed*o.untouched {
			n += failed
			if name = domainName(name); where == "" || name < where {
				where = name
			}
		}
	}
	return n, where
}

// notReadyFailure tells whether a node failed by being NotReady, which an outage does as well.
func (d *planner) notReadyFailure(n *Node, s State) bool {
	if s != Failed {
		return false
	}
	standing := d.nodeState(n)
	return d.counted(n) && (standing.Reason == FailedNotReady || standing.Reason == agentNotReady)
}

func domainName(value string) string {
	if value == "" {
		return "the same place"
	}
	return value
}
