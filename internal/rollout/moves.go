// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// maxPicked limits how many nodes one plan assigns the target: nothing is
// planned while they are written, and their results may be a reason to stop.
const maxPicked = 1000

// maxBlockedMessage limits the message of an observation, in characters.
const maxBlockedMessage = 300

// maxRevoked is how many revisions a NodeConfig can revoke.
const maxRevoked = 10

// takeBack takes back assignments that agents have not accepted. An agent that
// neither runs nor has judged its assignment, because it cannot read something,
// its guards refuse it, or its kubelet is broken anyway, would accept it later:
// that must not happen with a revision that was stopped.
func (d *planner) takeBack() {
	if d.in.Spec.Frozen {
		return
	}

	for i := range d.nodes {
		n, s, stop := &d.nodes[i], d.States[i], d.Next.Halt
		accepted := n.Observed == n.Generation && !n.stale() && (stop == nil || d.runsTarget(n) || n.judged())
		if accepted || s == Conflicted || s == Manual || !d.hasTarget(n) {
			continue
		}
		if d.runsTarget(n) && !d.assignedTarget(n) { // it ran the content before that became the target
			continue
		}

		to := d.previousSource(n)
		switch {
		case to.Content().SHA256 == d.in.Target.ConfigMapRef.SHA256: // nothing would change
		case stop != nil && !d.proven(n):
			d.unassign(i, TakeBack, to, stop.Reason != v1alpha1.HaltInconclusive)
		case s == Stale:
			d.unassign(i, TakeBack, to, false)
		}
	}
}

// previous returns the source that a node had before the target; nil: none. A
// revision that was stopped since then, or whose ConfigMap is gone, counts only
// if the node runs it.
func (d *planner) previous(n *Node) *v1alpha1.PreviousSource {
	p := n.Source.By().Previous
	if p != nil && n.Active.Digest() != p.ConfigMapRef.SHA256 &&
		(slices.Contains(d.in.Stopped, p.ConfigMapRef.Name) || d.isGone(p.Rollout, p.ConfigMapRef.UID)) {
		return nil
	}

	return p
}

// isGone reports whether the ConfigMap of a revision of this rollout does not
// exist any more: no agent can read it.
func (d *planner) isGone(rollout string, uid types.UID) bool {
	return d.in.Revisions != nil && rollout == d.in.Name && !slices.Contains(d.in.Revisions, uid)
}

// previousSource returns the source that a node had before the target.
func (d *planner) previousSource(n *Node) *v1alpha1.NodeConfigSource {
	p := d.previous(n)
	if p == nil {
		return nil
	}

	return &v1alpha1.NodeConfigSource{ConfigMapRef: &p.ConfigMapRef, RolloutRef: d.reference(p.Rollout, p.Revision, p.Attempt, nil)}
}

// reference returns what is written beside a source that is assigned now.
func (d *planner) reference(rollout string, revision, attempt int64, previous *v1alpha1.PreviousSource) *v1alpha1.RolloutReference {
	return &v1alpha1.RolloutReference{
		Name: rollout, Revision: revision, Attempt: attempt, AssignedAt: metav1.NewTime(d.in.Now), Term: d.in.Term, Previous: previous,
	}
}

// unassign moves a node from the target to another source.
func (d *planner) unassign(i int, kind MoveKind, to *v1alpha1.NodeConfigSource, revoke bool) {
	n := &d.nodes[i]
	var add types.UID
	switch {
	case revoke && isConfigMap(n.Source):
		add = n.Source.Content().UID
	case revoke && n.Active != nil:
		add = n.Active.UID
	}

	d.move(Move{Node: i, Kind: kind, Source: to, Revoked: revoked(n.Revoked, add, to.Content().UID)})
}

func (d *planner) move(m Move) {
	d.Moves = append(d.Moves, m)
	d.moved[m.Node] = true
	if m.Kind != TakeBack {
		d.planeBegins(m.Node)
	}
}

