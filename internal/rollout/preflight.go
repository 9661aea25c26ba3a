package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// PreflightMode decides whether the agents judge the target before any node is assigned it.
type PreflightMode uint8

// The modes, as the API defines them.
const (
	PreflightOff     PreflightMode = iota
	PreflightReport                // ask all nodes, and continue whatever they answer
	PreflightRequire               // stop the target if too many nodes refuse it
)

// Verdicts of agents, as the API defines them. Every other verdict counts as Unknown.
const (
	VerdictAccepted = "Accepted"
	VerdictRefused  = "Refused"
	VerdictUnknown  = "Unknown"
)

// MaxUnanswered is how many preflight requests may be unanswered in the fleet at the same time.
const MaxUnanswered = 500

const (
	maxPreflightGroups = 10 // of a result; the same limits as in the API
	maxPreflightNames  = 10 // of a group
)

// PreflightUID returns the UID of the requests about an attempt at a revision. It is the same for all nodes, and for every
// controller, so that asking twice has no effect.
func PreflightUID(rollout string, revision, attempt int64) string {
	return fmt.Sprintf("%s-%d-%d", rollout, revision, attempt)
}

// Preflight is what a NodeConfig says about preflight requests.
type Preflight struct {
	Able     bool      // the agent can answer
	Asked    string    // the UID of the newest request; empty: there is none
	AskedAt  time.Time // when the controller wrote it
	Answered string    // the UID of the request that the agent answered last
	Verdict  string    // the answer
	Reason   string    // of a refusal, in CamelCase
	Message  string
}

// PreflightResult counts the answers to the requests of one preflight. Every node that takes part is in one of the counts.
type PreflightResult struct {
	Started time.Time
	Ended   time.Time // when all nodes had answered or were too late; zero: not yet. From then on, nothing changes.

	Accepted    int
	Refused     int // for another reason than the node's pods
	Blocked     int // because of the node's pods
	Unknown     int // the agent cannot tell
	Unanswered  int // not yet, or too late; also nodes that are NotReady or have no agent, which are not asked
	Unsupported int // the agent is too old to answer

	Groups           []PreflightGroup // most nodes first
	UnansweredNodes  []string         // the first few
	UnsupportedNodes []string
}

// PreflightGroup are nodes that do not accept a revision for the same reason.
type PreflightGroup struct {
	Verdict, Reason string
	Message         string // of the first node
	Nodes           int
	Examples        []string // the first few
}

// Inquiry decides whom to ask in one preflight.
type Inquiry struct {
	UID     string // of the requests
	Now     time.Time
	Outages Outages       // that this leader knows
	Timeout time.Duration // for an agent to answer
	Room    int           // how many requests of this preflight may be unanswered at the same time

	TakesPart func(n *Node) bool
	Runs      func(n *Node) bool // it runs the revision, and accepts it without being asked
	Busy      func(n *Node) bool // it still has to answer another request, or the answer is still needed
}

// busyInterval is how long an inquiry waits for other requests to be answered.
const busyInterval = 2 * time.Second

