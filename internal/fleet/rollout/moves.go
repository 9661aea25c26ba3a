package rollout

import (
	"cmp"
	"hash/fnv"
	"slices"
	"time"
)

// mostPicked is how many nodes are given the target at a time: while they are being written to, nothing is decided, and
// what they do may be a reason to stop.
const maxPicked = 1000

// mostRevoked is how many revisions a NodeConfig can revoke.
const maxRevoked = 10

// takeBack takes assignments back that were not taken up.
func (d *planner) takeBack() {
	if d.p.Frozen {
		return
	}
	for i := range d.nodes {
		n, s, stop := &d.nodes[i], d.states[i], d.next.Halt
		refuses := s == Blocked && n.Observed == n.Generation || n.stale()
		if !d.assignedTarget(n) || s == Conflicted || s == Manual || n.Observed == n.Generation && !refuses {
			continue
		}
		to := d.previousSource(n)
		switch {
		case to.SHA256 == d.p.Target.SHA256: // that would change nothing
		case stop != nil && !d.proven(n):
			d.unassign(i, TakeBack, to, stop.Reason != HaltInconclusive)
		case s == Stale:
			d.unassign(i, TakeBack, to, false)
		}
	}
}

// before is the source that a node had before the target.
func (d *planner) previousSource(n *Node) Source {
	if n.Source.Previous == nil {
		return Source{}
	}
	s := *n.Source.Previous
	s.AssignedAt, s.Term = d.p.Now, d.p.Term
	return s
}

// leave takes a node off the target.
func (d *planner) unassign(i int, kind MoveKind, to Source, revoke bool) {
	n := &d.nodes[i]
	var add []string
	switch {
	case revoke && n.Source.Kind == SourceConfigMap:
		add = []string{n.Source.UID}
	case revoke:
		add = []string{n.Active.UID}
	}
	d.move(Move{Node: i, Kind: kind, Source: to, Revoked: revoked(n.Revoked, add, to.UID)})
}

func (d *planner) move(m Move) {
	d.moves = append(d.moves, m)
	d.moved[m.Node] = true
}

// revoked is a node's list with some more on it, and without what it is to run.
func revoked(list, add []string, without string) []string {
	drop := append([]string{without}, add...)
	out := slices.DeleteFunc(slices.Clone(list), func(uid string) bool { return slices.Contains(drop, uid) })
	for _, uid := range add {
		if uid != without {
			out = append(out, uid)
		}
	}
	return out[max(0, len(out)-maxRevoked):]
}

// goBack takes nodes off a revision that was stopped: broken ones at once, the others newest first, a few at a time. What
// had the content before it became the target keeps it.
func (d *planner) goBack() {
	d.leaving = d.moving
	d.findRemaining()
	if h := d.next.Halt; h == nil || !h.Rollback || d.lastGood().Gone {
		return
	}
	var healthy []int
	for i := range d.nodes {
		n, s := &d.nodes[i], d.states[i]
		runs := n.Source.Kind == SourceNone && n.Active.SHA256 == d.p.Target.SHA256 // its NodeConfig was made anew
		if !d.assignedTarget(n) && !runs || s == Conflicted || n.OtherSource != "" || d.moved[i] {
			continue
		}
		to := d.destination(n)
		if to.SHA256 == d.p.Target.SHA256 {
			continue
		}
		d.leaving++
		switch {
		case d.p.Frozen:
		case s == Failed || !n.Ready:
			d.unassign(i, GoBack, to, true)
		default:
			healthy = append(healthy, i)
		}
	}
	slices.SortFunc(healthy, func(a, b int) int {
		x, y := &d.nodes[a], &d.nodes[b]
		return cmp.Or(y.Source.AssignedAt.Compare(x.Source.AssignedAt), cmp.Compare(x.Name, y.Name))
	})
	room := max(1, d.p.RollbackMaxUnavailable.roundDown(d.counts.Members)) - d.moving
	for _, i := range healthy[:min(max(0, room), len(healthy))] {
		d.unassign(i, GoBack, d.destination(&d.nodes[i]), true)
		d.moving++
	}
}

