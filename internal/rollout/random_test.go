// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// TestRandomFleetsKeepTheInvariants lets the fleets of one or two rollouts and
// their operators do what they like, and has a referee look at every plan.
func TestRandomFleetsKeepTheInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		worlds := []*world{randomWorld(t)}
		if rapid.Bool().Draw(t, "two rollouts") {
			worlds = append(worlds, randomWorld(t))
			worlds[1].in.Name, worlds[1].in.DrainID = "others", "id-of-others"
		}

		for range rapid.IntRange(5, 60).Draw(t, "passes") {
			var now time.Time
			for k, w := range worlds {
				for range rapid.IntRange(0, 2).Draw(t, "happenings") {
					w.happen(t)
				}

				w.act()
				if len(worlds) == 2 {
					w.in.ControlPlanes = worlds[1-k].controlPlanes()
				}

				w.startupRight(t)
				w.settle(t)
				w.evaluate(w.last.Measure)
				now = Latest(now, w.now)
			}

			now = now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds"))*time.Second + time.Duration(rapid.IntRange(0, 9).Draw(t, "tenths"))*time.Second/10)
			for _, w := range worlds {
				w.now = now
			}
		}
	})
}

// TestEveryHealthyFleetCompletes holds whatever the steps and the budgets are.
func TestEveryHealthyFleetCompletes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := randomWorld(t)
		for _, a := range w.agents {
			clear(a.does)
		}

		s := &w.in.Spec.Strategy
		s.DrainOptions.TimeoutSeconds += 60
		for _, a := range []**intstr.IntOrString{&s.MaxUnavailable, &s.MaxUnavailablePerDomain} {
			if *a != nil && RoundUp(*a, 100) == 0 {
				*a = number(1)
			}
		}

		if len(w.in.Windows) > 0 { // at least one that a trial fits in
			w.in.Windows = append(w.in.Windows, Window{repeating{0, time.Hour}, 10 * time.Minute, true})
		}

		for budget := range w.disruptable { // each node's pods fit
			w.disruptable[budget] = max(w.disruptable[budget], 3)
		}

		w.target("r1")
		w.in.Spec.Approval = &v1alpha1.RolloutApproval{Revision: 1, Step: rapid.Int32Range(0, 9).Draw(t, "approved")}
		for pass := 0; ; pass++ {
			w.act()
			r := w.plan()
			if r.Next.Phase == v1alpha1.RolloutComplete {
				break
			}
			if r.Next.Phase == v1alpha1.RolloutAwaitingApproval {
				w.in.Spec.Approval.Step = r.Next.Step
			}

			assert.Must(t, pass != 5000*(1+5*len(w.in.Windows)), "it does not complete: %s: %s", r.Next.Phase, r.Next.Message)
			assert.Must(t, r.Next.Halt == nil, "it was stopped: %s", r.Next.Message)
			w.now = w.now.Add(10 * time.Second)
		}

		for _, n := range w.nodes {
			assert.Must(t, n.LastKnownGood.Digest() == "r1", "%s was left behind", n.Name)
		}
	})
}

