package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// checkStop stops a revision that a person aborted, or that failed on too many nodes.
func (d *planner) checkStop() {
	if d.next.Revision == 0 {
		return
	}
	h := d.next.Halt
	if a := d.p.Abort; a.Revision == d.next.Revision {
		switch {
		case h == nil:
			d.halt(HaltAborted, "stopped by a person"+because(a.Reason), a.Rollback)
		case a.Rollback && !h.Rollback:
			stop := *h
			stop.Rollback, stop.Time = true, d.p.Now
			d.next.Halt = &stop
			d.event(true, "RolloutRollback", "revision %d is rolled back as requested", stop.Revision)
		}
		return
	}
	limit := d.limit()
	switch again := d.failedAgain(); {
	case h != nil:
		return
	case again != "":
		d.halt(HaltTooManyFailures, "it failed again on "+again+d.withoutVerdict(), d.p.RollbackOnFailure)
		return
	case d.failures < limit:
		return
	}
	excused, where := d.outageFailures()
	if d.failures-excused < limit {
		d.halt(HaltInconclusive, fmt.Sprintf("%s went NotReady, but so did nodes without the revision in %s: the revision is not the cause", plural(excused, "node"), where), false)
		return
	}
	d.halt(HaltTooManyFailures, fmt.Sprintf("%s failed (limit %d): %s%s", plural(d.failures, "node"), limit, d.examples(true), d.withoutVerdict()), d.p.RollbackOnFailure)
}

// noVerdict ends the message of a stop for which no node has blamed the revision. Remedies depends on it.
const noVerdict = "; all failures are timeouts"

// withoutVerdict returns noVerdict if all failures that count are timeouts.
func (d *planner) withoutVerdict() string {
	for i, s := range d.states {
		if n := &d.nodes[i]; s == Failed && d.counted(n) && d.nodeState(n).Reason != FailedTimeout {
			return ""
		}
	}
	return noVerdict
}

// remedies say what a person can do about a stop, by its reason.
var remedies = map[string]string{
	HaltTooManyFailures:  "push a fixed configuration",
	noVerdict:            "find out what delays the nodes with: kubectl evenkeel nodes --rollout NAME --failed",
	HaltInconclusive:     "when the outage is over: kubectl evenkeel rollout retry NAME",
	HaltAborted:          "push a fixed configuration",
	HaltPreflightRefused: "push a fixed configuration, or correct the nodes, then: kubectl evenkeel rollout retry NAME --force",
	HaltGateFailed:       "push a fixed configuration, or correct what the gate measures, then: kubectl evenkeel rollout retry NAME --force",
}

// Remedies returns what a person can do about a stop of a rollout with this reason and message. It failed on the node, if one is named.
// undo reports whether an earlier revision can be the target again.
func Remedies(name, reason, message, node string, undo bool) string {
	if strings.HasSuffix(message, noVerdict) {
		reason = noVerdict
	}
	words := remedies[reason]
	if node != "" && !strings.Contains(words, " retry ") { // other nodes wait for this one
		words += ", or: kubectl evenkeel rollout retry NAME " + node
	}
	if undo {
		words += ", or: kubectl evenkeel rollout undo NAME"
	}
	return strings.ReplaceAll(words, "NAME", name)
}

// failedAgain returns a node that a retry names and on which the target failed again; empty if there is none.
func (d *planner) failedAgain() string {
	for i, s := range d.states {
		if n := &d.nodes[i]; s == Failed && d.namedByRetry(n) && n.Source.Attempt == d.next.Attempt && d.counted(n) {
			return n.Name
		}
	}
	return ""
}

// limit is the number of failures that stop a revision.
func (d *planner) limit() int { return max(1, d.p.MaxFailures.RoundUp(d.counts.Members)) }

func (d *planner) halt(reason, message string, rollback bool) {
	d.next.Halt = &Halt{Revision: d.next.Revision, Attempt: d.next.Attempt, Reason: reason, Message: message, Time: d.p.Now, Rollback: rollback}
	d.event(true, "RolloutHalted", "revision %d is stopped (%s): %s", d.next.Revision, reason, message)
}

// examples names a few failed nodes: of all, or only of those that count towards the stop.
func (d *planner) examples(counted bool) string {
	const most = 3
	var out []string
	for i, s := range d.states {
		if s != Failed {
			continue
		}
		if counted && !d.counted(&d.nodes[i]) {
			continue
		}
		if len(out) == most {
			out = append(out, "...")
			break
		}
		out = append(out, d.nodes[i].Name+" "+d.nodeState(&d.nodes[i]).Reason)
	}
	return strings.Join(out, ", ")
}

// outageWindow is the longest time between two nodes that go NotReady for the same cause.
const outageWindow = 5 * time.Minute

// outage counts the nodes of one domain, to find out whether the revision made them NotReady.
type outage struct {
	assigned, untouched, alsoNotReady int
	failed                            []time.Time // when those that failed were seen to go NotReady, sorted
}

// near reports whether a failed node went NotReady within outageWindow of a time.
func (o *outage) near(t time.Time) bool {
	i, _ := slices.BinarySearchFunc(o.failed, t.Add(-outageWindow), time.Time.Compare)
	return i < len(o.failed) && !o.failed[i].After(t.Add(outageWindow))
}

// outageFailures counts failed nodes that an outage explains, and returns the first of their domains. Such nodes went
// NotReady, and nodes of the same domain without the revision did so at about the same time and at least at half the rate.
// A node that was already NotReady when the fleet was first observed counts as NotReady from then on.
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
		case !node.Ready && d.announcedNotReady(node): // says nothing about an outage
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

// notReadyFailure reports whether a node failed by being NotReady, which an outage can cause as well.
func (d *planner) notReadyFailure(n *Node, s State) bool {
	if s != Failed {
		return false
	}
	reason := d.nodeState(n).Reason
	return d.counted(n) && (reason == FailedNotReady || reason == agentNotReady)
}

func domainName(value string) string {
	if value == "" {
		return "the same domain"
	}
	return value
}