// revoked returns a list of revoked revisions with one added, unless that is
// empty, and without the one that the node is to run.
func revoked(list []types.UID, add, without types.UID) []types.UID {
	out := slices.DeleteFunc(slices.Clone(list), func(uid types.UID) bool { return uid == add || uid == without })
	if add != "" && add != without {
		out = append(out, add)
	}

	return out[max(0, len(out)-maxRevoked):]
}

// goBack rolls back nodes from a revision that was stopped: broken nodes at
// once, the others a few at a time, the last assigned first. Nodes that had the
// content before it became the target keep it.
func (d *planner) goBack() {
	d.back.leaving = d.back.moving
	if h := d.Next.Halt; h == nil || !h.Rollback || d.goodIsGone() {
		return
	}

	var healthy []int
	for i := range d.nodes {
		n, s := &d.nodes[i], d.States[i]
		if d.runsTarget(n) && !d.hasTarget(n) && n.Source.By().Name == d.in.Name { // its agent is silent, or refuses to return
			d.back.remaining = append(d.back.remaining, n.Name)
		}

		runs := n.Source == nil && d.runsTarget(n) // its NodeConfig was created again
		if !d.assignedTarget(n) && !runs || s == Conflicted || n.OtherSource != "" || d.moved[i] {
			continue
		}

		to := d.destination(n)
		if to.Content().SHA256 == d.in.Target.ConfigMapRef.SHA256 {
			continue
		}

		d.back.leaving++
		d.back.goingTo[d.in.sourceName(to)]++
		switch {
		case d.in.Spec.Frozen:
		case s == Failed || !n.Ready:
			if d.mayBegin(i) {
				d.unassign(i, GoBack, to, true)
			}
		default:
			healthy = append(healthy, i)
		}
	}

	slices.SortFunc(healthy, func(a, b int) int {
		x, y := &d.nodes[a], &d.nodes[b]
		return cmp.Or(y.Source.By().AssignedAt.Time.Compare(x.Source.By().AssignedAt.Time), cmp.Compare(x.Name, y.Name))
	})
	room := int(max(1, roundDown(d.in.Spec.Rollback.MaxUnavailable, d.Counts.Members)) - d.back.moving)
	for _, i := range healthy {
		if room <= 0 {
			break
		}
		if !d.mayBegin(i) {
			continue
		}

		room--
		d.unassign(i, GoBack, d.destination(&d.nodes[i]), true)
		d.back.moving++
	}
}

// lastGood returns the last revision that succeeded before the target; zero if
// there is none, or if it was stopped later.
func (d *planner) lastGood() v1alpha1.RolloutRevision {
	l := d.in.LastSucceeded
	if l.ConfigMapRef.SHA256 == d.in.Target.ConfigMapRef.SHA256 || slices.Contains(d.in.Stopped, l.ConfigMapRef.Name) {
		return v1alpha1.RolloutRevision{}
	}

	return l
}

// goodIsGone reports whether the ConfigMap of lastGood does not exist.
func (d *planner) goodIsGone() bool { return d.in.LastSucceededGone && d.lastGood().Number != 0 }

// destination returns the source that a node is rolled back to: the last
// revision that succeeded, else its previous source. Without a previous source
// it is the local configuration, assigned explicitly so that its time is known.
func (d *planner) destination(n *Node) *v1alpha1.NodeConfigSource {
	if l := d.lastGood(); l.Number != 0 {
		return d.source(l, 1, n.Source.By().Previous)
	}

	if d.previous(n) == nil {
		return &v1alpha1.NodeConfigSource{Local: &v1alpha1.LocalSource{},
			RolloutRef: d.reference(d.in.Name, d.in.Target.Number, d.Next.Attempt, nil)}
	}

	return d.previousSource(n)
}

// source returns an assignment of a revision, made now.
func (d *planner) source(r v1alpha1.RolloutRevision, attempt int64, previous *v1alpha1.PreviousSource) *v1alpha1.NodeConfigSource {
	return &v1alpha1.NodeConfigSource{ConfigMapRef: &r.ConfigMapRef, RolloutRef: d.reference(d.in.Name, r.Number, attempt, previous)}
}

