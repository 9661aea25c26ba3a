package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The phases, as the API defines them.
const (
	PhaseInvalid          = "Invalid"
	PhaseFrozen           = "Frozen"
	PhaseRollingBack      = "RollingBack"
	PhaseRolledBack       = "RolledBack"
	PhaseHalted           = "Halted"
	PhaseComplete         = "Complete"
	PhasePaused           = "Paused"
	PhaseAwaitingApproval = "AwaitingApproval"
	PhaseWaiting          = "Waiting"
	PhaseStuck            = "Stuck"
	PhaseNoNodes          = "NoNodes"
	PhaseProgressing      = "Progressing"
)

// DegradedTooMany is the reason of Degraded when the number of failed nodes has reached the limit.
const DegradedTooMany = "TooManyFailures"

// The types of conditions, as the API defines them.
const (
	conditionProgressing    = "Progressing"
	conditionAvailable      = "Available"
	conditionDegraded       = "Degraded"
	conditionHalted         = "Halted"
	conditionComplete       = "Complete"
	conditionJoiningStopped = "JoiningStopped"
	conditionReady          = "Ready"
	conditionReconciling    = "Reconciling"
	conditionStalled        = "Stalled"
)

// result returns what was decided.
func (d *planner) result() Result {
	d.counts.RollingBack = d.moving
	phase, message := d.describe()
	if d.joiningMessage != "" {
		message += "; " + d.joiningMessage
	}
	if d.p.Replaced != "" {
		message += "; spec.pin holds this revision in place of " + d.p.Replaced
	}
	if d.p.TargetFailed != "" && d.next.Halt == nil && !d.next.Succeeded {
		message += "; the same content failed before: " + d.p.TargetFailed
	}
	var draining []int
	for i := range d.nodes {
		if n := &d.nodes[i]; n.Drain.Rollout != "" && n.Drain.Rollout == d.p.DrainID && len(draining) < MostFailed {
			draining = append(draining, i)
		}
	}
	for _, t := range d.taints { // what begins is shown before it begins
		if n := &d.nodes[t.Node]; n.Drain.Rollout == "" && len(draining) < MostFailed {
			draining = append(draining, t.Node)
		}
	}
	return Result{
		Observations: d.observations, Next: d.next, Moves: d.moves, Ask: d.ask, Taints: d.taints, Evict: d.evict, HandOver: d.handOver, Startup: d.startups, Draining: draining, States: d.states, Counts: d.counts, Failed: d.failed,
		Measure:   d.measure,
		NodeState: func(i int) NodeState { return d.nodeState(&d.nodes[i]) },
		Phase:     phase, Message: message, Where: d.where, Conditions: d.conditions(phase, message), Events: d.events,
		Inspect: d.disruption.inspect, ReadBudgets: d.disruption.read,
		NextWindow: d.nextWindow(), RequeueAfter: d.requeueAfter,
	}
}

// describe returns the rollout's phase, and a message that says what a person can do.
func (d *planner) describe() (phase, message string) {
	revision := fmt.Sprintf("revision %d", d.next.Revision)
	h := d.next.Halt
	switch {
	case d.p.Invalid != "" && h != nil:
		_, message := d.describeHalt(revision, h)
		return PhaseInvalid, d.p.Invalid + "; " + message
	case d.p.Invalid != "":
		return PhaseInvalid, d.p.Invalid
	case h != nil:
		return d.describeHalt(revision, h)
	case d.p.Frozen:
		return PhaseFrozen, "spec.frozen" + because(d.p.FrozenReason) + "; no node moves, not even new nodes; " + d.summary() + "; continue with: kubectl evenkeel rollout unfreeze " + d.p.Name
	case d.counts.Members == 0:
		return PhaseNoNodes, d.noNodesMessage()
	case d.complete:
		return PhaseComplete, revision + ": " + d.summary()
	case d.p.Paused:
		return PhasePaused, fmt.Sprintf("spec.paused%s; %s: %s; continue with: kubectl evenkeel rollout resume %s", because(d.p.PausedReason), revision, d.summary(), d.p.Name)
	case d.asking:
		return PhaseWaiting, revision + ": " + d.preflightMessage()
	case d.waitsForGate:
		return PhaseWaiting, fmt.Sprintf("%s: %s steps done; %s; %s", revision, d.steps(), d.gatesWaited(), d.summary())
	case d.pausing() && d.p.Steps[d.next.Step].Pause == 0:
		return PhaseAwaitingApproval, fmt.Sprintf("%s: %s steps done; waiting for approval: kubectl evenkeel rollout promote %s; %s", revision, d.steps(), d.p.Name, d.summary())
	case d.pausing():
		return PhaseWaiting, fmt.Sprintf("%s: %s steps done; waiting until %s; %s", revision, d.steps(), d.next.StepTime.Add(d.p.Steps[d.next.Step].Pause).UTC().Format("15:04:05 MST"), d.summary())
	case d.windowWait:
		return PhaseWaiting, fmt.Sprintf("%s: %s; %s", revision, d.summary(), d.windowMessage())
	case d.stuck:
		return PhaseStuck, fmt.Sprintf("%s: no progress for %s: %s%s", revision, d.p.ProgressDeadline, d.summary(), d.waitSuffix())
	}
	return PhaseProgressing, revision + ": " + d.summary() + d.waitSuffix()
}