// remain notes the nodes that were taken off a revision that was stopped, and run it all the same: their agents are silent,
// or refuse what they are to go back to.
func (d *planner) findRemaining() {
	if h := d.next.Halt; h == nil || !h.Rollback {
		return
	}
	for i := range d.nodes {
		n := &d.nodes[i]
		if !d.hasTarget(n) && n.Source.Rollout == d.p.Name && n.Active.SHA256 == d.p.Target.SHA256 {
			d.remaining = append(d.remaining, n.Name)
		}
	}
}

// good is the last revision that succeeded before the target, zero if there is none, or it was stopped later.
func (d *planner) lastGood() Revision {
	l := d.p.LastSucceeded
	if l.SHA256 == d.p.Target.SHA256 || slices.Contains(d.p.Stopped, l.Name) {
		return Revision{}
	}
	return l
}

// destination is where a node goes back to: the last revision that succeeded, else what it had. Where that is nothing,
// it is said explicitly, so that it can be seen when it was assigned.
func (d *planner) destination(n *Node) Source {
	previous := n.Source.Previous
	if l := d.lastGood(); l.Number != 0 {
		return d.source(l, 1, previous)
	}
	if previous == nil {
		return Source{Kind: SourceLocal, Rollout: d.p.Name, Revision: d.p.Target.Number, Attempt: d.next.Attempt, AssignedAt: d.p.Now, Term: d.p.Term}
	}
	return d.previousSource(n)
}

// source assigns a revision now.
func (d *planner) source(r Revision, attempt int64, previous *Source) Source {
	return Source{
		Kind: SourceConfigMap, Namespace: r.Namespace, Name: r.Name, UID: r.UID, SHA256: r.SHA256,
		Rollout: d.p.Name, Revision: r.Number, Attempt: attempt, AssignedAt: d.p.Now, Term: d.p.Term, Previous: previous,
	}
}

// spend takes a node that begins to move into account.
func (d *planner) countMove(n *Node, cost int) {
	dom := d.domain(n)
	d.counts.Unavailable += cost
	dom.unavailable += cost
	dom.inFlight++
}

// give assigns a revision to a node.
func (d *planner) assignRevision(i int, kind MoveKind, to Revision) {
	n := &d.nodes[i]
	var previous *Source
	var revoke []string
	switch {
	case n.Source.Kind != SourceConfigMap:
	case n.Source.SHA256 == to.SHA256, slices.Contains(d.p.Stopped, n.Source.Name):
		previous = n.Source.Previous
		if n.Source.SHA256 != to.SHA256 {
			revoke = []string{n.Source.UID}
		}
	default:
		s := n.Source
		s.Previous, s.AssignedAt, s.Term = nil, d.p.Now, 0
		previous = &s
	}
	attempt := int64(1)
	if to.Number == d.next.Revision {
		attempt = d.next.Attempt
	}
	d.move(Move{Node: i, Kind: kind, Source: d.source(to, attempt, previous), Revoked: revoked(n.Revoked, revoke, to.UID)})
}

// assign gives the target to the next nodes.
func (d *planner) assign() {
	if d.next.Revision == 0 || d.stopped() {
		return
	}
	var candidates []int
	probing := d.probing()
	for i := range d.nodes {
		n, s := &d.nodes[i], d.states[i]
		switch {
		case d.moved[i], d.newcomers[i], probing && !d.namedByRetry(n):
		case s == Pending && n.Observed == n.Generation, s == Failed && n.Ready && d.retries(n),
			s == Blocked && !d.hasTarget(n) && n.Observed == n.Generation && !d.p.Now.Before(d.nextOffer(n)):
			candidates = append(candidates, i)
		case (s >= Assigned && s <= Updated || s == Blocked && d.hasTarget(n)) && n.Source.UID != d.p.Target.UID:
			d.carryObservation(i)
			d.assignRevision(i, Assign, d.p.Target) // its ConfigMap was made anew: an equal payload needs no restart
		}
	}
	room := d.allowed() - (d.assigned - d.counts.Failed - d.refusing)
	var given []string
	if len(candidates) > 0 && room > 0 && d.counts.Budget > 0 {
		picked := d.pick(candidates, room)
		for _, m := range d.moves[len(d.moves)-picked:] {
			if d.states[m.Node] != Blocked { // another offer is no news
				given = append(given, d.nodes[m.Node].Name)
			}
		}
		d.makeRoom(min(room, len(candidates)) - picked - d.freeing)
	}
	moving := d.counts.Assigned + d.counts.Trial + d.counts.Soaking
	switch {
	case len(given) > 0:
		d.events = append(d.events, NodesAssigned(&d.p, &d.next, given))
	case d.counts.Blocked > 0 && d.counts.Pending+moving == 0:
		d.waitReason = d.blocked()
	case probing:
		d.waitReason = "the others wait for the nodes that try again"
	case len(candidates) == 0 && !d.fewMissing() && moving == 0 && !d.next.Succeeded:
		d.waitReason = "too many nodes are NotReady or have a silent agent to go on without them"
	case len(candidates) == 0:
	case d.counts.Budget == 0:
		d.waitReason = "maxUnavailable is 0: nothing moves"
	case room <= 0:
		d.waitReason = "the step allows no more"
	default:
		d.waitReason = d.budgetMessage()
	}
}