func randomWorld(t *rapid.T) *world {
	w := newWorld()
	p := &w.in
	amount := func(name string, least, divisor int) *intstr.IntOrString {
		n, percentage := rapid.IntRange(0, 100).Draw(t, name), rapid.Bool().Draw(t, name+" is a percentage")
		if percentage {
			return percent(max(least, n))
		}

		return number(max(least, n/divisor))
	}
	w.add(rapid.IntRange(1, 25).Draw(t, "nodes"), rapid.IntRange(1, 4).Draw(t, "zones"))
	p.Spec.Strategy.MaxUnavailable = amount("maxUnavailable", 0, 10)
	if rapid.Bool().Draw(t, "per domain") {
		p.Spec.Strategy.MaxUnavailablePerDomain = amount("maxUnavailablePerDomain", 0, 1)
	}
	if rapid.Bool().Draw(t, "joining has a budget") {
		p.Spec.Strategy.MaxJoining = amount("maxJoining", 0, 20)
	}
	if n := rapid.IntRange(0, 3).Draw(t, "maxDomainsInFlight"); n > 0 {
		p.Spec.Strategy.MaxDomainsInFlight = new(int32(n))
	}

	p.Spec.FailurePolicy.MaxFailures = number(rapid.IntRange(1, 4).Draw(t, "maxFailures"))
	p.Spec.FailurePolicy.Action = map[bool]v1alpha1.FailureAction{true: v1alpha1.FailureActionRollback}[rapid.Bool().Draw(t, "rollback")]
	p.Spec.Strategy.Drain = rapid.SampledFrom([]v1alpha1.DrainMode{v1alpha1.DrainNever, v1alpha1.DrainNever, v1alpha1.DrainWhenBlocked, v1alpha1.DrainAlways}).Draw(t, "drain")
	p.Spec.Strategy.DrainOptions.TimeoutSeconds = rapid.Int32Range(10, 300).Draw(t, "drain timeout")
	p.Spec.SoakSeconds = rapid.Int32Range(0, 120).Draw(t, "soak")
	w.randomWindows(t)
	w.randomBudgets(t)
	p.Spec.Strategy.Steps = nil
	for range rapid.IntRange(1, 5).Draw(t, "steps") {
		step := v1alpha1.RolloutStep{}
		if rapid.IntRange(0, 3).Draw(t, "step") > 0 {
			step.Nodes = amount("nodes of step", 1, 1)
		} else if step.Pause = (&v1alpha1.RolloutPause{}); rapid.IntRange(0, 3).Draw(t, "it ends") > 0 {
			step.Pause.Duration = &metav1.Duration{Duration: time.Duration(rapid.IntRange(1, 3).Draw(t, "minutes")) * time.Minute}
		}

		p.Spec.Strategy.Steps = append(p.Spec.Strategy.Steps, step)
	}

	p.Spec.Strategy.Preflight = rapid.SampledFrom([]v1alpha1.PreflightMode{v1alpha1.PreflightOff, v1alpha1.PreflightReport, v1alpha1.PreflightRequire}).Draw(t, "preflight")
	p.PreflightRoom = rapid.IntRange(1, 30).Draw(t, "preflightRoom")
	w.randomGates(t)
	p.ReadsPods = rapid.Bool().Draw(t, "static pods are read")
	for _, n := range each(w.nodes) {
		n.Canary = rapid.IntRange(0, 9).Draw(t, "canary") == 0
		n.ControlPlane = rapid.IntRange(0, 3).Draw(t, "control plane") == 0
		n.MachineKind = rapid.SampledFrom([]string{"amd64", "arm64"}).Draw(t, "stratum")
		for _, content := range contents {
			if ends := rapid.SampledFrom([]string{"", "", "", "", "reject", "unsure", "crash", "hang", "notready", "evict", "evict"}).Draw(t, "ends"); ends != "" {
				w.agents[n.Name].does[content] = ends
			}
		}
	}

	return w
}

var contents = []string{"r1", "r2", "r3"}