// Evaluate counts the answers, and returns the nodes to ask now and after which time to call it again, even without a change.
// No node is asked twice. A node that was created after the start does not take part, so that a preflight ends.
func (q Inquiry) Evaluate(started time.Time, nodes []Node) (r PreflightResult, ask []int, again time.Duration) {
	r.Started = started
	wait := func(d time.Duration) {
		if again == 0 || d < again {
			again = d
		}
	}
	groups := map[[2]string]*PreflightGroup{}
	pending, candidates := 0, []int(nil)
	for i := range nodes {
		n := &nodes[i]
		p := &n.Preflight
		switch {
		case !q.TakesPart(n), n.Created.After(started):
			continue
		case p.Answered == q.UID:
			r.countAnswer(groups, n)
			continue
		case q.Runs(n):
			r.Accepted++
			continue
		case n.HasConfig && n.Reported && !p.Able:
			r.Unsupported++
			addName(&r.UnsupportedNodes, n.Name)
			continue
		}
		r.Unanswered++
		addName(&r.UnansweredNodes, n.Name)
		switch {
		case p.Asked == q.UID:
			asked := p.AskedAt
			if asked.After(q.Now.Add(q.Timeout)) { // the controller writes no such time
				asked = started
			}
			if left := q.Outages.Deadline(asked, q.Timeout, q.Timeout).Sub(q.Now); left > 0 {
				pending++
				wait(left)
			}
		case !n.Ready || !n.Reported: // it cannot answer
		default:
			candidates = append(candidates, i)
		}
	}
	for _, i := range candidates {
		if pending+len(ask) < q.Room && !q.Busy(&nodes[i]) {
			ask = append(ask, i)
		}
	}
	switch {
	case pending+len(candidates) == 0:
		r.Ended = q.Now
	case len(ask) > 0:
		wait(q.Timeout)
	case pending == 0:
		wait(busyInterval)
	}
	r.Groups = slices.SortedFunc(func(yield func(PreflightGroup) bool) {
		for g := range maps.Values(groups) {
			if !yield(*g) {
				return
			}
		}
	}, func(a, b PreflightGroup) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Verdict, b.Verdict), cmp.Compare(a.Reason, b.Reason))
	})
	r.Groups = slices.Clip(r.Groups[:min(len(r.Groups), maxPreflightGroups)])
	return r, ask, again
}

// countAnswer counts the answer of a node.
func (r *PreflightResult) countAnswer(groups map[[2]string]*PreflightGroup, n *Node) {
	p := &n.Preflight
	verdict := VerdictUnknown
	switch {
	case p.Verdict == VerdictAccepted:
		r.Accepted++
		return
	case p.Verdict == VerdictRefused && aboutPods(p.Reason):
		verdict = VerdictRefused
		r.Blocked++
	case p.Verdict == VerdictRefused:
		verdict = VerdictRefused
		r.Refused++
	default:
		r.Unknown++
	}
	key := [2]string{verdict, p.Reason}
	g := groups[key]
	if g == nil {
		g = &PreflightGroup{Verdict: verdict, Reason: p.Reason, Message: p.Message}
		groups[key] = g
	}
	g.Nodes++
	addName(&g.Examples, n.Name)
}

func addName(list *[]string, name string) {
	if len(*list) < maxPreflightNames {
		*list = append(*list, name)
	}
}

// aboutPods reports whether a reason of a refusal is one of the pod guard.
func aboutPods(reason string) bool {
	return reason == agentEvicts || reason == agentRestartEvicts || reason == agentNeedsDrain
}

// PreflightWaits reports whether the agent of a node still has to answer its newest request, and whether it is not too late.
func (n *Node) PreflightWaits(now time.Time, timeout time.Duration) bool {
	p := &n.Preflight
	return p.Able && p.Asked != "" && p.Asked != p.Answered && now.Before(p.AskedAt.Add(timeout)) && p.AskedAt.Before(now.Add(timeout))
}

