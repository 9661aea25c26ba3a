// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import "time"

// Outage is a time in which the fleet was not observed.
type Outage struct{ From, To time.Time }

// Outages are the outages that a leader knows, in their order and without
// overlap. The first one ended with the leader's first view of the fleet. The
// leader does not know the outages before.
type Outages []Outage

// mostReturns is how many times agents may come back within a short time.
// Otherwise an API server that often fails would end no deadline.
const mostReturns = 5

// Add adds the newest outage. It merges outages that overlap.
func (all Outages) Add(o Outage) Outages {
	for last := len(all) - 1; last >= 0 && !all[last].To.Before(o.From); last-- {
		if all[last].From.Before(o.From) {
			o.From = all[last].From
		}

		all = all[:last]
	}

	return append(all, o)
}

// End returns when a time of this length that begins at start is over. Outages
// do not count, nor does the time that agents need to come back after each. The
// latter is limited after outages that were shorter: in total to length, or to
// mostReturns times if that is longer.
func (all Outages) End(start time.Time, length, back time.Duration) time.Time {
	end, counted, spare := start.Add(length), start, max(length, mostReturns*back)
	for i, o := range all {
		if !o.From.Before(end) {
			break
		}

		returned := o.To.Add(back)
		if i+1 < len(all) && all[i+1].From.Before(returned) {
			returned = all[i+1].From
		}

		end = end.Add(max(0, o.To.Sub(Latest(o.From, counted))))
		counted = Latest(counted, o.To)
		missing := max(0, returned.Sub(counted))
		if o.To.Sub(o.From) < back {
			missing = min(missing, spare)
			spare -= missing
		}

		end = end.Add(missing)
	}

	return end
}

// Deadline is End for what can have begun under an earlier leader. It assumes
// that of the time before the first known outage, as much was lost as can be
// lost to returns.
func (all Outages) Deadline(start time.Time, length, back time.Duration) time.Time {
	if len(all) > 0 {
		length += min(max(0, all[0].From.Sub(start)), max(length, mostReturns*back))
	}

	return all.End(start, length, back)
}

// deadline returns when a timeout that nodes must keep is over.
func (d *planner) deadline(start time.Time, length time.Duration) time.Time {
	return d.in.Outages.Deadline(start, length, d.in.Controller.AgentTimeout.Duration)
}

// answerDue returns until when the agent of a node may take to answer its
// assignment.
func (d *planner) answerDue(n *Node) time.Time {
	return d.deadline(n.Source.By().AssignedAt.Time, d.in.Controller.AgentTimeout.Duration)
}

// ends returns when a time is over in which nodes are observed. A change of
// leaders without an outage does not matter.
func (d *planner) ends(start time.Time, length time.Duration) time.Time {
	all := d.in.Outages
	if len(all) > 0 && all[0].To.Equal(all[0].From) {
		all = all[1:]
	}

	return all.End(start, length, d.in.Controller.AgentTimeout.Duration)
}