// happen does one thing to the world.
func (w *world) happen(t *rapid.T) {
	p := &w.in
	n := &w.nodes[rapid.IntRange(0, len(w.nodes)-1).Draw(t, "node")]
	a := w.agents[n.Name]
	yes := rapid.Bool().Draw(t, "yes")
	switch what := rapid.IntRange(0, 30).Draw(t, "what"); what {
	case 23, 24:
		w.setMaintenance(n, rapid.SampledFrom([]string{"", Cordoned, "condition MaintenanceInProgress"}).Draw(t, "maintenance"))
	case 25: // an announced reboot
		if n.Ready {
			w.setMaintenance(n, Cordoned)
			w.now = w.now.Add(time.Second)
			w.setNotReady(n, true)
		}
	case 21: // what hinders a drain
		a.stays, a.refused, a.ignored = "", "", false
		switch rapid.IntRange(0, 5).Draw(t, "hindrance") {
		case 0:
			a.stays = "its budget allows no disruption"
		case 1:
			a.refused = "a pod without a controller"
		case 2:
			a.ignored = true
		}
	case 22:
		p.Spec.Strategy.Drain = rapid.SampledFrom([]v1alpha1.DrainMode{v1alpha1.DrainNever, v1alpha1.DrainWhenBlocked, v1alpha1.DrainAlways}).Draw(t, "drain")
	case 0, 1:
		w.target(rapid.SampledFrom(contents).Draw(t, "content"))
	case 2:
		p.Spec.Paused = yes
	case 3:
		p.Spec.Frozen = yes
	case 4:
		p.Spec.Abort = &v1alpha1.RolloutAbort{Revision: p.Target.Number, Rollback: yes}
	case 5:
		p.Spec.Abort, p.Spec.Retry = nil, &v1alpha1.RolloutRetry{Revision: p.Target.Number, Attempt: w.in.Status.Attempt + 1}
	case 6:
		p.Spec.Approval = &v1alpha1.RolloutApproval{Revision: p.Target.Number, Step: rapid.Int32Range(0, 5).Draw(t, "step")}
	case 7:
		w.add(1, 2)
		for range rapid.IntRange(0, 3).Draw(t, "more") {
			w.add(1, 2)
		}

		for i := range w.nodes {
			if n := &w.nodes[i]; len(w.agents)-i <= 4 && n.Created.Equal(w.now.Add(-time.Hour)) && n.Source == nil {
				n.Created, n.Idle = w.now, rapid.Bool().Draw(t, "idle")
				w.agents[n.Name].does["r1"] = rapid.SampledFrom([]string{"", "crash"}).Draw(t, "joins with")
			}
		}
	case 8:
		p.Spec.NewNodes = map[bool]v1alpha1.NewNodes{true: v1alpha1.NewNodesTarget}[yes]
	case 9:
		p.LastSucceededGone = yes && p.LastSucceeded.Number != 0
	case 10, 11:
		if n.Ready != yes {
			w.setNotReady(n, !yes)
		}
	case 12, 13:
		a.silent = yes
	case 14:
		n.OtherSource = map[bool]v1alpha1.RemoteConfig{true: v1alpha1.RemoteConfigDisabled}[yes]
	case 16: // a machine is created again under its name
		n.Created = w.now
		w.setNotReady(n, true)
	case 17: // its NodeConfig was deleted
		n.Source, n.Revoked, n.Generation, n.Observed = nil, nil, 1, 1
		delete(w.refused, n.Name)
		delete(w.joinInProgress, n.Name)
	case 19, 20: // its pods have changed
		maps.DeleteFunc(a.does, func(_, ends string) bool { return ends == "evict" })
	case 26:
		p.Spec.Strategy.Preflight = rapid.SampledFrom([]v1alpha1.PreflightMode{v1alpha1.PreflightOff, v1alpha1.PreflightReport, v1alpha1.PreflightRequire}).Draw(t, "preflight")
	case 28, 29:
		if len(p.Spec.Strategy.Gates) > 0 {
			name := rapid.SampledFrom(p.Spec.Strategy.Gates).Draw(t, "gate").Name
			w.setMetric(name, rapid.SampledFrom([]string{"0", "0", "2", "2", "nothing", "error", "silence"}).Draw(t, "value"))
		}
	case 30:
		w.restart()
	case 18:
		p.Spec.Strategy.Steps = p.Spec.Strategy.Steps[:rapid.IntRange(1, len(p.Spec.Strategy.Steps)).Draw(t, "steps left")]
	case 15:
		n.Owner = map[bool]string{true: "another"}[yes]
	}
}

// settle plans until nothing more is to be done now: what is taken back makes
// room for others, but that ends.
func (w *world) settle(t *rapid.T) {
	for pass := 0; w.referee(t) > 0; pass++ {
		assert.Must(t, pass < 3+3*len(w.nodes), // drains that are refused at once make room for others
			"deciding again changes something again and again: moves %+v, taints %+v, evictions %v", w.last.Moves, w.last.Taints, w.last.Evict)
	}

	again, was := Plan(w.in, w.nodes), w.in.Status
	if again.Next.Nodes.Updated != was.Nodes.Updated { // what was written may show at once
		again.Next.ProgressTime = was.ProgressTime
	}

	assert.Must(t, len(again.Events) == 0 && len(again.Observations) == 0 && again.GatesSince.Equal(w.in.GatesSince) && reflect.DeepEqual(decided(again.Next), decided(was)),
		"deciding again says %+v, observes %+v, and remembers %+v, not %+v", again.Events, again.Observations, again.Next, was)
}

// decided returns a status without what it only tells: the nodes may show at
// once what was written.
func decided(st v1alpha1.NodeConfigRolloutStatus) v1alpha1.NodeConfigRolloutStatus {
	if !waits(st.Phase) {
		st.Phase = ""
	} else {
		st.Phase = v1alpha1.RolloutWaiting
	}

	st.Message, st.Nodes, st.FailedNodes, st.DrainingNodes, st.Conditions = "", v1alpha1.RolloutCounts{}, nil, nil, nil

	return st
}

