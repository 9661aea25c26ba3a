package controller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// statusOf returns a rollout's status after a plan.
func statusOf(o *v1alpha1.NodeConfigRollout, p *rollout.Policy, result *rollout.Result, nodes []rollout.Node) v1alpha1.NodeConfigRolloutStatus {
	st := *o.Status.DeepCopy()
	next, c := &result.Next, &result.Counts
	recordSuperseded(&st, p)
	st.ObservedGeneration = o.Generation
	st.Phase, st.Message = v1alpha1.RolloutPhase(result.Phase), policy.Cut(result.Message, v1alpha1.MaxRolloutMessage)
	if p.Target.Number != 0 {
		st.UpdateRevision = apiRevision(p.Target)
		if next.Succeeded {
			st.CurrentRevision = apiRevision(p.Target)
		}
	}
	st.Attempt, st.Step, st.StepsDone = next.Attempt, int32(next.Step), fmt.Sprintf("%d/%d", min(next.Step, len(p.Steps)), len(p.Steps))
	st.AttemptTime, st.StartTime, st.StepTime, st.ProgressTime = apiTime(next.AttemptTime), apiTime(next.Started), apiTime(next.StepTime), apiTime(next.ProgressTime)
	st.Updated = fmt.Sprintf("%d/%d", c.Updated, c.Members)
	st.Requests = policy.RequestsOf(&o.Status, p)
	st.Nodes = policy.CountsOf(*c)
	st.NextWindowTime = apiTime(result.NextWindow)
	st.FailedNodes = nil
	for _, i := range result.Failed[:min(len(result.Failed), v1alpha1.MaxFailedNodes)] {
		node := result.NodeState(i)
		st.FailedNodes = append(st.FailedNodes, v1alpha1.FailedNode{
			Name: nodes[i].Name, Reason: node.Reason, Message: policy.Cut(node.Message, policy.MaxErrorKept),
		})
	}
	if next.Halt != nil && o.Status.Halt != nil && len(st.FailedNodes) < len(o.Status.FailedNodes) {
		st.FailedNodes = o.Status.FailedNodes // the nodes were rolled back; keep the cause of the stop
	}
	st.DrainingNodes = drainingNodes(p, result, nodes)
	st.Preflight = nil
	if r := next.Preflight; r != nil {
		st.Preflight = &v1alpha1.RolloutPreflight{Revision: next.Revision, Attempt: next.Attempt, PreflightResult: policy.PreflightResultFor(r)}
	}
	st.Gates = gateStatus(next.Gates)
	st.Halt = nil
	if h := next.Halt; h != nil {
		st.Halt = &v1alpha1.RolloutHalt{
			Revision: h.Revision, Attempt: h.Attempt, Reason: h.Reason, Message: policy.Cut(h.Message, v1alpha1.MaxRolloutMessage),
			Time: metav1.NewTime(h.Time), Rollback: h.Rollback,
		}
	}
	st.Conditions = slices.DeleteFunc(st.Conditions, func(c metav1.Condition) bool { // Reconciling and Stalled exist only where they are True
		return !slices.ContainsFunc(result.Conditions, func(x rollout.Condition) bool { return x.Type == c.Type })
	})
	for _, x := range result.Conditions {
		meta.SetStatusCondition(&st.Conditions, metav1.Condition{
			Type: x.Type, Status: metav1.ConditionStatus(x.Status), Reason: x.Reason, Message: policy.Cut(x.Message, v1alpha1.MaxRolloutMessage),
			ObservedGeneration: o.Generation, LastTransitionTime: metav1.NewTime(p.Now),
		})
	}
	recordOutcome(&st, p, result)
	updateTargetUID(&st, p.Target)
	st.History = st.History[:min(len(st.History), historyLimit(o), v1alpha1.MaxHistory)]
	if len(st.History) == 0 {
		st.History = nil
	}
	return st
}

