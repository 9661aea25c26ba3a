// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/simapi"
)

func decode(content map[string]any, into any) {
	must.OK(runtime.DefaultUnstructuredConverter.FromUnstructured(content, into))
}

// summary describes a change for the trace.
func summary(c simapi.Change) string {
	switch {
	case c.Is == nil:
		return ": deleted"
	case c.Was == nil:
		return ": created"
	}

	switch c.Kind {
	case "nodeconfigs":
		var nc v1alpha1.NodeConfig
		decode(c.Is, &nc)
		return ": " + describeConfig(&nc)
	case "nodeconfigrollouts":
		var r v1alpha1.NodeConfigRollout
		decode(c.Is, &r)
		revision := int64(0)
		if r.Status.UpdateRevision != nil {
			revision = r.Status.UpdateRevision.Number
		}

		return fmt.Sprintf(": %s, revision %d, attempt %d: %s", r.Status.Phase, revision, r.Status.Attempt, r.Status.Message)
	case "nodes":
		var n corev1.Node
		decode(c.Is, &n)
		var out []string
		for _, c := range n.Status.Conditions {
			out = append(out, fmt.Sprintf("%s=%s", c.Type, c.Status))
		}

		return ": " + strings.Join(out, " ")
	}

	return ""
}

func describeConfig(nc *v1alpha1.NodeConfig) string {
	spec, status := "nothing", "nothing"
	if s := nc.Spec.ConfigSource; s != nil && s.ConfigMapRef != nil {
		spec = s.ConfigMapRef.Name
		if s.RolloutRef != nil {
			spec += fmt.Sprintf(" (attempt %d)", s.RolloutRef.Attempt)
		}
	} else if s != nil {
		spec = "local"
	}

	if c := meta.FindStatusCondition(nc.Status.Conditions, v1alpha1.ConditionConfigOK); c != nil {
		status = fmt.Sprintf("%s %s", c.Status, c.Reason)
	}
	if good := nc.Status.LastKnownGood; good != nil {
		status += ", good " + good.Name
	}

	return fmt.Sprintf("assigned %s; %s %s", spec, status, nc.Status.Error)
}

// watchHistory waits until the history is over, or something was wrong.
func (w *world) watchHistory() {
	if !w.wait(w.plan.active, w.checkGaps) {
		return
	}

	w.settle()
	if w.plan.seed%4 == 2 && !w.converge(false) { // with the template that it has
		return
	}

	w.aim(map[string]any{"template": template(finalContent, nil)})
	if !w.converge(true) {
		return
	}

	w.wait(2*time.Minute, w.checkGaps)
	before := w.checks.changed()
	w.wait(w.plan.quiet, w.checkGaps)
	// What depends on time alone, such as the age of an observation, may change
	// once.
	changed := w.checks.changed() - before
	w.book.must(changed <= 1+len(w.machines), "invariant 5: %d changes of the API in %s after the fleet has converged", changed, w.plan.quiet)
	w.checkSizes()
	if w.plan.seed%4 == 1 {
		w.checkLate()
	}
}

// converge waits until the fleet has converged, and reports whether it has in
// time: on the last content, or on that of the template that it had when
// everything was repaired. Then a revision that was stopped, or that failed on
// a node, is tried again, as a person does.
func (w *world) converge(last bool) bool {
	limit := time.Hour + time.Duration(w.plan.nodes)*20*time.Minute
	deadline := time.Now().Add(limit)
	if !last {
		w.aim(map[string]any{})
	}

	for why, tries := "x", 0; why != ""; {
		if !w.wait(15*time.Second, w.checkGaps) {
			return false
		}

		if why = w.unsettled(last); why != "" && time.Now().After(deadline) {
			w.book.fail("the fleet does not converge within %s: %s", limit, why)
			return false
		}

		r := w.all()
		if u := r.Status.UpdateRevision; !last && why != "" && tries < 3 && u != nil && r.Status.ObservedGeneration == r.Generation && (r.Status.Halt != nil || len(r.Status.FailedNodes) > 0) {
			tries++
			w.aim(map[string]any{"retry": map[string]any{"revision": u.Number, "attempt": max(1, r.Status.Attempt) + 1}})
		}
	}

	w.book.trace("the fleet has converged")

	return true
}