// referee plans once, holds what was decided against the rules, and returns how
// many nodes move.
func (w *world) referee(t *rapid.T) int {
	p := &w.in
	p.Now = w.now
	w.watch()
	if !p.Spec.Paused && !p.Spec.Frozen {
		w.answers, w.answered = append(w.answers, w.answered...), nil
	}

	r := w.decide()
	away := w.away()
	w.judgeGates(t, w.in.Status, r)
	before := w.spent()
	old := slices.Clone(w.nodes)
	for _, m := range r.Moves {
		wrong := w.wrong(m, r)
		assert.Must(t, wrong == "", "%s %s to %q: %s\n%+v", m.Kind, w.nodes[m.Node].Name, m.Source.Content().SHA256, wrong, w.nodes[m.Node])
	}

	h := r.Next.Halt
	assert.Must(t, h == nil || !r.Succeeded() || h.Reason == v1alpha1.HaltAborted, "a revision that has succeeded was stopped: %+v", h)
	w.refereePreflight(t, r, old)
	w.refereeMaintenance(t, r)
	w.drainsRight(t, r)
	w.apply(r)
	assert.Must(t, w.away() <= max(1, away), "%d control planes may be away, %d before", w.away(), away)
	for _, m := range r.Moves {
		if o := &old[m.Node]; m.Kind == TakeBack && o.Observed == o.Generation && o.Reason == "WouldEvictPods" && r.Next.Halt == nil {
			w.refused[o.Name] = refusal{attempt{p.Target.Number, r.Next.Attempt}, w.now, o.Generation + 1}
		}
	}

	w.carryObservation(r.Moves, old)
	w.joinsInTurn(t, r, old)
	after := w.spent()
	begun := slices.ContainsFunc(r.Taints, func(t Taint) bool { return t.Drain.Since.Equal(w.now) })
	if begun || slices.ContainsFunc(r.Moves, func(m Move) bool { return m.Kind == Assign }) {
		for _, m := range r.Moves { // no budget is asked for those that join
			if n := &old[m.Node]; m.Kind == Join {
				before.add(n.Domain, true)
			}
		}

		w.withinBudgets(t, before, after, old)
	}

	room := max(1, roundDown(p.Spec.Rollback.MaxUnavailable, r.Counts.Members))
	goBack := slices.ContainsFunc(r.Moves, func(m Move) bool { return m.Kind == GoBack && w.isHealthy(&old[m.Node]) })
	assert.Must(t, !goBack || r.Counts.RollingBack <= room, "%d healthy nodes go back, %d may", r.Counts.RollingBack, room)
	w.keepsWindows(t)
	w.keepsBudgets(t, r, old)
	c := &r.Counts
	sum := c.Pending + c.Assigned + c.Trial + c.Soaking + c.Updated + c.Failed + c.Skipped + c.Stale + c.Conflicted +
		c.Manual + c.Blocked + c.Draining
	assert.Must(t, sum == int32(len(w.nodes)), "the states of %d nodes add up to %d", len(w.nodes), sum)
	w.readinessRight(t, r)

	return len(r.Moves) + len(r.Taints) + len(r.Evict) + len(r.Ask)
}

// readinessRight holds the conditions for other tools against the nodes: Ready
// only if every node that can run the target does, and never two of them at
// once.
func (w *world) readinessRight(t *rapid.T, r Result) {
	is := map[string]bool{}
	for _, c := range r.Next.Conditions {
		is[c.Type] = c.Status == metav1.ConditionTrue
	}

	assert.Must(t, (!is["Ready"] || !is["Reconciling"]) && (!is["Ready"] || !is["Stalled"]) && (!is["Reconciling"] || !is["Stalled"]),
		"ready %t, reconciling %t, stalled %t: %s", is["Ready"], is["Reconciling"], is["Stalled"], r.Next.Message)
	left := 0
	for _, s := range r.States {
		if s == Pending || s == Assigned || s == Trial || s == Soaking || s == Failed || s == Blocked || s == Draining {
			left++
		}
	}

	h := r.Next.Halt
	assert.Must(t, !is["Ready"] || left <= 0 && h == nil && w.in.Invalid == "" && !w.in.Spec.Frozen,
		"ready with %d nodes left, halt %+v: %s", left, h, r.Next.Message)
	assert.Must(t, h == nil || is["Stalled"] || r.Next.Phase == v1alpha1.RolloutRollingBack, "halted, and not stalled: %s", r.Next.Message)
}

