// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// Node is the output of `kubectl evenkeel node`.
type Node struct {
	Row

	Rollouts []string                   `json:"rollouts,omitempty"` // rollouts that select the node, the owner first
	Rollout  string                     `json:"rollout,omitempty"`  // the owner
	Phase    v1alpha1.RolloutPhase      `json:"rolloutPhase,omitempty"`
	Next     []string                   `json:"next"`
	Spec     *v1alpha1.NodeConfigSpec   `json:"spec,omitempty"`
	Status   *v1alpha1.NodeConfigStatus `json:"status,omitempty"`

	view *query.NodeView
	plan *rollout.Result // of the owner; nil without one, or if it cannot be planned
}

// NodeOf describes a node.
func NodeOf(view *query.NodeView, now time.Time) *Node {
	v := &Node{Rollouts: view.Rollouts, Rollout: view.Owner, view: view}
	var state *rollout.NodeState
	if f := view.Fleet; f != nil {
		plan := f.Plan()
		for i := range f.Nodes {
			if f.Nodes[i].Name == view.Node.Name {
				state = new(f.NodeState(&plan, i))
			}
		}

		v.plan, v.Phase = &plan, plan.Next.Phase
	}

	v.Row = RowOf(view.Pair, state, view.AgentTimeout, now)
	v.Next = v.next(now)
	if nc := view.Config; nc != nil {
		v.Spec, v.Status = &nc.Spec, &nc.Status
	}

	return v
}

// Config returns the NodeConfig; nil if there is none.
func (v *Node) Config() *v1alpha1.NodeConfig { return v.view.Config }

// Pair returns the Node and its NodeConfig.
func (v *Node) Pair() fleet.Pair { return v.view.Pair }

// RestartCost returns what a restart of the node's kubelet costs its pods; nil
// if it costs nothing.
func (v *Node) RestartCost() *RestartCost { return RestartCostOf([]fleet.Restart{v.view.Restart()}) }

// next says what happens to the node next, in sentences.
func (v *Node) next(now time.Time) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	nc := v.view.Config
	switch {
	case v.view.Node == nil && !v.view.NodeUnread:
		say("nothing: the Node does not exist. The controller deletes the NodeConfig after an hour, unless its configuration was assigned by " +
			"hand")
		return out
	case nc == nil || !fleet.HasReported(nc):
		say("nothing until evenkeel-agent runs on the node and reports")
		return append(out, v.nextOfRollout()...)
	case nc.Status.RemoteConfig == v1alpha1.RemoteConfigDisabled:
		say("nothing: remote configuration is disabled on the node (--remote-config=false, or no --dynamic-config-dir)")
		return out
	case nc.Status.RemoteConfig == v1alpha1.RemoteConfigConfigMap:
		say("the node follows its own ConfigMap, kubelet-%s; rollouts skip it", v.Name)
	}

	st := &nc.Status
	if takesFromNodeConfig(nc) && st.ObservedGeneration != nc.Generation {
		say("the agent answers the newest spec; a running agent needs a few seconds")
	}

	if t := v.Trial; t != nil {
		left := time.Duration(t.DurationSeconds-max(t.ElapsedSeconds, t.HealthySeconds)) * time.Second
		switch {
		case endOf(nc) != nil:
			say("the assignment ends in about %s; the node then returns to %s", Span(max(0, left)), v.LastKnownGood)
		case left > 0:
			say("the trial ends in about %s if the kubelet stays healthy; then %s is last-known-good", Span(left), v.Active)
		default:
			say("the trial ends when the kubelet has been healthy for %s in total", Span(time.Duration(t.DurationSeconds)*time.Second))
		}

		say("if the trial fails, the node rolls back to %s", v.LastKnownGood)
	}

	if advice := v.advice(st); advice != "" {
		say("%s", advice)
	}

	return append(out, v.nextOfRollout()...)
}