// countMove adds a node that begins to move to the budgets, in which it may
// count already.
func (d *planner) countMove(i int) {
	n, s := &d.nodes[i], d.States[i]
	dom, counts := d.domain(n), d.countsUnavailable(n, s)
	if !counts {
		d.Counts.Unavailable++
	}

	for _, u := range []*usage{&d.used, &dom.used} {
		if !counts {
			u.unavailable++
		} else if d.settledDown(n, s) {
			u.settled--
		}

		if !counts || !d.hasBegun(n, s) {
			u.begun++
		}
	}

	dom.inFlight++
}

// runsPrevious reports whether a node runs the configuration that it had before
// its source.
func (n *Node) runsPrevious() bool {
	p := n.Source.By().Previous
	return p == nil && n.Active.Digest() == "" || p != nil && n.Active.Digest() == p.ConfigMapRef.SHA256
}

// assignRevision assigns a revision to a node.
func (d *planner) assignRevision(i int, kind MoveKind, to v1alpha1.RolloutRevision) {
	n := &d.nodes[i]
	has, by, previous := n.Source.Content(), n.Source.By(), n.Source.By().Previous
	var revoke types.UID
	switch {
	case !isConfigMap(n.Source):
		previous = nil
	case has.SHA256 == to.ConfigMapRef.SHA256:
	case slices.Contains(d.in.Stopped, has.Name):
		revoke = has.UID
	case n.Active.Digest() != has.SHA256 && (n.runsPrevious() || d.isGone(by.Name, has.UID)): // it has not adopted that
	default:
		previous = &v1alpha1.PreviousSource{ConfigMapRef: *has, Rollout: by.Name, Revision: by.Revision, Attempt: by.Attempt}
	}

	attempt := int64(1)
	if to.Number == d.in.Target.Number {
		attempt = d.Next.Attempt
		d.noteRefusal(i)
		if kind == Assign {
			d.recordNotReady(i)
		}
	}

	d.move(Move{Node: i, Kind: kind, Source: d.source(to, attempt, previous), Revoked: revoked(n.Revoked, revoke, to.ConfigMapRef.UID)})
}