// checkLate freezes the leader while it assigns a revision to all nodes, and
// gives the next leader another target with a budget of one node. The late
// assignments, which agents reject, must not use up that budget.
func (w *world) checkLate() {
	own, _ := w.own()
	if on := slices.DeleteFunc(slices.Clone(w.machines), func(m *machine) bool { return m == own || !m.isOn() }); len(w.replicas) < 2 || len(on) < 3 || len(on) > 5 {
		return
	}

	a := &act{world: w, r: dice(w.plan.seed, "late")}
	var frozen atomic.Bool
	w.freezeAtAssignment(w.plan.lease+w.plan.lease/4+30*time.Second, func() { frozen.Store(true) })
	a.patch("all", map[string]any{"template": template(finalContent+20, nil), "strategy": map[string]any{"maxUnavailable": "100%"}})
	if !w.within(5*time.Minute, "the leader is frozen while it assigns a revision", frozen.Load) {
		return
	}

	a.patch("all", map[string]any{"template": template(finalContent+30, nil), "strategy": map[string]any{"maxUnavailable": 1}})
	complete := func() bool { return w.targets(finalContent+30) && w.all().Status.Phase == v1alpha1.RolloutComplete }
	if w.within(time.Hour+time.Duration(w.plan.nodes)*20*time.Minute, "all nodes get the target of the next leader after late assignments", complete) {
		w.checks.tally(func(s *stats) { s.count(late, 1) })
	}
}

// targets reports whether a content is the target of the rollout.
func (w *world) targets(content int64) bool {
	u := w.all().Status.UpdateRevision
	return u != nil && locked(&w.checks.mu, func() int64 { return w.checks.contents[string(u.ConfigMapRef.UID)] }) == content
}

// within waits until a condition holds, and fails the history if it does not in
// time.
func (w *world) within(limit time.Duration, what string, holds func() bool) bool {
	for deadline := time.Now().Add(limit); !holds(); {
		if !w.wait(5*time.Second, w.checkGaps) {
			return false
		}

		if time.Now().After(deadline) {
			w.book.fail("it does not happen within %s that %s", limit, what)
			return false
		}
	}

	return true
}

// tally changes the statistics.
func (c *checks) tally(change func(s *stats)) { with(&c.mu, func() { change(&c.stats) }) }

func (c *checks) changed() int { return locked(&c.mu, func() int { return c.stats.Counts[changes] }) }

// wait waits, and checks every few seconds. It returns false if something was
// wrong.
func (w *world) wait(d time.Duration, check func()) bool {
	end := time.Now().Add(d)
	for time.Now().Before(end) {
		select {
		case <-w.over:
			return false
		case <-time.After(min(5*time.Second, time.Until(end))):
		}

		check()
	}

	return len(w.book.failed()) == 0
}

// checkGaps checks that no node is without a kubelet for long while its agent
// runs.
func (w *world) checkGaps() {
	for _, m := range w.machines {
		m.mu.Lock()
		since := time.Now()
		if m.exists && m.agent != nil && m.process == nil {
			since = m.idleSince
			if m.agent.began.After(since) {
				since = m.agent.began
			}
		}

		m.checkRollback()
		m.mu.Unlock()
		w.book.must(!time.Now().After(since.Add(longestGap)), "%s has had no kubelet for %s, although its agent runs", m.name, time.Since(since))
	}
}