// advice says what to do about a ConfigOK that is not True.
func (v *Node) advice(st *v1alpha1.NodeConfigStatus) string {
	if v.ConfigOK.Status == string(metav1.ConditionTrue) || v.State == rollout.Draining.String() {
		return ""
	}

	switch v.ConfigOK.Reason {
	case v1alpha1.ReasonWouldEvictPods:
		return "refused while the kubelet would end pods with the configuration: change it, move these pods away, or set trial.allowPodLoss in " +
			"the payload"
	case v1alpha1.ReasonRestartWouldEvictPods:
		return "refused while any restart of the kubelet would end pods, whatever the configuration: correct what the message names (labels, " +
			"taints, pressure), or move these pods away"
	case v1alpha1.ReasonNeedsDrain:
		return "refused until the node is cordoned and drained: kubectl drain " + v.Name
	case v1alpha1.ReasonProtectedFields:
		return "refused while the configuration changes fields that this node protects: change the configuration, or the agent's " +
			"--protected-fields"
	case v1alpha1.ReasonRevoked:
		return "nothing until another configuration is assigned: this one is revoked on the node"
	case v1alpha1.ReasonDeadEnd, v1alpha1.ReasonLocalInvalid:
		return "repair this node; the agent keeps trying, and `evenkeel-agent status` on the node shows details"
	case v1alpha1.ReasonStaleAssignment:
		return "the controller assigns the configuration again, unless its revision was stopped"
	case v1alpha1.ReasonSyncFailed, v1alpha1.ReasonObjectChanged, v1alpha1.ReasonCouldNotValidate, v1alpha1.ReasonInconclusive:
		return "the agent tries again by itself when something changes"
	case v1alpha1.ReasonWaitingForLock:
		return "the kubelet starts when the process that holds the lock file ends: fuser -v FILE on the node shows that process"
	}

	for _, b := range st.BadConfigs {
		if s := v.view.Config.Spec.ConfigSource; b.UID != "" && s.Content().UID == b.UID && s.By().Name == "" {
			return "the node keeps " + v.Active + " until another configuration is assigned; to retry this one, run on the node: evenkeel-agent " +
				"forget " + b.Revision
		}
	}

	return ""
}

// nextOfRollout says what the owner will do with the node.
func (v *Node) nextOfRollout() []string {
	switch {
	case v.view.NodeUnread:
		return []string{"what rollouts do with the node is not known: you are not allowed to read Nodes"}
	case v.Rollout == "":
		return []string{"no rollout selects the node; to assign a configuration: kubectl evenkeel assign " + v.Name + " -f FILE"}
	case v.plan == nil:
		return []string{fmt.Sprintf("the plan of rollout %s is not known: %s", v.Rollout, v.view.Err)}
	}

	target := fmt.Sprintf("revision %d", v.view.Fleet.Input.Target.Number)
	if v.view.Fleet.Input.Target.Number == 0 { // the rollout is invalid from its beginning
		target = "a revision"
	}

	var out []string
	switch v.State {
	case rollout.Pending.String():
		words := fmt.Sprintf("rollout %s assigns %s when the node's turn comes", v.Rollout, target)
		if Stopped(v.Phase) {
			words = fmt.Sprintf("rollout %s does not assign %s while it is %s", v.Rollout, target, v.Phase)
		}

		out = append(out, words)
	case rollout.Assigned.String(), rollout.Trial.String(), rollout.Soaking.String():
		out = append(out, fmt.Sprintf("rollout %s waits for the node: %s", v.Rollout, v.Why))
	case rollout.Updated.String():
		return append(out, fmt.Sprintf("nothing: the node runs the target of rollout %s (%s)", v.Rollout, target))
	case rollout.Failed.String():
		out = append(out, fmt.Sprintf("rollout %s does not change the node; to retry, while other nodes wait: kubectl evenkeel rollout retry "+
			"%s %s", v.Rollout, v.Rollout, v.Name))
	case rollout.Draining.String():
		out = append(out, fmt.Sprintf("rollout %s drains the node for %s: %s", v.Rollout, target, v.Why))
	case rollout.Blocked.String():
		out = append(out, fmt.Sprintf("rollout %s continues without the node: %s; once its pods have changed: kubectl evenkeel rollout retry "+
			"%s %s", v.Rollout, v.Why, v.Rollout, v.Name))
	default:
		out = append(out, fmt.Sprintf("rollout %s skips the node: %s", v.Rollout, v.Why))
	}

	switch v.Phase {
	case v1alpha1.RolloutProgressing, v1alpha1.RolloutComplete:
	default:
		out = append(out, fmt.Sprintf("rollout %s is %s: %s", v.Rollout, v.Phase, v.plan.Next.Message))
	}

	return out
}