// because returns ": REASON", or "" without a reason.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func (d *planner) waitSuffix() string {
	if d.waitReason == "" {
		return ""
	}
	return "; " + d.waitReason
}

func (d *planner) describeHalt(revision string, h *Halt) (phase, message string) {
	what := fmt.Sprintf("%s was stopped (%s): %s", revision, h.Reason, h.Message)
	if d.p.Frozen {
		what += "; spec.frozen" + because(d.p.FrozenReason) + "; no node moves"
	}
	node := ""
	if len(d.failed) > 0 {
		node = d.nodes[d.failed[0]].Name
	}
	again := "; " + Remedies(d.p.Name, h.Reason, h.Message, node, d.lastGood().Number != 0 && !d.lastGood().Gone)
	switch {
	case !h.Rollback:
		return PhaseHalted, what + again
	case d.lastGood().Gone:
		return PhaseHalted, fmt.Sprintf("%s; cannot roll back: ConfigMap %s/%s of revision %d is gone%s", what, d.p.LastSucceeded.Namespace, d.p.LastSucceeded.Name, d.p.LastSucceeded.Number, again)
	case d.leaving > 0:
		return PhaseRollingBack, fmt.Sprintf("%s; %s to roll back, %d in progress: %s", what, plural(d.leaving, "node"), d.moving, d.goingTo.words("to"))
	}
	gone := "; its nodes were rolled back"
	if n := len(d.remaining); n > 0 {
		still := "still run it"
		if n == 1 {
			still = "still runs it"
		}
		gone = fmt.Sprintf("; the rollback was assigned to all its nodes, but %s %s: %s", plural(n, "node"), still, JoinNames(d.remaining))
	}
	if d.locate(); d.where != "" {
		gone += "; " + d.where
	}
	return PhaseRolledBack, what + gone + again
}

// counter counts nodes by what describes them.
type counter map[string]int

// words lists the counts, the largest first, with a preposition: 26 to revision 1, 23 to the local configuration.
func (c counter) words(preposition string) string {
	var parts []string
	for _, what := range slices.SortedFunc(maps.Keys(c), func(a, b string) int { return cmp.Or(c[b]-c[a], strings.Compare(a, b)) }) {
		parts = append(parts, fmt.Sprintf("%d %s %s", c[what], preposition, what))
	}
	return strings.Join(parts, ", ")
}

// locate says how many members run what, after a rollback.
func (d *planner) locate() {
	var nodes []*Node
	for i, s := range d.states {
		if n := &d.nodes[i]; s != Conflicted && s != Manual && n.OtherSource == "" && n.Reported {
			nodes = append(nodes, n)
		}
	}
	if len(nodes) > 0 {
		d.where = "now " + d.p.RunWords(nodes)
	}
}

// RunWords says how many nodes run what: 26 on revision 1, 23 on the local configuration.
func (p *Policy) RunWords(nodes []*Node) string {
	run := counter{}
	for _, n := range nodes {
		run[p.RunsName(n)]++
	}
	return run.words("on")
}

// RunsName names the configuration that a node runs.
func (p *Policy) RunsName(n *Node) string {
	if n.Active.SHA256 == "" {
		return p.sourceName(&Source{})
	}
	for _, s := range []*Source{&n.Source, n.Source.Previous} {
		if s != nil && n.runs(s) {
			return p.sourceName(s)
		}
	}
	return p.sourceName(&Source{Kind: SourceConfigMap, SHA256: n.Active.SHA256})
}

// sourceName names the configuration of a source.
func (p *Policy) sourceName(s *Source) string {
	c, known := p.Contents[s.SHA256]
	switch {
	case s.Kind != SourceConfigMap:
		return "the local configuration"
	case s.SHA256 == p.Target.SHA256:
		return fmt.Sprintf("revision %d", p.Target.Number)
	case known && c.Stopped:
		return fmt.Sprintf("revision %d (stopped)", c.Number)
	case known:
		return fmt.Sprintf("revision %d", c.Number)
	case s.Rollout == p.Name:
		return fmt.Sprintf("revision %d", s.Revision)
	case s.Rollout != "":
		return fmt.Sprintf("revision %d of rollout %s", s.Revision, s.Rollout)
	case s.Name == "":
		return "another configuration"
	}
	return fmt.Sprintf("ConfigMap %s/%s", s.Namespace, s.Name)
}