// drainsRight holds drains against the rules, by the records on the nodes
// alone.
func (w *world) drainsRight(t *rapid.T, r Result) {
	p := &w.in
	stopped := p.Spec.Paused || p.Spec.Frozen || p.Invalid != "" || r.Next.Halt != nil
	writes := map[int]Taint{}
	for _, taint := range r.Taints {
		_, twice := writes[taint.Node]
		assert.Must(t, !twice, "the record of %s is written twice", w.nodes[taint.Node].Name)
		writes[taint.Node] = taint
	}

	for i := range w.nodes {
		n, was := &w.nodes[i], w.nodes[i].Drain
		write, written := writes[i]
		evicts := slices.Contains(r.Evict, i)
		begins := written && write.Drain.Rollout != "" && was.Rollout == ""
		of := was.Revision == p.Target.Number && was.Attempt == r.Next.Attempt
		accepted := w.hasTarget(n) && !n.refuses() &&
			(n.Source.By().Attempt == r.Next.Attempt || n.Active.Digest() == p.Target.ConfigMapRef.SHA256)
		if begins { // it no longer joins with an earlier revision: its turn for the target has come
			delete(w.joinInProgress, n.Name)
		}

		switch {
		case (begins || evicts) && (stopped || p.Spec.Strategy.Drain == v1alpha1.DrainNever || foreign(n)):
			t.Fatalf("pods of %s are evicted: stopped %v, drain %s, foreign %v", n.Name, stopped, p.Spec.Strategy.Drain, foreign(n))
		case evicts && (was.Rollout != p.DrainID || !of || written):
			t.Fatalf("pods of %s are evicted, and its record is %+v", n.Name, was)
		case begins && !w.mayAssign():
			t.Fatalf("the drain of %s begins outside of the windows", n.Name)
		case begins && p.Spec.Strategy.Drain == v1alpha1.DrainWhenBlocked && !n.refuses():
			t.Fatalf("%s is drained although it does not refuse the revision", n.Name)
		case was.Rollout != "" && !written && (stopped && !accepted || !of || foreign(n) || p.Spec.Strategy.Drain == v1alpha1.DrainNever):
			t.Fatalf("%s keeps the record of a drain that has ended: %+v", n.Name, was)
		case was.Rollout != "" && !written && !accepted && !w.now.Before(was.Since.Add(seconds(p.Spec.Strategy.DrainOptions.TimeoutSeconds))) && !slices.ContainsFunc(r.Moves, func(m Move) bool { return m.Node == i && m.Kind == Assign }):
			t.Fatalf("the drain of %s does not end", n.Name)
		}
	}

	for _, m := range r.Moves {
		n, a := &w.nodes[m.Node], w.agents[w.nodes[m.Node].Name]
		again := n.Source.By().Name == p.Name && n.Source.Content().SHA256 == m.Source.Content().SHA256 // a retry, or its ConfigMap was created again
		assert.Must(t, m.Kind != Assign || p.Spec.Strategy.Drain != v1alpha1.DrainAlways || again || n.Drain.Rollout == p.DrainID && a.pods <= 0,
			"%s is assigned the revision with %d pods: %+v", n.Name, a.pods, n.Drain)
	}
}

