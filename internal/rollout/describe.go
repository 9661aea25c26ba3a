// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// DegradedTooMany is the reason of Degraded when the number of failed nodes has
// reached the limit.
const DegradedTooMany = v1alpha1.HaltTooManyFailures

// result returns what was decided.
func (d *planner) result() Result {
	d.Counts.RollingBack = d.back.moving
	phase, message := d.describe()
	message += clause("; writes to nodes fail: ", d.in.Unwritten) + clause("; ", d.joins.message) +
		clause("; spec.pin holds this revision in place of ", d.in.Replaced)
	if d.in.TargetFailed != "" && d.Next.Halt == nil && !d.succeeded {
		message += "; the same content failed before: " + d.in.TargetFailed
	}

	message += d.planesNote()
	if p := &d.probes; p.count > 0 {
		message += fmt.Sprintf("; no result of the start probe of %s: %s", printable.Count(p.count, "node"), p.why)
	}

	d.completeStatus(phase, message)
	d.NodeState = func(i int) NodeState { return d.nodeState(&d.nodes[i]) }

	return d.Result
}

// describe returns the rollout's phase, and a message that says what a person
// can do.
func (d *planner) describe() (phase v1alpha1.RolloutPhase, message string) {
	revision, name, s := fmt.Sprintf("revision %d", d.in.Target.Number), d.in.Name, d.step()
	h := d.Next.Halt
	switch {
	case d.in.Invalid != "" && h != nil:
		_, message := d.describeHalt(revision, h)
		return v1alpha1.RolloutInvalid, d.in.Invalid + "; " + message
	case d.in.Invalid != "":
		return v1alpha1.RolloutInvalid, d.in.Invalid
	case h != nil:
		return d.describeHalt(revision, h)
	case d.in.Spec.Frozen:
		return v1alpha1.RolloutFrozen, "spec.frozen" + clause(": ", d.in.Spec.FrozenReason) + "; no node moves, not even new nodes; " +
			d.summary() + "; continue with: kubectl evenkeel rollout unfreeze " + name
	case d.Counts.Members == 0:
		return v1alpha1.RolloutNoNodes, d.noNodesMessage()
	case d.complete:
		return v1alpha1.RolloutComplete, revision + ": " + d.summary()
	case d.in.Spec.Paused:
		return v1alpha1.RolloutPaused, fmt.Sprintf("spec.paused%s; %s: %s; continue with: kubectl evenkeel rollout resume %s",
			clause(": ", d.in.Spec.PausedReason), revision, d.summary(), name)
	case d.asking:
		return v1alpha1.RolloutWaiting, revision + ": " + d.preflightMessage()
	case d.gates.onlyGates:
		return v1alpha1.RolloutWaiting, fmt.Sprintf("%s: %s steps done; %s; %s", revision, d.steps(), d.gatesWaited(), d.summary())
	case s != nil && approves(s):
		return v1alpha1.RolloutAwaitingApproval, fmt.Sprintf("%s: %s steps done; waiting for approval: kubectl evenkeel rollout approve %s; %s",
			revision, d.steps(), name, d.summary())
	case d.pausing():
		return v1alpha1.RolloutWaiting, fmt.Sprintf("%s: %s steps done; waiting until %s; %s", revision, d.steps(),
			d.pauseEnds(s).UTC().Format("15:04:05 MST"), d.summary())
	case d.windowWait:
		return v1alpha1.RolloutWaiting, fmt.Sprintf("%s: %s; %s", revision, d.summary(), d.windowMessage())
	case d.stuck:
		return v1alpha1.RolloutStuck, fmt.Sprintf("%s: no progress for %s: %s%s", revision, seconds(d.in.Spec.ProgressDeadlineSeconds),
			d.summary(), clause("; ", d.waitReason))
	}

	return v1alpha1.RolloutProgressing, revision + ": " + d.summary() + clause("; ", d.waitReason)
}