// preflight asks the agents of all members whether they accept the target, before any node is assigned it in this attempt. A
// rollout that enables preflight later asks then. Nodes that join later are not asked.
func (d *planner) preflight() {
	was := d.next.Preflight
	if was != nil && !was.Ended.IsZero() {
		if !d.next.Succeeded && !d.stopped() && !d.begunAttempt() {
			d.checkPreflight(was) // Require may be newer than the result
		}
		return
	}
	if d.p.Preflight == PreflightOff {
		d.next.Preflight = nil
		return
	}
	if d.next.Revision == 0 || d.next.Succeeded || d.stopped() || was == nil && d.counts.Members == 0 {
		return
	}
	started := d.p.Now
	if was != nil {
		started = was.Started
	}
	q := Inquiry{
		UID: PreflightUID(d.p.UID, d.next.Revision, d.next.Attempt), Now: d.p.Now, Outages: d.p.Outages, Timeout: d.p.AgentTimeout, Room: d.p.PreflightRoom,
		TakesPart: func(n *Node) bool { return n.Owner == "" && n.OtherSource == "" && !n.manual() },
		Runs:      func(n *Node) bool { return d.hasTarget(n) && d.proven(n) && n.OK != "False" },
		Busy:      func(*Node) bool { return false }, // the newer request counts
	}
	r, ask, again := q.Evaluate(started, d.nodes)
	d.next.Preflight, d.ask = &r, ask
	if again > 0 {
		d.requeueAt(d.p.Now.Add(again))
	}
	if was == nil {
		d.event(false, "PreflightStarted", "revision %d: all agents are asked whether they accept it", d.next.Revision)
	}
	if r.Ended.IsZero() {
		d.asking = true
		return
	}
	d.event(r.Refused > 0, "PreflightComplete", "revision %d: %s", d.next.Revision, r.Summary())
	d.checkPreflight(&r)
}

// checkPreflight stops the target if too many nodes refuse it.
func (d *planner) checkPreflight(r *PreflightResult) {
	if d.p.Preflight == PreflightRequire && r.Refused >= d.limit() {
		message := fmt.Sprintf("%s refused it in the preflight (limit %d): %s; no node was assigned it in this attempt", plural(r.Refused, "node"), d.limit(), r.reasons())
		d.halt(HaltPreflightRefused, message, false) // nothing to roll back
	}
}

// begunAttempt reports whether a node was assigned the target in this attempt.
func (d *planner) begunAttempt() bool {
	return slices.ContainsFunc(d.nodes, func(n Node) bool { return d.hasTarget(&n) && n.Source.Attempt == d.next.Attempt })
}

// manual reports whether a person set the node's configuration.
func (n *Node) manual() bool { return n.Source.Kind != SourceNone && n.Source.Rollout == "" }

// preflightMessage says how far a preflight is, and until when it lasts.
func (d *planner) preflightMessage() string {
	r := d.next.Preflight
	all := r.Accepted + r.Refused + r.Blocked + r.Unknown + r.Unanswered + r.Unsupported
	return fmt.Sprintf("preflight of %s so far: %s; no node is assigned the revision until all agents have answered or had %s to do so", plural(all, "node"), r.Summary(), d.p.AgentTimeout)
}

// Summary counts the answers in one sentence.
func (r *PreflightResult) Summary() string {
	accepts := "nodes accept"
	if r.Accepted == 1 {
		accepts = "node accepts"
	}
	out := fmt.Sprintf("%d %s", r.Accepted, accepts)
	if r.Refused > 0 {
		out += fmt.Sprintf(", %d refused: %s", r.Refused, r.reasons())
	}
	for _, x := range []struct {
		n    int
		what string
	}{
		{r.Blocked, "blocked by pods"}, {r.Unknown, "cannot tell"}, {r.Unanswered, "without an answer"}, {r.Unsupported, "with an agent that is too old to answer"},
	} {
		if x.n > 0 {
			out += fmt.Sprintf(", %d %s", x.n, x.what)
		}
	}
	return out
}

// reasons counts the refusals for other reasons than pods, and names the first nodes of each.
func (r *PreflightResult) reasons() string {
	var out []string
	for _, g := range r.Groups {
		if g.Verdict == VerdictRefused && !aboutPods(g.Reason) {
			names := strings.Join(g.Examples[:min(len(g.Examples), maxNames)], ", ")
			if left := g.Nodes - min(len(g.Examples), maxNames); left > 0 {
				names += fmt.Sprintf(" and %d more", left)
			}
			out = append(out, fmt.Sprintf("%d %s (%s)", g.Nodes, g.Reason, names))
		}
	}
	return strings.Join(out, ", ")
}