// wrong says which rule a move breaks.
func (w *world) wrong(m Move, r Result) string {
	p, n := &w.in, &w.nodes[m.Node]
	given := w.hasTarget(n) || m.Kind == GoBack && n.Active.Digest() == p.Target.ConfigMapRef.SHA256
	for _, uid := range m.Revoked {
		if !slices.Contains(n.Revoked, uid) && uid != n.Source.Content().UID && uid != uidOf(n.Active) {
			return fmt.Sprintf("%s is revoked, which it did not have", uid)
		}
	}

	switch {
	case p.Spec.Frozen:
		return "the rollout is frozen"
	case n.OtherSource != "" && m.Kind != TakeBack, n.Owner != "", n.Source != nil && n.Source.By().Name == "":
		return "the node is not the rollout's"
	case len(m.Revoked) > maxRevoked:
		return "too much is revoked"
	case m.Source.Content().UID != "" && slices.Contains(m.Revoked, m.Source.Content().UID):
		return "what it is given is revoked"
	case r.Next.Halt != nil && m.Source.Content().SHA256 == p.Target.ConfigMapRef.SHA256:
		return "the revision is stopped"
	case p.Spec.Paused && m.Kind == Assign:
		return "the rollout is paused"
	case m.Kind == Assign && !w.mayAssign() && n.Active.Digest() != m.Source.Content().SHA256 && (n.Drain.Rollout != p.DrainID || slices.ContainsFunc(p.Windows, func(w Window) bool { return w.Within })):
		return "no window is open, or not for long enough"
	case (m.Kind == TakeBack || m.Kind == GoBack) && !given && (w.mayAssign() || n.Reason != "WouldEvictPods"):
		return "it does not have the revision"
	case m.Kind == TakeBack && n.Observed == n.Generation && n.Reason != "WouldEvictPods" && (n.Reason != "CouldNotValidate" || r.Next.Halt == nil) && !(n.Source.By().Attempt < r.Next.Attempt && n.Drain.Rollout == p.DrainID):
		return "it has adopted it"
	case m.Kind == Assign && n.Reason != "WouldEvictPods" && w.refused[n.Name].of == (attempt{p.Target.Number, r.Next.Attempt}) && w.now.Before(w.refused[n.Name].at.Add(time.Minute)):
		return "it has just refused it"
	case (m.Kind == Assign || m.Kind == Join) && n.Maintenance != "" && !given && n.Drain.Rollout != p.DrainID &&
		!(n.Maintenance == Cordoned && n.Observation.Revision == p.Target.Number && n.Observation.Reason != "WouldEvictPods"): // a person drains it
		return "others work on the node: " + n.Maintenance
	case (m.Kind == Assign || m.Kind == Join) && !n.Ready && !given: // given: its ConfigMap was created again
		return "the node is NotReady"
	case (m.Kind == TakeBack || m.Kind == GoBack) && slices.Contains(p.Stopped, m.Source.Content().Name) && n.Active.Digest() != m.Source.Content().SHA256:
		return "it does not run that revision, which was stopped"
	case m.Kind == TakeBack && m.Source == nil && n.Source.By().Previous != nil && !slices.Contains(p.Stopped, n.Source.By().Previous.ConfigMapRef.Name):
		return "it is taken to nothing, and had something"
	case m.Kind == GoBack && (r.Next.Halt == nil || !r.Next.Halt.Rollback):
		return "nobody asked for it"
	}

	return ""
}

// foreign reports whether a node is not the rollout's: another rollout, its own
// ConfigMap or a person decides what it runs.
func foreign(n *Node) bool {
	return n.Owner != "" || n.OtherSource != "" || n.Source != nil && n.Source.By().Name == ""
}

// hasTarget reports whether the rollout has assigned the content of the target.
func (w *world) hasTarget(n *Node) bool {
	return isConfigMap(n.Source) && n.Source.By().Name == w.in.Name && n.Source.Content().SHA256 == w.in.Target.ConfigMapRef.SHA256
}

// provenTarget reports whether a node has passed its trial of the content of
// the target, and runs it.
func (w *world) provenTarget(n *Node) bool {
	target := w.in.Target.ConfigMapRef.SHA256
	return n.Active.Digest() == target && n.LastKnownGood.Digest() == target && !n.InTrial
}

// spending is what the budgets are spent on, counted in another way than the
// planner does.
type spending struct {
	all      int
	nodes    int // of the rollout
	domain   map[string]int
	inFlight map[string]bool
	members  map[string]int
}

func (s *spending) add(domain string, inFlight bool) {
	s.all++
	s.domain[domain]++
	if inFlight {
		s.inFlight[domain] = true
	}
}

func (w *world) spent() spending {
	s := spending{domain: map[string]int{}, inFlight: map[string]bool{}, members: map[string]int{}}
	p := &w.in
	for _, n := range each(w.nodes) {
		if foreign(n) {
			continue
		}

		s.members[n.Domain]++
		s.nodes++
		if left, is := w.refused[n.Name]; is && n.Generation == left.generation && n.Observed != n.Generation && !n.Created.After(left.at) {
			s.add(n.Domain, true) // it may not know that the revision was taken back, and adopt it
			continue
		}

		if n.Drain.Rollout == p.DrainID && n.Drain.Revision == p.Target.Number && n.Drain.Attempt == w.in.Status.Attempt &&
			(n.Source.Content().SHA256 != p.Target.ConfigMapRef.SHA256 || n.Source.By().Attempt < w.in.Status.Attempt) {
			s.add(n.Domain, true)
			continue
		}

		if !w.hasTarget(n) {
			// In flight for an earlier revision, at most, or its pods prevent
			// that.
			if n.Ready && n.Source.By().Name == p.Name && (n.Observed == n.Generation && (n.InTrial || n.OK == "False" && n.Reason == "WouldEvictPods") || n.Observed != n.Generation && w.now.Before(n.Source.By().AssignedAt.Time.Add(p.Controller.AgentTimeout.Duration))) {
				s.add(n.Domain, true)
			}

			continue
		}

		if !n.Ready && (n.Source.By().AssignedAt.Time.Before(w.in.Status.StartTime.Time) || n.Created.After(n.Source.By().AssignedAt.Time)) && (n.OK != "False" || n.Observed != n.Generation) {
			continue // it was NotReady before, as far as this revision goes
		}

		if w.provenTarget(n) && n.Ready && n.OK != "False" && (hasSucceeded(&w.in.Status) || w.soaked(n)) {
			continue
		}

		down := !n.Ready && !w.now.Before(n.WentNotReady.Add(p.Controller.NotReadyGrace.Duration))
		blocked := n.Observed == n.Generation && n.OK == "False" && n.Reason == "WouldEvictPods"
		pause := w.pauses[n.Name]
		counted := w.now // maintenance stops the clock of a trial
		if !pause.since.IsZero() {
			down, counted = false, pause.since
		}
		if down && pause.ended.After(n.WentNotReady) {
			down = !w.now.Before(pause.ended.Add(p.Controller.NotReadyGrace.Duration))
		}

		failed := down || n.Observed == n.Generation && n.OK == "False" || !counted.Before(n.Source.By().AssignedAt.Time.Add(seconds(p.Spec.NodeTimeoutSeconds)+n.TrialLength+pause.total))
		s.add(n.Domain, blocked || !failed)
	}

	return s
}