// assign assigns the target to the next nodes.
func (d *planner) assign() {
	if d.in.Target.Number == 0 || d.stopped() {
		return
	}

	var candidates []int
	probing := d.probing()
	for i := range d.nodes {
		n, s := &d.nodes[i], d.States[i]
		switch {
		case d.moved[i], d.joins.newcomers[i], probing && !d.namedByRetry(n):
		case n.Drain.Rollout != "" && (s == Pending || s == Failed || s == Blocked && !d.hasTarget(n)): // of an earlier drain, removed first
		case s == Pending && n.Observed == n.Generation, s == Failed && n.Ready && d.retries(n),
			s == Blocked && !d.hasTarget(n) && n.Observed == n.Generation && !d.in.Now.Before(d.nextOffer(n)):
			candidates = append(candidates, i)
		case (s >= Assigned && s <= Updated || (s == Blocked || s == Draining) && d.hasTarget(n)) &&
			n.Source.Content().UID != d.in.Target.ConfigMapRef.UID && (!d.closed() || d.runsTarget(n)):
			d.carryObservation(i)
			d.assignRevision(i, Assign, d.in.Target) // its ConfigMap was created again: an equal payload needs no restart
		}
	}

	room := int(d.allowed() - (d.assigned - d.Counts.Failed - d.refusing))
	var given []string
	if len(candidates) > 0 && room > 0 && d.Counts.Budget > 0 && !d.gates.held && !d.closed() {
		before, heldBefore := len(d.Moves), d.planes.waits.count // by join
		d.countDisruptions(2 * min(room, int(d.Counts.Budget)))
		picked := d.pick(candidates, room)
		for _, m := range d.Moves[before:] {
			if d.States[m.Node] != Blocked { // another offer is not reported
				given = append(given, d.nodes[m.Node].Name)
			}
		}

		if !d.ReadBudgets {
			held := d.disruption.waits.count
			if !d.planes.blocked {
				held += d.planes.waits.count - heldBefore
			}

			d.makeRoom(min(room, len(candidates)-held) - picked - int(d.freeing))
		}
	}

	moving := d.Counts.Assigned + d.Counts.Trial + d.Counts.Soaking + d.Counts.Draining + int32(len(d.drains.begun))
	switch {
	case len(given) > 0:
		d.Events = append(d.Events, d.in.NodesAssigned(d.Next.Step, given))
	case d.gates.held && len(candidates) > 0 && room > 0:
		d.waitReason = d.gatesWaited()
		d.gates.onlyGates = d.gates.onlyGates || moving == 0
	case d.closed(): // describe says so
	case d.Counts.Blocked > 0 && d.Counts.Pending+moving == 0:
		d.waitReason = d.blocked()
	case probing:
		d.waitReason = "other nodes wait for the retried nodes"
	case len(candidates) == 0 && !d.fewMissing() && moving == 0 && !d.succeeded && d.resting > 0:
		d.waitReason = fmt.Sprintf("too many nodes are under maintenance (%d), NotReady or have a silent agent to continue without them",
			d.resting)
	case len(candidates) == 0 && !d.fewMissing() && moving == 0 && !d.succeeded:
		d.waitReason = "too many nodes are NotReady or have a silent agent to continue without them"
	case len(candidates) == 0:
	case d.Counts.Budget == 0:
		d.waitReason = "maxUnavailable is 0: no node moves"
	case room <= 0:
		d.waitReason = "the step allows no more nodes"
	case d.planes.waits.why != "" && d.Counts.Unavailable < d.Counts.Budget: // planesNote says so
	case d.disruption.waits.why != "":
		d.waitReason = d.disruption.waits.why
	default:
		d.waitReason = d.budgetMessage()
	}
}

// makeRoom takes the target back from up to most nodes that refuse it, the
// first assigned first, so that other nodes get their place. The place is free
// when the agent has answered: until then the node may still accept the target.
func (d *planner) makeRoom(most int) {
	var refusing []int
	for i := range d.nodes {
		if n := &d.nodes[i]; d.States[i] == Blocked && !d.drainsNodes() && d.hasTarget(n) && !d.moved[i] &&
			d.previousSource(n).Content().SHA256 != d.in.Target.ConfigMapRef.SHA256 {
			refusing = append(refusing, i)
		}
	}

	slices.SortFunc(refusing, func(a, b int) int {
		x, y := &d.nodes[a], &d.nodes[b]
		return cmp.Or(x.Source.By().AssignedAt.Time.Compare(y.Source.By().AssignedAt.Time), cmp.Compare(x.Name, y.Name))
	})
	for _, i := range refusing[:min(max(0, most), len(refusing))] {
		d.takeBackBlocked(i, d.nodes[i].Reason, d.nodes[i].Error)
	}
}

// takeBackBlocked takes the target back from a node that refuses it.
func (d *planner) takeBackBlocked(i int, reason, message string) {
	d.observeBlocked(i, reason, message)
	d.unassign(i, TakeBack, d.previousSource(&d.nodes[i]), false)
}

// observeBlocked records that a node cannot get the target because of its pods.
func (d *planner) observeBlocked(i int, reason, message string) {
	n := &d.nodes[i]
	m := Observation{Rollout: d.in.Name, Revision: d.in.Target.Number, Attempt: d.Next.Attempt, Blocked: d.in.Now, Offers: 1, Reason: reason,
		Message: printable.Brief(message, maxBlockedMessage), NotReadyBefore: n.Observation.NotReadyBefore}
	if d.wasBlocked(n) {
		m.Offers += n.Observation.Offers
	}

	d.observe(i, m)
}

