// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// MaxUnanswered is how many preflight requests may be unanswered in the fleet
// at the same time.
const MaxUnanswered = 500

// MaxPreflightGroups is how many groups a result has at most, as in the API.
const MaxPreflightGroups = 10

const (
	maxPreflightNames = 10 // of a group
	maxRefusalReason  = 64 // in characters
	maxRefusalMessage = 1024
)

// PreflightUID returns the UID of the requests about an attempt at a revision.
// It is the same for all nodes, and for every controller, so that asking twice
// has no effect.
func PreflightUID(rollout types.UID, revision, attempt int64) string {
	return fmt.Sprintf("%s-%d-%d", rollout, revision, attempt)
}

// Preflight is what a NodeConfig says about preflight requests.
type Preflight struct {
	Asked    string                    // the UID of the newest request; empty: there is none
	AskedAt  time.Time                 // when the controller wrote it
	Answered string                    // the UID of the request that the agent answered last
	Verdict  v1alpha1.PreflightVerdict // the answer
	Reason   string                    // of a refusal, in CamelCase
	Message  string
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

// Evaluate counts the answers, and returns the nodes to ask now and after which
// time to call it again, even without a change. No node is asked twice. A node
// that was created after the start does not take part, so that a preflight
// ends.
func (q Inquiry) Evaluate(started time.Time, nodes []Node) (r v1alpha1.PreflightResult, ask []int, again time.Duration) {
	r.StartTime = metav1.NewTime(started)
	wait := func(d time.Duration) {
		if again == 0 || d < again {
			again = d
		}
	}
	groups := map[[3]string]*v1alpha1.PreflightGroup{}
	pending, candidates := 0, []int(nil)
	for i := range nodes {
		n := &nodes[i]
		p := &n.Preflight
		switch {
		case !q.TakesPart(n), n.Created.After(started):
			continue
		case p.Answered == q.UID:
			countAnswer(&r, groups, n)
			continue
		case q.Runs(n):
			r.Accepted++
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
		r.EndTime = apiTime(q.Now)
	case len(ask) > 0:
		wait(q.Timeout)
	case pending == 0:
		wait(busyInterval)
	}

	for _, g := range groups {
		r.Groups = append(r.Groups, *g)
	}

	last := map[v1alpha1.PreflightVerdict]int{v1alpha1.PreflightAccepted: 1} // no refusal is left out for what nodes accept
	slices.SortFunc(r.Groups, func(a, b v1alpha1.PreflightGroup) int {
		return cmp.Or(cmp.Compare(last[a.Verdict], last[b.Verdict]), cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Verdict, b.Verdict),
			cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
	r.Groups = slices.Clip(r.Groups[:min(len(r.Groups), MaxPreflightGroups)])

	return r, ask, again
}

// countAnswer counts the answer of a node.
func countAnswer(r *v1alpha1.PreflightResult, groups map[[3]string]*v1alpha1.PreflightGroup, n *Node) {
	p := &n.Preflight
	verdict, effects := p.Verdict, ""
	switch {
	case verdict == v1alpha1.PreflightAccepted:
		r.Accepted++
		if effects = p.Message; effects == "" { // an agent that cannot tell what changes
			return
		}
	case verdict == v1alpha1.PreflightRefused && aboutPods(p.Reason):
		r.Blocked++
	case verdict == v1alpha1.PreflightRefused:
		r.Refused++
	default:
		verdict = v1alpha1.PreflightUnknown
		r.Unknown++
	}

	key := [3]string{string(verdict), p.Reason, effects}
	g := groups[key]
	if g == nil {
		g = &v1alpha1.PreflightGroup{
			Verdict: verdict, Reason: printable.Cut(p.Reason, maxRefusalReason), Message: printable.Cut(p.Message, maxRefusalMessage),
		}
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
	return reason == v1alpha1.ReasonWouldEvictPods || reason == v1alpha1.ReasonRestartWouldEvictPods || reason == v1alpha1.ReasonNeedsDrain
}

// PreflightWaits reports whether the agent of a node still has to answer its
// newest request, and whether it is not too late.
func (n *Node) PreflightWaits(now time.Time, timeout time.Duration) bool {
	p := &n.Preflight
	return p.Asked != "" && p.Asked != p.Answered && now.Before(p.AskedAt.Add(timeout)) && p.AskedAt.Before(now.Add(timeout))
}

// preflight asks the agents of all members whether they accept the target,
// before any node is assigned it in this attempt. A rollout that enables
// preflight later asks then. Nodes that join later are not asked.
func (d *planner) preflight() {
	was, revision := d.Next.Preflight, d.in.Target.Number
	if was != nil && was.EndTime != nil {
		if !d.succeeded && !d.stopped() && !d.begunAttempt() {
			d.checkPreflight(was) // Require may be newer than the result
		}

		return
	}

	if mode := d.in.Spec.Strategy.Preflight; mode != v1alpha1.PreflightReport && mode != v1alpha1.PreflightRequire {
		d.Next.Preflight = nil
		return
	}

	if revision == 0 || d.succeeded || d.stopped() || was == nil && d.Counts.Members == 0 {
		return
	}

	started := d.in.Now
	if was != nil {
		started = was.StartTime.Time
	}

	q := Inquiry{
		UID: PreflightUID(d.in.UID, revision, d.Next.Attempt), Now: d.in.Now, Outages: d.in.Outages,
		Timeout: d.in.Controller.AgentTimeout.Duration, Room: d.in.PreflightRoom,
		TakesPart: func(n *Node) bool { return n.Owner == "" && n.OtherSource == "" && !n.manual() },
		Runs:      func(n *Node) bool { return d.hasTarget(n) && d.proven(n) && n.OK != "False" },
		Busy:      func(*Node) bool { return false }, // the newer request counts
	}
	r, ask, again := q.Evaluate(started, d.nodes)
	d.Next.Preflight, d.Ask = &r, ask
	if again > 0 {
		d.requeueAt(d.in.Now.Add(again))
	}
	if was == nil {
		d.event(false, "PreflightStarted", "revision %d: all agents are asked whether they accept it", revision)
	}

	if r.EndTime == nil {
		d.asking = true
		return
	}

	d.event(r.Refused > 0, "PreflightComplete", "revision %d: %s", revision, PreflightSummary(&r))
	d.checkPreflight(&r)
}

// checkPreflight stops the target if too many nodes refuse it.
func (d *planner) checkPreflight(r *v1alpha1.PreflightResult) {
	if d.in.Spec.Strategy.Preflight == v1alpha1.PreflightRequire && r.Refused >= d.limit() {
		message := fmt.Sprintf("%s refused it in the preflight (limit %d): %s; no node was assigned it in this attempt",
			printable.Count(r.Refused, "node"), d.limit(), refusalReasons(r))
		d.halt(v1alpha1.HaltPreflightRefused, message, false) // nothing to roll back
	}
}

// begunAttempt reports whether a node was assigned the target in this attempt.
func (d *planner) begunAttempt() bool {
	return slices.ContainsFunc(d.nodes, func(n Node) bool { return d.hasTarget(&n) && n.Source.By().Attempt == d.Next.Attempt })
}

// isConfigMap reports whether a source is a ConfigMap, and not local or none.
func isConfigMap(s *v1alpha1.NodeConfigSource) bool { return s != nil && s.ConfigMapRef != nil }

// manual reports whether a person set the node's configuration.
func (n *Node) manual() bool { return n.Source != nil && n.Source.By().Name == "" }

// outside reports whether a selected node in this state is no member: the
// rollout does not decide what it runs.
func (n *Node) outside(s State) bool { return s == Conflicted || s == Manual || n.OtherSource != "" }

// preflightMessage says how far a preflight is, and until when it lasts.
func (d *planner) preflightMessage() string {
	r := d.Next.Preflight
	all := r.Accepted + r.Refused + r.Blocked + r.Unknown + r.Unanswered
	return fmt.Sprintf("preflight of %s so far: %s; no node is assigned the revision until all agents have answered or had %s to do so",
		printable.Count(all, "node"), PreflightSummary(r), d.in.Controller.AgentTimeout.Duration)
}

// PreflightSummary counts the answers in one sentence.
func PreflightSummary(r *v1alpha1.PreflightResult) string {
	out := printable.Count(r.Accepted, "node") + " " + printable.Verb(int(r.Accepted), "accepts", "accept")
	if r.Refused > 0 {
		out += fmt.Sprintf(", %d refused: %s", r.Refused, refusalReasons(r))
	}

	for _, x := range []struct {
		n    int32
		what string
	}{
		{r.Blocked, "blocked by pods"}, {r.Unknown, "cannot tell"}, {r.Unanswered, "without an answer"},
	} {
		if x.n > 0 {
			out += fmt.Sprintf(", %d %s", x.n, x.what)
		}
	}

	return out
}

// refusalReasons counts the refusals for other reasons than pods, and names the
// first nodes of each.
func refusalReasons(r *v1alpha1.PreflightResult) string {
	var out []string
	for _, g := range r.Groups {
		if g.Verdict == v1alpha1.PreflightRefused && !aboutPods(g.Reason) {
			out = append(out, fmt.Sprintf("%d %s (%s)", g.Nodes, g.Reason, joinNames(g.Examples)))
		}
	}

	return strings.Join(out, ", ")
}