// joinsInTurn holds what joins against its budget, and against how those fared
// that joined before: by the referee's own memory of who was given what for
// having joined.
func (w *world) joinsInTurn(t *rapid.T, r Result, old []Node) {
	p := &w.in
	busy, failed, members := 0, 0, r.Counts.Members
	var to *v1alpha1.NodeConfigSource
	for _, m := range r.Moves {
		if m.Kind != Join {
			continue
		}

		to = m.Source
		w.joinInProgress[w.nodes[m.Node].Name] = w.nodes[m.Node].Generation
	}

	if to == nil {
		return
	}

	doubt := slices.ContainsFunc(w.nodes, func(n Node) bool { // it fails on a node that joined, or is tried again
		return n.Owner == "" && n.OtherSource == "" && n.Source.By().Name == p.Name && n.Source.Content().SHA256 == to.Content().SHA256 && n.LastKnownGood.Digest() != to.Content().SHA256 && !n.Created.After(n.Source.By().AssignedAt.Time) &&
			(n.Source.By().Attempt > 1 && n.Observed == n.Generation || w.joinInProgress[n.Name] == n.Generation && n.Observed == n.Generation && n.OK == "False" && n.Reason != "WouldEvictPods")
	})
	asked := false
	for i, n := range each(w.nodes) {
		idle := n.Idle && w.now.Before(n.Created.Add(10*time.Minute)) && !doubt
		if w.joinInProgress[n.Name] != n.Generation || n.Owner != "" || n.OtherSource != "" || n.Source.By().Name != p.Name || n.LastKnownGood.Digest() == n.Source.Content().SHA256 || n.Created.After(n.Source.By().AssignedAt.Time) {
			continue
		}

		fresh := old[i].Generation != n.Generation
		asked = asked || fresh && !idle
		answered := n.Observed == n.Generation
		switch {
		case answered && n.OK == "False" && n.Reason == "WouldEvictPods":
		case answered && n.OK == "False":
			if n.Source.Content().SHA256 == to.Content().SHA256 && !n.Source.By().AssignedAt.Time.Before(r.Next.AttemptTime.Time) {
				failed++
			}
		case !idle && !answered && !fresh && !w.now.Before(n.Source.By().AssignedAt.Time.Add(p.Controller.AgentTimeout.Duration)):
		case !idle && !n.Ready && !w.now.Before(n.WentNotReady.Add(p.Controller.NotReadyGrace.Duration)):
		case !idle && answered && !w.now.Before(n.Source.By().AssignedAt.Time.Add(seconds(p.Spec.NodeTimeoutSeconds)+n.TrialLength)):
		case !idle:
			busy++
		}
	}

	budget := p.Spec.Strategy.MaxUnavailable
	if p.Spec.Strategy.MaxJoining != nil {
		budget = p.Spec.Strategy.MaxJoining
	}

	most := int(roundDown(budget, members))
	assert.Must(t, !asked || busy <= most, "%d nodes join at a time, %d may", busy, most)
	assert.Must(t, failed < max(1, int(RoundUp(p.Spec.FailurePolicy.MaxFailures, members))), "nodes join although it failed on %d that joined", failed)
}

// refusal is when a revision was taken back from a node that refused it: the
// test keeps it.
type refusal struct {
	of         attempt
	at         time.Time
	generation int64 // of what was written then
}