// Line is one property of a node or a rollout.
type Line struct {
	Key  string `json:"key"`
	Text string `json:"text"`
}

// Lines returns the properties of a node, without its name and Next.
func (v *Node) Lines(now time.Time) []Line {
	var out []Line
	line := func(key, format string, args ...any) {
		if text := fmt.Sprintf(format, args...); text != "" {
			out = append(out, Line{key, printable.Line(text)})
		}
	}
	ago := func(t metav1.Time) string { return Ago(&t, now) }
	line("Zone", "%s", v.Zone)
	switch ok := v.ConfigOK.Status; {
	case ok == string(metav1.ConditionFalse), ok == string(metav1.ConditionUnknown): // ConfigOK says why
		line("Health", "%s", v.Health)
	default:
		line("Health", "%s", JoinWords(string(v.Health), v.Cause))
	}

	line("Assigned", "%s", v.assignment(ago))
	if nc := v.view.Config; nc != nil && fleet.HasReported(nc) {
		v.statusLines(line, ago)
	}

	line("Problems", "%s", strings.Join(v.Problems, "; "))
	if n := v.view.Node; n != nil {
		switch d := fleet.DrainOf(n); {
		case d.Since.IsZero() && d.Rollout != "":
			line("Taint", "%s, which no rollout of this controller wrote: the controller removes it", v1alpha1.TaintDraining)
		case d.Rollout != "":
			line("Taint", "%s, since %s: keeps new pods away while the node is drained and updated", v1alpha1.TaintDraining,
				ago(metav1.NewTime(d.Since)))
		}
	}

	switch {
	case len(v.Rollouts) > 0:
		line("Rollout", "%s", v.Rollout)
		line("Position", "%s", v.position())
		if others := v.Rollouts[1:]; len(others) > 0 {
			line("Also selected by", "%s (without effect)", strings.Join(others, ", "))
		}
	case v.view.Node != nil:
		line("Rollout", "none")
	}

	return out
}

// position describes the node's position in its rollout, without an explanation
// that ConfigOK has given already.
func (v *Node) position() string {
	if v.Status != nil && v.Why == JoinWords(v.ConfigOK.Reason, cmp.Or(v.Status.Error, v.ConfigOK.Message)) {
		return v.Place()
	}

	return JoinWords(v.Place(), WithoutUIDs(v.Why))
}

// assignment names the assigned configuration, and who assigned it.
func (v *Node) assignment(ago func(metav1.Time) string) string {
	nc := v.view.Config
	if nc == nil {
		return "nothing: there is no NodeConfig"
	}
	if !takesFromNodeConfig(nc) {
		return v.Assigned + ", not by its NodeConfig"
	}

	s := nc.Spec.ConfigSource
	switch {
	case s == nil:
		return "local (nothing is assigned)"
	case s.ConfigMapRef == nil:
		return "local, by a person"
	}

	object := s.ConfigMapRef.Namespace + "/" + s.ConfigMapRef.Name
	r := s.RolloutRef
	if r == nil {
		ends := ""
		if s.Temporary != nil {
			ends = fmt.Sprintf(", ends %s after the node adopts it", Span(s.Temporary.Duration.Duration))
		}

		return fmt.Sprintf("ConfigMap %s, by a person%s", object, ends)
	}

	return fmt.Sprintf("revision %d of rollout %s, attempt %d, %s: ConfigMap %s", r.Revision, r.Name, r.Attempt, ago(r.AssignedAt), object)
}