// maxNames is how many nodes a message names.
const maxNames = 5

// JoinNames returns the first names, and how many more there are.
func JoinNames(names []string) string {
	if left := len(names) - maxNames; left > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), left)
	}
	return strings.Join(names, ", ")
}

// noNodesMessage explains why the rollout has no nodes.
func (d *planner) noNodesMessage() string {
	c := d.counts
	if c.Selected == 0 {
		return "the selector matches no node: compare spec.nodeSelector with kubectl get nodes --show-labels"
	}
	return fmt.Sprintf("none of the %d selected nodes is available to this rollout: %d belong to other rollouts, %d were configured by a person, %d do not use their NodeConfig: kubectl evenkeel nodes", c.Selected, c.Conflicted, c.Manual, c.Skipped)
}

// summary counts the nodes by state, and omits zero counts.
func (d *planner) summary() string {
	c := d.counts
	out := fmt.Sprintf("%d of %s updated", c.Updated, plural(c.Members, "node"))
	for _, x := range []struct {
		n    int
		what string
	}{
		{c.Draining, "draining"}, {c.Assigned + c.Trial, "in flight"}, {c.Soaking, "soaking"}, {c.Failed, "failed"}, {c.Blocked, "blocked"}, {c.Skipped, "skipped"},
		{c.Stale, "with a silent agent"}, {c.Conflicted, "in other rollouts"}, {c.Manual, "set by hand"},
	} {
		if x.n > 0 {
			out += fmt.Sprintf(", %d %s", x.n, x.what)
		}
	}
	return out
}

// blocked names nodes that refuse the target because of their pods, and says what to do.
func (d *planner) blocked() string {
	const most = 3
	var names, todo []string
	asks := map[string]bool{}
	for i, s := range d.states {
		if s != Blocked {
			continue
		}
		reason := d.nodeState(&d.nodes[i]).Reason
		asks[reason] = true
		switch {
		case len(names) < most:
			names = append(names, d.nodes[i].Name+" "+reason)
		case len(names) == most:
			names = append(names, "...")
		}
	}
	if asks[agentEvicts] {
		todo = append(todo, "change the configuration, set trial.allowPodLoss in it, or move the pods away (WouldEvictPods)")
	}
	if asks[agentRestartEvicts] {
		todo = append(todo, "correct the node or move the pods away: any restart would end them (RestartWouldEvictPods)")
	}
	if asks[agentNeedsDrain] {
		todo = append(todo, "cordon and drain the node (NeedsDrain)")
	}
	if asks[DrainTimeout] {
		todo = append(todo, "find out which PodDisruptionBudget or pod hinders the drain: kubectl evenkeel node NODE (DrainTimeout)")
	}
	if asks[DrainRefused] {
		todo = append(todo, "move the pod away, or set drainOptions.unmanagedPods or drainOptions.localData (DrainRefused)")
	}
	if asks[DrainIgnoredPods] {
		todo = append(todo, "move the pod away, or change drainOptions.ignoredPods (DrainIgnoredPods)")
	}
	return fmt.Sprintf("%s blocked by pods: %s: %s", plural(d.counts.Blocked, "node"), strings.Join(names, ", "), strings.Join(todo, "; "))
}

// budgetMessage says which budget is used up, and which nodes hold its places.
func (d *planner) budgetMessage() string {
	words := "the budgets of the domains are used up"
	if c := d.counts; c.Unavailable >= c.Budget {
		words = fmt.Sprintf("maxUnavailable is used up: %d of %d", c.Unavailable, c.Budget)
	}
	return words + d.holders()
}

// holders says which nodes hold the places of the budgets; empty if all of them are in progress, as the summary says. The budget counts as
// held if at least half of them do not answer or are not Ready.
func (d *planner) holders() string {
	kinds := map[string][]string{}
	all, gone := 0, 0
	for i, s := range d.states {
		n := &d.nodes[i]
		if s == Conflicted || s == Manual || n.OtherSource != "" || !d.countsUnavailable(n, s) {
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
			names = " (" + JoinNames(kinds[what]) + ")"
		}
		words = append(words, fmt.Sprintf("%d %s%s", len(kinds[what]), what, names))
	}
	return ", held by nodes: " + strings.Join(words, ", ")
}

const inProgress = "in progress"