type attempt struct{ revision, attempt int64 }

func (w *world) soaked(n *Node) bool {
	if seconds(w.in.Spec.SoakSeconds) == 0 {
		return true
	}

	is, watched := w.healthy[n.Name]
	if !watched {
		return n.Source.By().Revision != w.in.Target.Number // it had the content before
	}

	return n.OK == "True" && !w.now.Before(is.since.Add(seconds(w.in.Spec.SoakSeconds)))
}

// healthRecord is since when a node has been healthy with an assignment.
type healthRecord struct {
	revision, attempt int64
	since             time.Time
}

// carryObservation keeps when nodes were healthy that had the content before
// and are assigned it again.
func (w *world) carryObservation(moves []Move, old []Node) {
	for _, m := range moves {
		o, n := &old[m.Node], &w.nodes[m.Node]
		if o.Source.Content().SHA256 != n.Source.Content().SHA256 || o.Source.By().Revision == n.Source.By().Revision || o.LastKnownGood.Digest() != n.Source.Content().SHA256 || !o.Ready || o.OK != "True" || o.InTrial {
			continue
		}

		is := healthRecord{n.Source.By().Revision, n.Source.By().Attempt, w.now.Add(-seconds(w.in.Spec.SoakSeconds))}
		if was, watched := w.healthy[n.Name]; watched && was.revision == o.Source.By().Revision && was.attempt == o.Source.By().Attempt {
			is.since = was.since
		}

		w.healthy[n.Name] = is
	}
}

// watch sees which nodes are fine now, in another way than the planner does:
// the test keeps it.
func (w *world) watch() {
	w.watchMaintenance()
	p := &w.in
	for _, n := range each(w.nodes) {
		of := healthRecord{n.Source.By().Revision, n.Source.By().Attempt, w.now}
		was, watched := w.healthy[n.Name]
		same := watched && was.revision == of.revision && was.attempt == of.attempt
		switch {
		case foreign(n) || !w.hasTarget(n) || hasSucceeded(&w.in.Status) && numberOf(&w.in.Status) == p.Target.Number:
			continue // nobody looks at it
		case !w.provenTarget(n) || !w.isHealthy(n):
			delete(w.healthy, n.Name)
		case !same && n.Source.By().Revision == p.Target.Number:
			w.healthy[n.Name] = of
		case !same:
			delete(w.healthy, n.Name)
		}
	}
}

func (w *world) isHealthy(n *Node) bool {
	return n.Ready && n.OK == "True"
}

// withinBudgets compares what is spent after an assignment with what may be,
// and with what was spent before.
func (w *world) withinBudgets(t *rapid.T, before, after spending, old []Node) {
	p := &w.in
	most := max(int(roundDown(p.Spec.Strategy.MaxUnavailable, int32(after.nodes))), before.all+w.superseded(old, ""))
	assert.Must(t, after.all <= most, "%d nodes are unavailable, %d may be (%+v of %d, %d before)",
		after.all, most, p.Spec.Strategy.MaxUnavailable, after.nodes, before.all)
	fresh := 0 // domains in which something begins to move now
	for domain := range after.inFlight {
		if !before.inFlight[domain] {
			fresh++
		}
	}

	if most := p.Spec.Strategy.MaxDomainsInFlight; fresh > 0 && most != nil && len(after.inFlight) > int(*most) {
		t.Fatalf("nodes of %d domains are in flight, of %d before; of %d they may be", len(after.inFlight), len(before.inFlight), *most)
	}

	for domain, n := range after.domain {
		if p.Spec.Strategy.MaxUnavailablePerDomain == nil {
			break
		}

		most := max(int(roundDown(p.Spec.Strategy.MaxUnavailablePerDomain, int32(after.members[domain]))), before.domain[domain]+w.superseded(old, domain))
		assert.Must(t, n <= most, "%d nodes of %s are unavailable, %d may be", n, domain, most)
	}
}

// superseded counts nodes that were in flight for an earlier revision, or free
// of cost because they run the payload already: giving them the new one costs
// nothing more.
func (w *world) superseded(old []Node, domain string) int {
	n := 0
	for i, o := range each(old) {
		if domain != "" && o.Domain != domain || o.Source.By().Name != w.in.Name {
			continue
		}
		if o.Source.Content().SHA256 == w.in.Target.ConfigMapRef.SHA256 && o.Source.Content().UID != w.nodes[i].Source.Content().UID { // its ConfigMap was created again
			n++
		}
	}

	return n
}