// drainingNodes returns the first nodes with the taint of a drain of the rollout, or that are about to get it.
func drainingNodes(p *rollout.Policy, result *rollout.Result, nodes []rollout.Node) []v1alpha1.DrainingNode {
	var all []v1alpha1.DrainingNode
	for _, i := range result.Draining {
		n := &nodes[i]
		d := v1alpha1.DrainingNode{Name: n.Name, Since: metav1.NewTime(n.Drain.Since), Message: "the drain begins"}
		if n.Drain.Rollout == "" {
			d.Since = metav1.NewTime(p.Now)
		} else {
			d.Message = policy.Cut(result.NodeState(i).Message, v1alpha1.MaxOutcomeMessage)
		}
		all = append(all, d)
	}
	return all
}

// updateTargetUID writes the UID of the target's ConfigMap, which may have been created again, into the other places that name
// the same content.
func updateTargetUID(st *v1alpha1.NodeConfigRolloutStatus, target rollout.Revision) {
	same := func(name, sha256 string) bool { return name == target.Name && sha256 != "" && sha256 == target.SHA256 }
	for i := range st.History {
		if h := &st.History[i]; same(h.ConfigMap, h.SHA256) {
			h.UID = types.UID(target.UID)
		}
	}
	if v := st.CurrentRevision; v != nil && same(v.ConfigMapRef.Name, v.ConfigMapRef.SHA256) {
		v.ConfigMapRef.UID = types.UID(target.UID)
	}
}

// recordSuperseded adds the outcome of a revision that another one replaces before it succeeded or was stopped.
func recordSuperseded(st *v1alpha1.NodeConfigRolloutStatus, p *rollout.Policy) {
	was := st.UpdateRevision
	if was == nil || was.Number == p.Target.Number || p.Target.Number == 0 {
		return
	}
	if slices.ContainsFunc(st.History, func(h v1alpha1.RolloutOutcome) bool { return h.Revision == was.Number }) { // a stop stays, also after a retry
		return
	}
	message := fmt.Sprintf("replaced by revision %d", p.Target.Number)
	var failed []string
	for _, f := range st.FailedNodes {
		failed = append(failed, f.Name+" "+f.Reason)
	}
	if len(failed) > 0 {
		message += "; failed: " + rollout.JoinNames(failed)
	}
	addOutcome(st, v1alpha1.RolloutOutcome{
		Revision: was.Number, ConfigMap: was.ConfigMapRef.Name, UID: was.ConfigMapRef.UID, SHA256: was.ConfigMapRef.SHA256, Outcome: v1alpha1.OutcomeSuperseded,
		Message:   policy.Cut(message, policy.MaxErrorKept),
		StartTime: st.StartTime, EndTime: apiTime(p.Now), Updated: st.Nodes.Updated, Failed: st.Nodes.Failed, Requests: requestsAbout(st, was.Number),
	}, "")
}

// requestsAbout returns the requests in a status about a revision, for its outcome.
func requestsAbout(st *v1alpha1.NodeConfigRolloutStatus, revision int64) (out []v1alpha1.RolloutRequest) {
	for _, r := range st.Requests {
		if r.Revision == revision {
			out = append(out, r)
		}
	}
	return out
}

// recordOutcome adds the outcome of the target once it has succeeded or was stopped.
func recordOutcome(st *v1alpha1.NodeConfigRolloutStatus, p *rollout.Policy, result *rollout.Result) {
	next := &result.Next
	out := v1alpha1.RolloutOutcome{
		Revision: next.Revision, ConfigMap: p.Target.Name, UID: types.UID(p.Target.UID), SHA256: p.Target.SHA256, StartTime: st.StartTime, EndTime: apiTime(p.Now),
		Updated: st.Nodes.Updated, Failed: st.Nodes.Failed, Requests: requestsAbout(st, next.Revision),
	}
	switch h := next.Halt; {
	case next.Revision == 0:
		return
	case h != nil:
		message := h.Message
		if h.Attempt > 1 {
			message = fmt.Sprintf("attempt %d: %s", h.Attempt, message)
		}
		out.Outcome, out.Reason, out.Message = v1alpha1.OutcomeHalted, h.Reason, policy.Cut(policy.StopMessage(h.Reason, message), policy.MaxErrorKept)
		if result.Phase == rollout.PhaseRolledBack {
			out.Outcome = v1alpha1.OutcomeRolledBack
		}
	case next.Succeeded:
		out.Outcome = v1alpha1.OutcomeSucceeded
	default:
		return
	}
	addOutcome(st, out, result.Where)
}