// holderOf says what keeps a node from giving its place in the budgets back, and whether the node answers and is Ready.
func (d *planner) holderOf(n *Node, s State) (what string, answers bool) {
	switch earlier := !d.hasTarget(n) && s != Draining; {
	case earlier && n.Observed != n.Generation:
		written := n.Source.AssignedAt
		if n.Observation.Blocked.After(written) {
			written = n.Observation.Blocked
		}
		soon := d.deadline(written, d.p.AgentTimeout/2)
		d.requeueAt(soon)
		return "whose agents have not answered since the assignment was taken back or replaced", d.p.Now.Before(soon)
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

// plural returns a number with a noun.
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// steps returns how many of the steps are done.
func (d *planner) steps() string { return fmt.Sprintf("%d/%d", d.next.Step, len(d.p.Steps)) }

func (d *planner) conditions(phase, message string) []Condition {
	h, c := d.next.Halt, d.counts
	say := func(kind string, is bool, reason, otherwise, message string) Condition {
		if !is {
			return Condition{kind, "False", otherwise, message}
		}
		return Condition{kind, "True", reason, message}
	}
	moving := phase == PhaseProgressing || phase == PhaseRollingBack || phase == PhaseWaiting
	out := []Condition{
		say(conditionProgressing, moving, phase, phase, message),
		say(conditionAvailable, c.Unavailable <= c.Budget, "WithinBudget", "OverBudget", fmt.Sprintf("%d unavailable, %d allowed", c.Unavailable, c.Budget)),
		d.degraded(),
		say(conditionHalted, h != nil, "", "NotHalted", ""),
		say(conditionComplete, phase == PhaseComplete, "AllUpdated", phase, message),
		say(conditionJoiningStopped, d.joiningStopped, DegradedTooMany, "NotStopped", d.joiningMessage),
	}
	if h != nil {
		out[3].Reason, out[3].Message = h.Reason, h.Message
	}
	return append(out, d.readiness(phase, message)...)
}

// readiness returns the conditions for tools that wait for objects of any kind: Ready, and Reconciling or Stalled where one of them
// is True. While a rollout waits for a person who paused it or must approve it, neither is.
func (d *planner) readiness(phase, message string) []Condition {
	if (phase == PhaseComplete || phase == PhaseNoNodes) && d.counts.Failed+d.counts.Blocked == 0 {
		return []Condition{{conditionReady, "True", phase, message}}
	}
	out := []Condition{{conditionReady, "False", phase, message}}
	switch phase {
	case PhaseInvalid, PhaseHalted, PhaseRolledBack, PhaseStuck:
		out = append(out, Condition{conditionStalled, "True", phase, message})
	case PhaseProgressing, PhaseWaiting, PhaseRollingBack, PhaseComplete:
		out = append(out, Condition{conditionReconciling, "True", phase, message})
	}
	return out
}

// degraded returns the Degraded condition: the most important problem.
func (d *planner) degraded() Condition {
	c := d.counts
	switch {
	case d.p.PinGone:
		return Condition{conditionDegraded, "True", "RevisionGone", d.p.Invalid}
	case d.p.Invalid != "":
		return Condition{conditionDegraded, "True", "TemplateInvalid", d.p.Invalid}
	case c.Failed >= d.limit():
		return Condition{conditionDegraded, "True", DegradedTooMany, "failed: " + d.examples(false)}
	case c.Failed > 0:
		return Condition{conditionDegraded, "True", "NodesFailed", "failed: " + d.examples(false)}
	case d.stuck:
		return Condition{conditionDegraded, "True", "ProgressDeadlineExceeded", fmt.Sprintf("no progress for %s%s", d.p.ProgressDeadline, d.waitSuffix())}
	case d.windowWait && d.window.next.IsZero():
		return Condition{conditionDegraded, "True", "NoWindow", d.windowMessage()}
	case d.troubled:
		return Condition{conditionDegraded, "True", "GatesNotPassing", d.gatesWaited()}
	case d.budgetHeld:
		return Condition{conditionDegraded, "True", "BudgetHeld", d.waitReason + ": kubectl evenkeel nodes --problems"}
	case c.Blocked > 0:
		return Condition{conditionDegraded, "True", "NodesBlocked", d.blocked()}
	case d.p.LastSucceeded.Gone:
		l := d.p.LastSucceeded
		return Condition{conditionDegraded, "True", "RevisionGone", fmt.Sprintf("ConfigMap %s/%s of revision %d is gone; rollback to it is impossible", l.Namespace, l.Name, l.Number)}
	case c.Stale > 0:
		return Condition{conditionDegraded, "True", "AgentsSilent", fmt.Sprintf("%s with a silent agent: kubectl evenkeel nodes --problems", plural(c.Stale, "node"))}
	}
	return Condition{conditionDegraded, "False", "AsExpected", ""}
}