// statusLines describes what the agent reported.
func (v *Node) statusLines(line func(key, format string, args ...any), ago func(metav1.Time) string) {
	st := &v.view.Config.Status
	line("Runs", "%s%s", v.Active, objectOf(st.Active))
	if good := st.LastKnownGood; good == nil {
		line("Last-known-good", "%s", v.LastKnownGood)
	} else {
		since := ""
		if good.Since != nil {
			since = ", since " + ago(*good.Since)
		}

		line("Last-known-good", "%s%s%s", v.LastKnownGood, objectOf(&good.ConfigRevision), since)
	}

	if ok := v.ConfigOK; ok.Status != "" {
		line(v1alpha1.ConditionConfigOK, "%s, %s, since %s: %s", ok.Status, ok.Reason, ago(*ok.Since), WithoutUIDs(ok.Message))
	}
	if !strings.Contains(v.ConfigOK.Message, st.Error) {
		line("Error", "%s", WithoutUIDs(st.Error))
	}
	if p := st.Preflight; p != nil {
		line("Preflight", "%s", JoinWords(strings.TrimSpace(string(p.Verdict)+" "+p.Reason), p.Message))
	}

	if t := v.Trial; t != nil {
		line("Trial", "%s of %s, healthy for %s as last reported, %d of %s", Span(time.Duration(t.ElapsedSeconds)*time.Second),
			Span(time.Duration(t.DurationSeconds)*time.Second), Span(time.Duration(t.HealthySeconds)*time.Second), t.Restarts,
			printable.Count(int(t.CrashLoopThreshold), "restart"))
	}

	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionPodsStarted); c != nil {
		line("Pods", "%s: %s", c.Reason, c.Message)
	}

	for _, b := range st.BadConfigs {
		when := ""
		if b.Time != nil {
			when = ", " + ago(*b.Time)
		}
		if b.Provisional {
			when += ", provisional"
		}

		why := ": " + WithoutUIDs(b.Reason)
		if strings.Contains(v.ConfigOK.Message, b.Reason) { // which names the UID too
			why = ""
		}

		line("Bad", "%s/%s%s%s", b.Namespace, b.Name, when, why)
	}

	for _, value := range st.ResolvedValues {
		line("Resolved", "%s", payload.ValueWords(value))
	}

	line("Overridden", "%s", strings.Join(st.OverriddenFields, ", "))
	for _, uid := range v.view.Config.Spec.Revoked {
		line("Revoked", "UID: %s", uid)
	}

	line("Agent", "%s, kubelet %s, source %s, run mode %s", cmp.Or(v.AgentVersion, "-"), cmp.Or(v.ComponentVersion, "-"),
		cmp.Or(v.RemoteConfig, "NodeConfig"), runMode(st.RunMode))
	if c := v.RestartCost(); c != nil && c.Nodes > 0 {
		line("On restart", "%s unready until the next probe, as last counted", printable.Count(int(c.PodsUnready), "pod"))
	}
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionKubeletLimited); c != nil && c.Status == metav1.ConditionTrue {
		line("Kubelet", "limited (%s): %s", c.Reason, c.Message)
	}

	line("Drift", "%s", v.driftLine(ago))
}

// driftLine returns "" if the agent reports no comparison.
func (v *Node) driftLine(ago func(metav1.Time) string) string {
	d := v.Drift
	switch {
	case d == nil:
		return ""
	case !d.Drifted() && d.NotCompared != "":
		return "none in local files; /configz is not compared: " + d.NotCompared
	case !d.Drifted():
		return "none"
	}

	text := fmt.Sprintf("%s, since %s: %s", d.Reason, ago(*d.Since), d.Message)
	if len(d.Fields) > 1 || len(d.Files) > 1 { // the message has counts
		text += " (" + d.Differs(math.MaxInt) + ")"
	}

	return text
}

// runMode explains the run modes that are not the usual one.
func runMode(mode v1alpha1.RunMode) string {
	switch mode {
	case v1alpha1.RunModeBootstrap:
		return "Bootstrap: on the host, until a self-hosted kubelet takes over"
	case v1alpha1.RunModeSelfHosted:
		return "SelfHosted: in a pod"
	}

	return cmp.Or(string(mode), "-")
}

// objectOf names the object of a configuration, to follow its label; nil:
// local.
func objectOf(r *v1alpha1.ConfigRevision) string {
	if r == nil {
		return ""
	}

	return fmt.Sprintf(": ConfigMap %s/%s", r.Namespace, r.Name)
}