// addOutcome adds an outcome to the history, newest first, one for each revision. An existing entry changes only if the outcome
// does, and keeps what is said about the stops of earlier attempts. where says what nodes run after a rollback; may be empty.
func addOutcome(st *v1alpha1.NodeConfigRolloutStatus, out v1alpha1.RolloutOutcome, where string) {
	add := func(words string) {
		out.Message = policy.Cut(strings.TrimPrefix(out.Message+"; "+words, "; "), v1alpha1.MaxOutcomeMessage)
	}
	i := slices.IndexFunc(st.History, func(h v1alpha1.RolloutOutcome) bool { return h.Revision == out.Revision })
	if i < 0 {
		i = len(st.History)
		st.History = append(st.History, v1alpha1.RolloutOutcome{})
	}
	h := st.History[i]
	same := strings.HasPrefix(h.Message, out.Message) // the same stop, or a success
	switch {
	case same && (h.Outcome == out.Outcome || h.Outcome == v1alpha1.OutcomeRolledBack && out.Outcome == v1alpha1.OutcomeHalted):
		return
	case same && out.Outcome == v1alpha1.OutcomeRolledBack:
		out.Updated, out.Failed, out.Message = h.Updated, h.Failed, h.Message // as of the stop: now no node has the revision
	case h.Message != "":
		add("earlier: " + strings.TrimPrefix(h.Message, "earlier: "))
	}
	if where != "" {
		add(where)
	}
	st.History[i] = out
	slices.SortStableFunc(st.History, func(a, b v1alpha1.RolloutOutcome) int { return cmp.Compare(b.Revision, a.Revision) })
}

func apiRevision(r rollout.Revision) *v1alpha1.RolloutRevision {
	return &v1alpha1.RolloutRevision{Number: r.Number, ConfigMapRef: v1alpha1.ConfigMapReference{
		Namespace: r.Namespace, Name: r.Name, UID: types.UID(r.UID), SHA256: r.SHA256,
	}}
}

func apiTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return new(metav1.NewTime(t))
}

// changesOf reports whether a status has changed, and whether a decision has, which must be written before nodes are moved.
// Other changes, such as counts, may be written later.
func changesOf(was, is *v1alpha1.NodeConfigRolloutStatus) (changed, decided bool) {
	if equality.Semantic.DeepEqual(was, is) {
		return false, false
	}
	return true, !equality.Semantic.DeepEqual(decisionsOf(was), decisionsOf(is))
}

// decisionsOf returns a status without observations.
func decisionsOf(st *v1alpha1.NodeConfigRolloutStatus) *v1alpha1.NodeConfigRolloutStatus {
	out := st.DeepCopy()
	out.Controller = nil                        // for other programs
	out.Requests, out.NextWindowTime = nil, nil // for people
	out.Message, out.Updated, out.Nodes, out.ProgressTime, out.FailedNodes = "", "", v1alpha1.RolloutCounts{}, nil, nil
	for i := range out.Conditions {
		out.Conditions[i].Message = ""
	}
	for i := range out.DrainingNodes {
		out.DrainingNodes[i].Message = ""
	}
	if p := out.Preflight; p != nil && p.EndTime == nil {
		p.PreflightResult = v1alpha1.PreflightResult{StartTime: p.StartTime}
	}
	for i := range out.Gates { // a failed evaluation changes Failures, and is written with its time
		out.Gates[i].Value, out.Gates[i].Time, out.Gates[i].Message = "", nil, ""
	}
	return out
}
