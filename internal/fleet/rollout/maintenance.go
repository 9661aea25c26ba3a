package rollout

import "time"

// Cordoned is the Maintenance of a node that a person or a tool has cordoned.
const Cordoned = "cordoned"

// Maintenance is what a plan remembers about maintenance of a node that is assigned the target. A node cannot change it.
type Maintenance struct {
	Since time.Time     `json:"since,omitzero"`  // when maintenance began while the node was Ready; zero: there is none now
	Ended time.Time     `json:"ended,omitzero"`  // when the last one ended
	Total time.Duration `json:"total,omitempty"` // of those that have ended
}

// maintenance returns what is remembered about maintenance of a node's assignment, as of now. Maintenance that begins while the node
// is NotReady does not count: whoever cordoned the node may have done so because of the configuration.
func (d *planner) maintenance(n *Node) Maintenance {
	var m Maintenance
	if d.observationApplies(n) {
		m = n.Observation.Maintenance
	}
	now := d.p.Now
	switch began := n.MaintenanceSince; {
	case n.Maintenance == "" && !m.Since.IsZero():
		m = Maintenance{Ended: now, Total: m.Total + now.Sub(m.Since)}
	case n.Maintenance == "" || !m.Since.IsZero() || began.IsZero():
	case n.Ready || began.Before(d.wentNotReady(n)):
		m.Since = began
		if began.Before(n.Source.AssignedAt) { // the node was chosen before this was known
			m.Since = n.Source.AssignedAt
		}
	}
	return m
}

// excused returns for how long timeouts of a node's assignment have not run because of maintenance.
func (d *planner) excused(n *Node) time.Duration {
	m := d.maintenance(n)
	if m.Since.IsZero() {
		return m.Total
	}
	return m.Total + d.p.Now.Sub(m.Since)
}

// judgedNotReadySince returns since when a NotReady node is judged for being NotReady. It returns false while the node is under
// maintenance that began before.
func (d *planner) judgedNotReadySince(n *Node) (time.Time, bool) {
	m := d.maintenance(n)
	since := d.since(n.WentNotReady)
	if m.Ended.After(since) {
		since = m.Ended
	}
	return since, m.Since.IsZero()
}

// isPassedOver reports whether a node is not chosen because of its maintenance. A node that was blocked because it must be drained,
// and was cordoned then, is chosen: the message has asked for that.
func (d *planner) isPassedOver(n *Node) bool {
	return n.Maintenance != "" && !d.hasTarget(n) && !d.isBeingEmptied(n)
}

// isBeingEmptied reports whether a person has cordoned a node that was blocked because it must be drained.
func (d *planner) isBeingEmptied(n *Node) bool {
	return n.Maintenance == Cordoned && d.wasBlocked(n) && n.Observation.Reason == agentNeedsDrain
}