// settle ends all that goes wrong, and leaves one rollout.
func (w *world) settle() {
	w.book.trace("settle")
	w.trouble.Store(int32(outageNone))
	for _, m := range w.machines {
		m.cut(true)
		m.mu.Lock()
		m.disk.Heal()
		m.disk.CrashAfter(1 << 40)
		m.mu.Unlock()
		m.correct()
		for _, pod := range w.server.Names("pods", m.name) {
			w.server.Delete("pods", m.name, pod)
		}

		if nc, _ := get[v1alpha1.NodeConfig](w, "nodeconfigs", "", m.name); nc.Spec.ConfigSource != nil && nc.Spec.ConfigSource.RolloutRef == nil {
			w.source(m, nil) // a person's assignment
		}
	}

	for _, r := range w.replicas {
		r.cut(true)
		r.setTrap(nil)
	}

	if !slices.ContainsFunc(w.machines, (*machine).isOn) {
		w.machines[0].switchOn()
	}

	for _, name := range w.server.Names("nodeconfigrollouts", "") {
		if name != "all" {
			w.server.Delete("nodeconfigrollouts", "", name)
		}
	}

	if m, name := w.own(); m != nil {
		w.setOwn(name, template(finalContent, nil)["kubeletDropIn"])
	}

	(&act{world: w, r: dice(w.plan.seed, "settle")}).create()
}

// aim changes the spec of the rollout, in which nothing then holds nodes back.
func (w *world) aim(spec map[string]any) {
	a := &act{world: w, r: dice(w.plan.seed, "aim")}
	most := any("100%")
	if w.plan.nodes <= 3 && chance(a.r, 0.6) {
		most = 1 // slow, but nothing may use up this budget for ever
	}

	all := map[string]any{
		"pin": nil, "abort": nil, "retry": nil, "paused": false, "frozen": false, "soakSeconds": 0,
		"strategy":      map[string]any{"preflight": nil, "drain": nil, "drainOptions": nil, "respectDisruptionBudgets": nil, "windows": nil, "maxUnavailable": most, "maxJoining": "100%", "steps": []any{map[string]any{"nodes": "100%"}}},
		"failurePolicy": map[string]any{"maxFailures": 100},
	}
	maps.Copy(all, spec)
	a.patch("all", all)
}

// finalContent is good.
const finalContent = 10_000

// unsettled says why the fleet has not converged yet, on the last content or on
// any that it is assigned; empty if it has.
func (w *world) unsettled(last bool) string {
	var why []string
	check := func(ok bool, format string, args ...any) {
		if !ok {
			why = append(why, fmt.Sprintf(format, args...))
		}
	}
	r := w.all()
	tainted := w.tainted()
	check(len(tainted) == 0, "invariant 11: %v keep the taint of a drain", tainted)
	check(r.Status.ObservedGeneration == r.Generation, // a controller that leads late would change the API after this
		"no controller has seen generation %d of rollout %s", r.Generation, r.Name)
	own, _ := w.own()
	alone := own != nil && !slices.ContainsFunc(w.machines, func(m *machine) bool { return m != own && m.isOn() }) // the rollout has no nodes
	check(r.Status.Phase == v1alpha1.RolloutComplete || alone, "rollout %s is %s: %s", r.Name, r.Status.Phase, r.Status.Message)
	for _, r := range w.replicas {
		check(!r.isFrozen(), "%s is frozen", r.name)
	}

	for _, m := range w.machines {
		if !m.isOn() {
			continue
		}

		p := m.running()
		nc, _ := get[v1alpha1.NodeConfig](w, "nodeconfigs", "", m.name)
		node, _ := get[corev1.Node](w, "nodes", "", m.name)
		check(!slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintUnconfigured }),
			"invariant 12: %s keeps the startup taint", m.name)
		check(p != nil && (!last || p.content == finalContent) && p.Healthy() && (proven(&nc) || m.ownConfigMap && w.provenOwn(&nc)),
			"%s runs %v: %s", m.name, p, describeConfig(&nc))
	}

	return strings.Join(why, "; ")
}

// provenOwn reports whether a node has what its own ConfigMap contains in the
// end as last-known-good. The ConfigMap has had other content.
func (w *world) provenOwn(nc *v1alpha1.NodeConfig) bool {
	good := nc.Status.LastKnownGood
	if good == nil || good.Name != "kubelet-"+nc.Name {
		return false
	}

	content := locked(&w.checks.mu, func() int64 { return w.checks.payloads[good.SHA256] })

	return content == finalContent && meta.IsStatusConditionTrue(nc.Status.Conditions, v1alpha1.ConditionConfigOK)
}