// clause returns a text with what comes before it in a sentence; "" without a
// text.
func clause(before, text string) string {
	if text == "" {
		return ""
	}

	return before + text
}

func (d *planner) describeHalt(revision string, h *v1alpha1.RolloutHalt) (phase v1alpha1.RolloutPhase, message string) {
	what := fmt.Sprintf("%s was stopped (%s): %s", revision, h.Reason, h.Message)
	if d.in.Spec.Frozen {
		what += "; spec.frozen" + clause(": ", d.in.Spec.FrozenReason) + "; no node moves"
	}

	node := ""
	if len(d.failed) > 0 {
		node = d.nodes[d.failed[0]].Name
	}

	again := "; " + Remedies(d.in.Name, h.Reason, node, d.lastGood().Number != 0 && !d.in.LastSucceededGone)
	switch {
	case !h.Rollback:
		return v1alpha1.RolloutHalted, what + again
	case d.goodIsGone():
		return v1alpha1.RolloutHalted, fmt.Sprintf("%s; cannot roll back: ConfigMap %s/%s of revision %d is gone%s", what,
			d.in.LastSucceeded.ConfigMapRef.Namespace, d.in.LastSucceeded.ConfigMapRef.Name, d.in.LastSucceeded.Number, again)
	case d.back.leaving > 0:
		return v1alpha1.RolloutRollingBack, fmt.Sprintf("%s; %s to roll back, %d in progress: %s", what, printable.Count(d.back.leaving, "node"),
			d.back.moving, d.back.goingTo.words("to"))
	}

	gone := "; its nodes were rolled back"
	if n := len(d.back.remaining); n > 0 {
		gone = fmt.Sprintf("; the rollback was assigned to all its nodes, but %s still %s it: %s", printable.Count(n, "node"),
			printable.Verb(n, "runs", "run"), joinNames(d.back.remaining))
	}

	d.locate()

	return v1alpha1.RolloutRolledBack, what + gone + clause("; ", d.back.where) + again
}

// counter counts nodes by what describes them.
type counter map[string]int

// words lists the counts, the largest first, with a preposition: 26 to revision
// 1, 23 to the local configuration.
func (c counter) words(preposition string) string {
	var parts []string
	for _, what := range printable.MostFirst(c) {
		parts = append(parts, fmt.Sprintf("%d %s %s", c[what], preposition, what))
	}

	return strings.Join(parts, ", ")
}

// locate says how many members run what, after a rollback.
func (d *planner) locate() {
	var nodes []*Node
	for i, s := range d.States {
		if n := &d.nodes[i]; !n.outside(s) && n.Reported {
			nodes = append(nodes, n)
		}
	}

	if len(nodes) > 0 {
		d.back.where = "now " + d.in.RunWords(nodes)
	}
}

// RunWords says how many nodes run what: 26 on revision 1, 23 on the local
// configuration.
func (in *Input) RunWords(nodes []*Node) string {
	run := counter{}
	for _, n := range nodes {
		run[in.RunsName(n)]++
	}

	return run.words("on")
}

// RunsName names the configuration that a node runs.
func (in *Input) RunsName(n *Node) string {
	if n.Active.Digest() == "" {
		return localName
	}

	by, has := n.Source.By(), n.Source.Content()
	if p := by.Previous; n.Active.Digest() != has.SHA256 && p != nil && n.Active.Digest() == p.ConfigMapRef.SHA256 {
		return in.contentName(&p.ConfigMapRef, p.Rollout, p.Revision)
	} else if n.Active.Digest() != has.SHA256 {
		return in.contentName(&v1alpha1.ConfigMapReference{SHA256: n.Active.Digest()}, "", 0)
	}

	return in.contentName(has, by.Name, by.Revision)
}

const localName = "the local configuration"

// sourceName names the configuration of a source.
func (in *Input) sourceName(s *v1alpha1.NodeConfigSource) string {
	if !isConfigMap(s) {
		return localName
	}

	return in.contentName(s.Content(), s.By().Name, s.By().Revision)
}