// renew repeats assignments of an earlier leader in the term of this one, if
// agents reject them for their term.
func (d *planner) renew() {
	if d.in.Spec.Frozen {
		return
	}

	renewed, over := 0, d.Counts.Unavailable-d.Counts.Budget
	for i := range d.nodes {
		n := &d.nodes[i]
		if d.moved[i] || n.Owner != "" || n.OtherSource != "" || !n.stale() || n.Source.By().Name != d.in.Name ||
			n.Source.By().Term == d.in.Term {
			continue
		}

		if stopped := d.Next.Halt != nil; stopped && d.hasTarget(n) ||
			!stopped && !d.hasTarget(n) && n.Source.Content().SHA256 != d.lastGood().ConfigMapRef.SHA256 {
			continue // the assignment is no longer wanted
		}

		if over > 0 && d.hasTarget(n) && d.countsUnavailable(n, d.States[i]) {
			over-- // an earlier leader wrote late, and this one has used the budget: the node has its turn when another is done
			continue
		}

		if !d.mayBegin(i) {
			continue
		}

		s := n.Source.DeepCopy()
		s.RolloutRef.AssignedAt, s.RolloutRef.Term = metav1.NewTime(d.in.Now), d.in.Term
		d.move(Move{Node: i, Kind: Renew, Source: s, Revoked: n.Revoked})
		renewed++
	}

	if renewed > 0 {
		d.event(false, "AssignmentsRenewed", "assignments of an earlier leader to %s were renewed", printable.Count(renewed, "node"))
	}
}

// probing reports whether nodes that a retry names have yet to prove the
// target: until then no other node gets it. Nodes that cannot get the target
// now are not waited for, nor are nodes that refuse it because of their pods.
func (d *planner) probing() bool {
	for i := range d.nodes {
		n, s := &d.nodes[i], d.States[i]
		toBeOffered := s == Blocked && !d.hasTarget(n) && n.Observation.Attempt < d.Next.Attempt
		if (s <= Soaking || s == Draining || s == Failed || toBeOffered) && d.namedByRetry(n) {
			return true
		}
	}

	return false
}

// namedByRetry reports whether the current retry names a node.
func (d *planner) namedByRetry(n *Node) bool {
	r := d.in.Spec.Retry
	return r != nil && r.Revision == d.in.Target.Number && r.Attempt == d.Next.Attempt && slices.Contains(r.Nodes, n.Name)
}

// retries reports whether a node on which the target failed tries it again. A
// node under maintenance does only if the retry names it.
func (d *planner) retries(n *Node) bool {
	return d.toRetry(n) && (n.Maintenance == "" || d.namedByRetry(n))
}

// toRetry reports whether the current retry is about a node on which the target
// failed.
func (d *planner) toRetry(n *Node) bool {
	r := d.in.Spec.Retry
	return r != nil && n.Source.By().Attempt < d.Next.Attempt && r.Revision == d.in.Target.Number && (len(r.Nodes) == 0 || d.namedByRetry(n))
}

// pick assigns the target to the first candidates for which there is room, and
// returns how many it assigned.
func (d *planner) pick(candidates []int, room int) int {
	c, perDomain := &d.Counts, d.in.Spec.Strategy.MaxUnavailablePerDomain
	flying, most := int32(0), d.in.Spec.Strategy.MaxDomainsInFlight
	for _, dom := range d.domains {
		if dom.inFlight > 0 {
			flying++
		}
	}

	if c.Unavailable >= c.Budget && !slices.ContainsFunc(candidates,
		func(i int) bool { return d.countsUnavailable(&d.nodes[i], d.States[i]) }) {
		return 0
	}

	picked := 0
	for _, i := range d.order(candidates) {
		if picked == room {
			break
		}

		if picked == maxPicked {
			d.requeueAt(d.in.Now.Add(time.Millisecond))
			break
		}

		n := &d.nodes[i]
		dom := d.domain(n)
		switch {
		case !d.fits(i, d.used, c.Budget):
			continue
		case perDomain != nil && !d.fits(i, dom.used, roundDown(perDomain, dom.members)):
			continue
		case most != nil && dom.inFlight == 0 && flying >= *most:
			continue
		case !d.mayBegin(i), !d.mayDisrupt(i):
			continue
		}

		if dom.inFlight == 0 {
			flying++
		}

		d.countMove(i)
		d.disrupt(i)
		if d.in.Spec.Strategy.Drain == v1alpha1.DrainAlways && d.canGiveUp(n) && d.toAssign(n) {
			d.beginDrain(i)
		} else {
			d.assignRevision(i, Assign, d.in.Target)
		}

		picked++
	}

	return picked
}

