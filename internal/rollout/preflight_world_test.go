// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// request is what a preflight request is about.
type request struct {
	content string
	attempt int64
}

// ask writes the preflight requests of a result.
func (w *world) ask(r Result) {
	uid := PreflightUID(w.in.UID, w.in.Target.Number, r.Next.Attempt)
	w.requests[uid] = request{w.in.Target.ConfigMapRef.SHA256, r.Next.Attempt}
	for _, i := range r.Ask {
		p := &w.nodes[i].Preflight
		p.Asked, p.AskedAt = uid, w.now
	}
}

// judge answers a preflight request without adopting anything.
func (a *agent) judge(n *Node, r request) {
	p := &n.Preflight
	if p.Asked == p.Answered {
		return
	}

	*p = Preflight{Asked: p.Asked, AskedAt: p.AskedAt, Answered: p.Asked, Verdict: v1alpha1.PreflightRefused}
	refusal, refuses := refusals[a.does[r.content]]
	switch does := a.does[r.content]; {
	case a.bad[r.content] >= r.attempt:
		p.Reason, p.Message = "CrashLooped", "it is bad"
	case does == "reject":
		p.Reason, p.Message = "ValidationFailed", r.content+" failed"
	case does == "unsure":
		p.Verdict, p.Reason, p.Message = v1alpha1.PreflightUnknown, "ValidationUnavailable", "the dry run did not end"
	case n.Active.Digest() == r.content:
		p.Verdict = v1alpha1.PreflightAccepted
	case refuses:
		p.Reason, p.Message = refusal.reason, refusal.message
	default:
		p.Verdict = v1alpha1.PreflightAccepted
	}
}

// asked is the referee's own record of a preflight: it never calls the
// planner's functions.
type asked struct {
	began time.Time
	at    map[string]time.Time // when nodes were asked
	left  int                  // nodes that could still answer when it ended
}

// refereePreflight holds requests and assignments of one plan against the
// rules. old are the nodes before the plan.
func (w *world) refereePreflight(t *rapid.T, r Result, old []Node) {
	p := &w.in
	key := attempt{w.in.Target.Number, r.Next.Attempt}
	uid := PreflightUID(p.UID, key.revision, key.attempt)
	assert.Must(t, len(r.Ask) == 0 || p.Spec.Strategy.Preflight != v1alpha1.PreflightOff && !p.Spec.Paused && !p.Spec.Frozen && p.Invalid == "" && r.Next.Halt == nil,
		"nodes are asked although nothing may happen: %+v", r.Next.Message)
	is := w.asked[key]
	if is == nil {
		is = &asked{began: w.now, at: map[string]time.Time{}}
	}

	for _, i := range r.Ask {
		n := &old[i]
		if w.asked[key] == nil {
			w.asked[key] = is
		}

		switch {
		case !is.at[n.Name].IsZero():
			t.Fatalf("%s is asked twice about %+v", n.Name, key)
		case foreign(n) || !n.Ready:
			t.Fatalf("%s is asked, but is not the rollout's or cannot answer: %+v", n.Name, n)
		}

		is.at[n.Name] = w.now
	}

	unanswered, refused, members := 0, 0, 0
	for _, n := range each(old) {
		if foreign(n) {
			continue
		}

		members++
		if n.Created.After(is.began) { // a new machine
			continue
		}

		at, was := is.at[n.Name]
		answered := n.Preflight.Answered == uid
		if was && !answered && w.now.Before(at.Add(p.Controller.AgentTimeout.Duration)) {
			unanswered++
		}
		if answered && n.Preflight.Verdict == v1alpha1.PreflightRefused && n.Preflight.Reason != "WouldEvictPods" {
			refused++
		}
	}

	assert.Must(t, len(r.Ask) == 0 || unanswered <= p.PreflightRoom, "%d requests are unanswered, %d may be", unanswered, p.PreflightRoom)
	if was := w.in.Status.Preflight; was == nil || was.EndTime == nil {
		is.left = unanswered // a node that another rollout has returned since then is not waited for
	}

	for _, m := range r.Moves {
		n := &old[m.Node]
		given := w.hasTarget(n) // its ConfigMap was created again
		if m.Kind != Assign || given || p.Spec.Strategy.Preflight == v1alpha1.PreflightOff || r.Succeeded() || r.Next.Preflight == nil {
			continue
		}

		assert.Must(t, w.asked[key] == nil || is.left <= 0 || unanswered <= 0,
			"%s is assigned the revision while %d agents may still answer", n.Name, unanswered)
	}

	// Answers after the end come too late.
	ends := r.Next.Preflight != nil && TimeOf(r.Next.Preflight.EndTime).Equal(w.now) && (w.in.Status.Preflight == nil || w.in.Status.Preflight.EndTime == nil)
	most := max(1, int(RoundUp(p.Spec.FailurePolicy.MaxFailures, int32(members))))
	stopped := r.Next.Halt != nil && r.Next.Halt.Reason == v1alpha1.HaltPreflightRefused
	assert.Must(t, !ends || p.Spec.Strategy.Preflight != v1alpha1.PreflightRequire || (refused >= most) == stopped,
		"%d of %d nodes refused the revision (limit %d), and the stop is %+v", refused, members, most, r.Next.Halt)
	if s := r.Next.Preflight; s != nil {
		sum := s.Accepted + s.Refused + s.Blocked + s.Unknown + s.Unanswered
		assert.Must(t, int(sum) <= len(w.agents), "the answers of %d nodes add up to %d", len(w.nodes), sum)
	}
}

// TestPreflightsEnd whatever agents do: the time is bounded by the number of
// nodes and the room for requests.
func TestPreflightsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := randomWorld(t)
		w.in.Spec.Strategy.Preflight = v1alpha1.PreflightReport
		w.in.PreflightRoom = rapid.IntRange(1, 10).Draw(t, "room")
		for _, a := range w.agents {
			a.silent = rapid.Bool().Draw(t, "silent")
		}

		w.target("r1")
		most := time.Duration(len(w.nodes)/w.in.PreflightRoom+1) * (w.in.Controller.AgentTimeout.Duration + 10*time.Second)
		for w.now = epoch; ; w.now = w.now.Add(10 * time.Second) {
			w.act()
			r := w.plan()
			s := r.Next.Preflight
			assert.Must(t, s != nil, "no node was asked")
			if s.EndTime != nil {
				break
			}

			assert.Must(t, len(r.Moves) == 0, "nodes move before the preflight is over: %+v", r.Moves)
			assert.Must(t, w.now.Sub(epoch) <= most, "it does not end within %s: %s", most, r.Next.Message)
			assert.Must(t, r.RequeueAfter != 0, "nothing ends it")
		}
	})
}