// contentName names the content of a ConfigMap that a rollout assigned, or a
// person.
func (in *Input) contentName(ref *v1alpha1.ConfigMapReference, rollout string, revision int64) string {
	c, known := in.Contents[ref.SHA256]
	switch {
	case ref.SHA256 == in.Target.ConfigMapRef.SHA256:
		return fmt.Sprintf("revision %d", in.Target.Number)
	case known && c.Stopped:
		return fmt.Sprintf("revision %d (stopped)", c.Number)
	case known:
		return fmt.Sprintf("revision %d", c.Number)
	case rollout == in.Name:
		return fmt.Sprintf("revision %d", revision)
	case rollout != "":
		return fmt.Sprintf("revision %d of rollout %s", revision, rollout)
	case ref.Name == "":
		return "another configuration"
	}

	return fmt.Sprintf("ConfigMap %s/%s", ref.Namespace, ref.Name)
}

// maxNames is how many nodes a message names.
const maxNames = 5

// joinNames returns the first names. The text before them has their number.
func joinNames(names []string) string { return printable.First(names, maxNames, ", ") }

// noNodesMessage explains why the rollout has no nodes.
func (d *planner) noNodesMessage() string {
	c := d.Counts
	if c.Selected == 0 {
		return "the selector matches no node: compare spec.nodeSelector with kubectl get nodes --show-labels"
	}

	return fmt.Sprintf("none of the %d selected nodes is available to this rollout: %d belong to other rollouts, %d were configured by a "+
		"person, %d do not use their NodeConfig: kubectl evenkeel nodes", c.Selected, c.Conflicted, c.Manual, c.Skipped)
}

// summary counts the nodes by state, and omits zero counts.
func (d *planner) summary() string {
	c := d.Counts
	out := fmt.Sprintf("%d of %s updated", c.Updated, printable.Count(c.Members, "node"))
	for _, x := range []struct {
		n    int32
		what string
	}{
		{c.Draining, "draining"}, {c.Assigned + c.Trial, "in flight"}, {c.Soaking, "soaking"}, {c.Failed, "failed"}, {c.Blocked,
			"blocked"}, {c.Skipped, "skipped"},
		{c.Stale, "with a silent agent"}, {c.Conflicted, "in other rollouts"}, {c.Manual, "set by hand"},
	} {
		if x.n > 0 {
			out += fmt.Sprintf(", %d %s", x.n, x.what)
		}
	}

	if n := d.withoutStart(); n > 0 {
		out += fmt.Sprintf("; no pod was started in the trial of %s", printable.Count(n, "node"))
	}

	return out
}

// withoutStart returns how many nodes passed the trial of the target without
// starting a pod, also not a start probe.
func (d *planner) withoutStart() (count int) {
	for i := range d.nodes {
		if n := &d.nodes[i]; d.assignedTarget(n) && d.proven(n) && n.PodStarts == v1alpha1.PodsStartUnknown {
			if result, _ := d.probed(n); result == ProbePassed {
				continue
			}

			count++
		}
	}

	return count
}

// blockedRemedies say what a person can do about Blocked nodes, by their
// reasons.
var blockedRemedies = []struct{ reason, todo string }{
	{v1alpha1.ReasonWouldEvictPods, "change the configuration, set trial.allowPodLoss in it, or move the pods away"},
	{v1alpha1.ReasonRestartWouldEvictPods, "correct the node or move the pods away: any restart would end them"},
	{v1alpha1.ReasonNeedsDrain, "cordon and drain the node"},
	{drainTimedOut, "find out which PodDisruptionBudget or pod hinders the drain: kubectl evenkeel node NODE"},
	{drainRefused, "move the pod away, or set drainOptions.unmanagedPods or drainOptions.localData"},
	{drainIgnoredPods, "move the pod away, or change drainOptions.ignoredPods"},
}