// fits reports whether a node can be assigned the target within a budget.
//
// More nodes may count than the budget allows now, because it was lowered, or
// because nodes fail later. Then the target begins, of the nodes that count
// already, on as many as the budget has places beside those that may be
// restarting. If it has failed on as many nodes as may be unavailable, it
// begins on another one only after a retry of those.
func (d *planner) fits(i int, u usage, budget int32) bool {
	n, s := &d.nodes[i], d.States[i]
	switch {
	case !d.countsUnavailable(n, s):
		return u.unavailable < budget
	case u.unavailable <= budget:
		return true
	case !d.hasBegun(n, s) && u.begun >= budget:
		return false
	case d.settledDown(n, s):
		return u.unavailable-u.settled < budget
	}

	return u.unavailable-u.settled <= budget
}

// candidate is a node with the keys that order sorts by.
type candidate struct {
	node   int
	rank   int
	domain uint64
	hash   uint64
}

// order sorts candidates: first nodes that retry, then canaries, then one node
// of each machine kind without a canary, then domain by domain. Inside a domain
// the order is a hash that includes the revision, so that it differs between
// revisions. The controller's own node comes last.
func (d *planner) order(nodes []int) []int {
	all := make([]candidate, len(nodes))
	for k, i := range nodes {
		n := &d.nodes[i]
		all[k] = candidate{node: i, rank: 2, domain: d.hash(n.Domain), hash: d.hash(n.Name)}
		switch {
		case d.isBeingEmptied(n):
			all[k].rank = -2 // a person has done what the message asked for
		case d.States[i] == Failed:
			all[k].rank = -1
		case d.States[i] == Blocked:
			all[k].rank = 4 // after nodes that have not been offered the target
		case n.Last:
			all[k].rank = 3
		case n.Canary:
			all[k].rank = 0
		}
	}

	d.prioritizeKinds(all)
	slices.SortFunc(all, func(a, b candidate) int {
		if c := cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.domain, b.domain), cmp.Compare(a.hash, b.hash)); c != 0 {
			return c // without a comparison of the names
		}

		return cmp.Compare(d.nodes[a.node].Name, d.nodes[b.node].Name)
	})
	for k := range all {
		nodes[k] = all[k].node
	}

	return nodes
}

// prioritizeKinds moves one candidate forward for each machine kind of which no
// node has the target or is a canary.
func (d *planner) prioritizeKinds(all []candidate) {
	taken := map[string]bool{} // a node has the target or is a canary
	for i := range d.nodes {
		if d.hasTarget(&d.nodes[i]) {
			taken[d.nodes[i].MachineKind] = true
		}
	}

	for _, c := range all {
		if c.rank <= 0 {
			taken[d.nodes[c.node].MachineKind] = true
		}
	}

	first := map[string]*candidate{}
	for k := range all {
		c, kind := &all[k], d.nodes[all[k].node].MachineKind
		if best := first[kind]; c.rank == 2 && !taken[kind] && (best == nil || c.hash < best.hash) {
			first[kind] = c
		}
	}

	for _, c := range first {
		c.rank = 1
	}
}

// hash combines a name with the revision.
func (d *planner) hash(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(d.in.Target.ConfigMapRef.SHA256[:min(12, len(d.in.Target.ConfigMapRef.SHA256))]))
	h.Write([]byte(name))
	x := h.Sum64() // still similar for names that differ only in the last letter
	x = (x ^ x>>33) * 0xff51afd7ed558ccd

	return x ^ x>>33
}