// makeRoom takes the target back from up to most nodes that refuse it, those that have had it longest first: others want
// their place. It is theirs when the agent has answered, since until then the node may still take the target up.
func (d *planner) makeRoom(most int) {
	var held []int
	for i := range d.nodes {
		if n := &d.nodes[i]; d.states[i] == Blocked && d.assignedTarget(n) && !d.moved[i] && d.previousSource(n).SHA256 != d.p.Target.SHA256 {
			held = append(held, i)
		}
	}
	slices.SortFunc(held, func(a, b int) int {
		x, y := &d.nodes[a], &d.nodes[b]
		return cmp.Or(x.Source.AssignedAt.Compare(y.Source.AssignedAt), cmp.Compare(x.Name, y.Name))
	})
	for _, i := range held[:min(max(0, most), len(held))] {
		n := &d.nodes[i]
		m := Observation{Rollout: d.p.Name, Revision: d.next.Revision, Attempt: d.next.Attempt, Blocked: d.p.Now, Offers: 1, Reason: n.Reason, Message: truncate(n.Error)}
		if d.wasBlocked(n) {
			m.Offers += n.Observation.Offers
		}
		d.observations = slices.DeleteFunc(d.observations, func(x NewObservation) bool { return x.Node == i })
		d.observations = append(d.observations, NewObservation{i, m})
		d.unassign(i, TakeBack, d.previousSource(n), false)
	}
}

// cut shortens a node's words to what a mark keeps.
func truncate(words string) string {
	const most = 300
	if r := []rune(words); len(r) > most {
		return string(r[:most]) + "…"
	}
	return words
}

// renew assigns anew, in the term of who plans, what nodes do not take up because a leader before assigned it.
func (d *planner) renew() {
	if d.p.Frozen {
		return
	}
	renewed := 0
	for i := range d.nodes {
		n := &d.nodes[i]
		if d.moved[i] || n.Owner != "" || n.OtherSource != "" || !n.stale() || n.Source.Rollout != d.p.Name || n.Source.Term == d.p.Term {
			continue
		}
		if stopped := d.next.Halt != nil; stopped && d.hasTarget(n) || !stopped && !d.hasTarget(n) && n.Source.SHA256 != d.lastGood().SHA256 {
			continue // it is not wanted any more
		}
		s := n.Source
		s.AssignedAt, s.Term = d.p.Now, d.p.Term
		d.move(Move{Node: i, Kind: Renew, Source: s, Revoked: n.Revoked})
		renewed++
	}
	if renewed > 0 {
		d.event(false, "AssignmentsRenewed", "what a controller had assigned to %s that does not lead any more was assigned anew", plural(renewed, "node"))
	}
}

// probing tells whether nodes that a retry names have not proven the target yet: until then no other is given it. What
// cannot have it now is not waited for: nor is a node whose pods stand in its way, once it has said so.
func (d *planner) probing() bool {
	for i := range d.nodes {
		n, s := &d.nodes[i], d.states[i]
		toBeOffered := s == Blocked && !d.hasTarget(n) && n.Observation.Attempt < d.next.Attempt
		if (s <= Soaking || s == Failed || toBeOffered) && d.namedByRetry(n) {
			return true
		}
	}
	return false
}

// named tells whether the retry that runs names a node.
func (d *planner) namedByRetry(n *Node) bool {
	r := d.p.Retry
	return r.Revision == d.next.Revision && r.Attempt == d.next.Attempt && slices.Contains(r.Nodes, n.Name)
}