// blocked names nodes that refuse the target because of their pods, and says
// what to do.
func (d *planner) blocked() string {
	var names, todo []string
	asks := map[string]bool{}
	for i, s := range d.States {
		if s == Blocked {
			reason := d.nodeState(&d.nodes[i]).Reason
			asks[reason] = true
			names = append(names, d.nodes[i].Name+" "+reason)
		}
	}

	for _, x := range blockedRemedies {
		if asks[x.reason] {
			todo = append(todo, fmt.Sprintf("%s (%s)", x.todo, x.reason))
		}
	}

	return fmt.Sprintf("%s blocked by pods: %s: %s", printable.Count(d.Counts.Blocked, "node"), printable.First(names, 3, ", "),
		strings.Join(todo, "; "))
}

// budgetMessage says which budget is used up, and which nodes hold its places.
func (d *planner) budgetMessage() string {
	words := "the budgets of the domains are used up"
	if c := d.Counts; c.Unavailable >= c.Budget {
		words = fmt.Sprintf("maxUnavailable is used up: %d of %d", c.Unavailable, c.Budget)
	}

	return words + d.holders()
}

// holders says which nodes hold the places of the budgets; empty if all of them
// are in progress, as the summary says. The budget counts as held if at least
// half of them do not answer or are not Ready.
func (d *planner) holders() string {
	kinds := map[string][]string{}
	all, gone := 0, 0
	for i, s := range d.States {
		n := &d.nodes[i]
		if n.outside(s) || !d.countsUnavailable(n, s) {
			continue
		}

		what, answers := d.holderOf(n, s)
		kinds[what] = append(kinds[what], n.Name)
		if all++; !answers {
			gone++
		}
	}

	d.budgetHeld = gone > 0 && 2*gone >= all
	if len(kinds[inProgress]) == all {
		return ""
	}

	var words []string
	for _, what := range slices.Sorted(maps.Keys(kinds)) {
		names := ""
		if what != inProgress {
			names = " (" + joinNames(kinds[what]) + ")"
		}

		words = append(words, fmt.Sprintf("%d %s%s", len(kinds[what]), what, names))
	}

	return ", held by nodes: " + strings.Join(words, ", ")
}

const inProgress = "in progress"

// holderOf says what keeps a node from giving its place in the budgets back,
// and whether the node answers and is Ready.
func (d *planner) holderOf(n *Node, s State) (what string, answers bool) {
	switch earlier := !d.hasTarget(n) && s != Draining; {
	case earlier && n.Observed != n.Generation:
		written := Latest(n.Source.By().AssignedAt.Time, n.Observation.Blocked)
		return "whose agents have not answered since the assignment was taken back or replaced",
			d.before(d.deadline(written, d.in.Controller.AgentTimeout.Duration/2))
	case s == Failed:
		return "failed", true
	case s != Draining && n.refuses():
		return "blocked by pods", true
	case earlier:
		return "in progress with an earlier revision", true
	case s == Stale:
		return "with a silent agent", false
	case s == Skipped:
		return "NotReady or under maintenance", false
	case s == Updated:
		return "updated, but NotReady", false
	}

	return inProgress, true
}

// steps returns how many of the steps are done.
func (d *planner) steps() string {
	return fmt.Sprintf("%d/%d", min(d.Next.Step, d.lastStep()), d.lastStep())
}

func (d *planner) conditions(phase v1alpha1.RolloutPhase, message string) []metav1.Condition {
	c, reason, within := d.Counts, string(phase), d.Counts.Unavailable <= d.Counts.Budget
	moving := phase == v1alpha1.RolloutProgressing || phase == v1alpha1.RolloutWaiting ||
		phase == v1alpha1.RolloutRollingBack && !d.in.Spec.Frozen
	halt := cmp.Or(d.Next.Halt, &v1alpha1.RolloutHalt{})
	problem, details := d.problem()

	return append([]metav1.Condition{
		condition(v1alpha1.ConditionProgressing, moving, reason, reason, message),
		condition(v1alpha1.ConditionAvailable, within, "WithinBudget", "OverBudget",
			fmt.Sprintf("%d unavailable, %d allowed", c.Unavailable, c.Budget)),
		condition(v1alpha1.ConditionDegraded, problem != "", problem, "AsExpected", details),
		condition(v1alpha1.ConditionHalted, d.Next.Halt != nil, halt.Reason, "NotHalted", halt.Message),
		condition(v1alpha1.ConditionComplete, phase == v1alpha1.RolloutComplete, "AllUpdated", reason, message),
		condition(v1alpha1.ConditionJoiningStopped, d.joins.stopped, DegradedTooMany, "NotStopped", d.joins.message),
	}, d.readiness(phase, message)...)
}

// condition returns a condition with a reason if it is True, and another one
// otherwise.
func condition(kind string, is bool, reason, otherwise, message string) metav1.Condition {
	if is {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}
	}

	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: otherwise, Message: message}
}

// readiness returns the conditions for tools that wait for objects of any kind:
// Ready, and Reconciling or Stalled where one of them is True. While a rollout
// waits for a person who paused it or must approve it, neither is.
func (d *planner) readiness(phase v1alpha1.RolloutPhase, message string) []metav1.Condition {
	ready := (phase == v1alpha1.RolloutComplete || phase == v1alpha1.RolloutNoNodes) && d.Counts.Failed+d.Counts.Blocked == 0
	reason := string(phase)
	out := []metav1.Condition{condition(v1alpha1.ConditionReady, ready, reason, reason, message)}
	switch phase {
	case v1alpha1.RolloutInvalid, v1alpha1.RolloutHalted, v1alpha1.RolloutRolledBack, v1alpha1.RolloutStuck:
		out = append(out, condition(v1alpha1.ConditionStalled, true, reason, reason, message))
	case v1alpha1.RolloutProgressing, v1alpha1.RolloutWaiting, v1alpha1.RolloutRollingBack, v1alpha1.RolloutComplete:
		if !ready {
			out = append(out, condition(v1alpha1.ConditionReconciling, true, reason, reason, message))
		}
	}

	return out
}

// problem returns the most important problem, as reason and message of the
// condition Degraded; empty if there is none.
func (d *planner) problem() (reason, message string) {
	c, l := d.Counts, &d.in.LastSucceeded
	switch {
	case d.in.PinGone:
		return "RevisionGone", d.in.Invalid
	case d.in.Invalid != "":
		return "TemplateInvalid", d.in.Invalid
	case c.Failed >= d.limit():
		return DegradedTooMany, "failed: " + d.examples(false)
	case d.in.Unwritten != "":
		return "WriteFailed", "writes to nodes fail: " + d.in.Unwritten
	case c.Failed > 0:
		return "NodesFailed", "failed: " + d.examples(false)
	case d.stuck:
		return "ProgressDeadlineExceeded",
			fmt.Sprintf("no progress for %s%s", seconds(d.in.Spec.ProgressDeadlineSeconds), clause("; ", d.waitReason))
	case d.windowWait && d.window.next.IsZero():
		return "NoWindow", d.windowMessage()
	case d.gates.troubled:
		return "GatesNotPassing", d.gatesWaited()
	case d.budgetHeld:
		return "BudgetHeld", d.waitReason + ": kubectl evenkeel nodes --problems"
	case c.Blocked > 0:
		return "NodesBlocked", d.blocked()
	case d.in.LastSucceededGone:
		return "RevisionGone", fmt.Sprintf("ConfigMap %s/%s of revision %d is gone; rollback to it is impossible", l.ConfigMapRef.Namespace,
			l.ConfigMapRef.Name, l.Number)
	case c.Stale > 0:
		return "AgentsSilent", fmt.Sprintf("%s with a silent agent: kubectl evenkeel nodes --problems", printable.Count(c.Stale, "node"))
	}

	return "", ""
}