// retries tells whether a node on which the target failed is to try it again.
func (d *planner) retries(n *Node) bool {
	return n.Source.Attempt < d.next.Attempt && d.p.Retry.Revision == d.next.Revision && (len(d.p.Retry.Nodes) == 0 || d.namedByRetry(n))
}

// pick gives the target to the first candidates for whom there is room, and returns how many.
func (d *planner) pick(candidates []int, room int) int {
	c := &d.counts
	flying := 0
	for _, dom := range d.domains {
		if dom.inFlight > 0 {
			flying++
		}
	}
	if c.Unavailable >= c.Budget && !slices.ContainsFunc(candidates, func(i int) bool { return d.countsUnavailable(&d.nodes[i], d.states[i]) }) {
		return 0
	}
	picked := 0
	for _, i := range d.order(candidates) {
		if picked == room {
			break
		}
		if picked == maxPicked {
			d.requeueAt(d.p.Now.Add(time.Millisecond))
			break
		}
		n := &d.nodes[i]
		dom, cost := d.domain(n), 1
		if d.countsUnavailable(n, d.states[i]) {
			cost = 0 // it is unavailable already
		}
		switch {
		case c.Unavailable+cost > c.Budget:
			continue
		case d.p.MaxUnavailablePerDomain != nil && dom.unavailable+cost > d.p.MaxUnavailablePerDomain.roundDown(dom.members):
			continue
		case d.p.MaxDomainsInFlight > 0 && dom.inFlight == 0 && flying >= d.p.MaxDomainsInFlight:
			continue
		}
		if dom.inFlight == 0 {
			flying++
		}
		d.countMove(n, cost)
		d.assignRevision(i, Assign, d.p.Target)
		picked++
	}
	return picked
}

// candidate is what the order goes by.
type candidate struct {
	node   int
	rank   int
	domain uint64
	hash   uint64
}

// order sorts candidates: those that try again; canaries; then one of each kind of machine that no canary is of; then
// domain by domain; in each by a hash with the revision, so that it is not always the same nodes. The controller's own
// node comes last.
func (d *planner) order(nodes []int) []int {
	all := make([]candidate, len(nodes))
	domains := map[string]uint64{}
	for k, i := range nodes {
		n := &d.nodes[i]
		h, ok := domains[n.Domain]
		if !ok {
			h = d.hash(n.Domain)
			domains[n.Domain] = h
		}
		all[k] = candidate{node: i, rank: 2, domain: h, hash: d.hash(n.Name)}
		switch {
		case d.states[i] == Failed:
			all[k].rank = -1
		case d.states[i] == Blocked:
			all[k].rank = 4 // after those that have not been asked
		case n.Last:
			all[k].rank = 3
		case n.Canary:
			all[k].rank = 0
		}
	}
	d.prioritizeKinds(all)
	slices.SortFunc(all, func(a, b candidate) int {
		switch { // not cmp.Or: names are compared where all else is the same alone
		case a.rank != b.rank:
			return a.rank - b.rank
		case a.domain != b.domain:
			return cmp.Compare(a.domain, b.domain)
		case a.hash != b.hash:
			return cmp.Compare(a.hash, b.hash)
		}
		return cmp.Compare(d.nodes[a.node].Name, d.nodes[b.node].Name)
	})
	for k := range all {
		nodes[k] = all[k].node
	}
	return nodes
}

// represent moves one candidate up for each kind of machine of which no node has the target or is a canary.
func (d *planner) prioritizeKinds(all []candidate) {
	first := map[string]int{} // index into all; -1: there is one
	for i := range d.nodes {
		if d.hasTarget(&d.nodes[i]) {
			first[d.nodes[i].MachineKind] = -1
		}
	}
	for _, c := range all {
		if c.rank <= 0 {
			first[d.nodes[c.node].MachineKind] = -1
		}
	}
	for k, c := range all {
		if c.rank != 2 {
			continue
		}
		stratum := d.nodes[c.node].MachineKind
		if best, ok := first[stratum]; !ok || best >= 0 && c.hash < all[best].hash {
			first[stratum] = k
		}
	}
	for _, k := range first {
		if k >= 0 {
			all[k].rank = 1
		}
	}
}

// hash mixes a name with the revision.
func (d *planner) hash(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(d.p.Target.SHA256[:min(12, len(d.p.Target.SHA256))]))
	h.Write([]byte(name))
	x := h.Sum64() // names that differ in their last letter alone are neighbours still
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	return x ^ x>>33
}
