// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Stage is the progress of an assignment on a node.
type Stage int

const (
	// StageUnanswered means: the agent has not answered the assignment.
	StageUnanswered Stage = iota
	// StageUndecided means: the agent has answered, but has no final verdict
	// yet.
	StageUndecided
	// StageTrial means: the kubelet runs the configuration on trial.
	StageTrial
	// StageProven means: the kubelet runs the configuration, which is
	// last-known-good. Local needs no trial.
	StageProven
	// StageRefused means: the agent refused the configuration without stopping
	// the kubelet.
	StageRefused
	// StageRolledBack means: the trial failed, and the node rolled back.
	StageRolledBack
	// StageStuck means: a person must repair the node.
	StageStuck
	// StageReplaced means: another configuration was assigned since.
	StageReplaced
)

// Outcome is the state of an assignment on one node.
type Outcome struct {
	Stage  Stage
	Reason string // of ConfigOK, if it is for this assignment; otherwise empty
	// Words describe the outcome, to follow the node's name.
	Words string
	// Advice says what to do; may be empty.
	Advice string
}

// OutcomeOf returns the outcome of a source that was written to a NodeConfig at
// a generation.
func OutcomeOf(nc *v1alpha1.NodeConfig, source *v1alpha1.NodeConfigSource, generation int64) Outcome {
	st := &nc.Status
	switch {
	case !sameSource(nc.Spec.ConfigSource, source):
		return Outcome{Stage: StageReplaced, Words: "was assigned another configuration in the meantime"}
	case st.ObservedGeneration < generation:
		return Outcome{Stage: StageUnanswered, Words: "has not answered yet"}
	}

	ok := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionConfigOK)
	if ok == nil {
		return Outcome{Stage: StageUnanswered, Words: "has not reported a ConfigOK condition yet"}
	}

	o := Outcome{Reason: ok.Reason}
	why := printable.Line(WithoutUIDs(cmp.Or(st.Error, ok.Message)))
	runs := "it runs " + configName(nc, st.Active)
	switch {
	case ok.Status == metav1.ConditionTrue:
		return running(nc, source, ok.Reason)
	case ok.Status == metav1.ConditionFalse && provisional(st, source) && IsTrialFailure(ok.Reason): // the final verdict says why
		o.Stage, o.Words = StageUndecided, fmt.Sprintf("has no final verdict yet (%s): %s", ok.Reason, runs)
		return o
	case ok.Status != metav1.ConditionFalse || provisional(st, source):
		o.Stage, o.Words = StageUndecided, fmt.Sprintf("has no final verdict yet (%s): %s; %s", ok.Reason, why, runs)
		return o
	}

	switch {
	case IsTrialFailure(ok.Reason):
		o.Stage = StageRolledBack
		o.Words = fmt.Sprintf("rolled back to %s (%s): %s", configName(nc, st.Active), ok.Reason, why)
	case ok.Reason == v1alpha1.ReasonDeadEnd, ok.Reason == v1alpha1.ReasonLocalInvalid, ok.Reason == v1alpha1.ReasonAssignmentEnded:
		o.Stage = StageStuck
		o.Words = fmt.Sprintf("must be repaired by a person (%s): %s; %s", ok.Reason, why, runs)
	default:
		o.Stage = StageRefused
		o.Words = fmt.Sprintf("refused the configuration (%s): %s; its kubelet was not stopped: %s", ok.Reason, why, runs)
	}

	p := fleet.Pair{Config: nc}
	v := Node{Row: RowOf(p, nil, 0, time.Time{}), view: &query.NodeView{Pair: p}}
	o.Advice = v.advice(st)

	return o
}

// IsTrialFailure reports whether a reason of ConfigOK is that of a failed
// trial.
func IsTrialFailure(reason string) bool {
	return slices.Contains([]string{v1alpha1.ReasonCrashLooped, v1alpha1.ReasonNotHealthy, v1alpha1.ReasonNotReady,
		v1alpha1.ReasonWorkloadHarmed, v1alpha1.ReasonPodsCannotStart, v1alpha1.ReasonLostAPI}, reason)
}

// running returns the outcome on a node whose ConfigOK is True.
func running(nc *v1alpha1.NodeConfig, source *v1alpha1.NodeConfigSource, reason string) Outcome {
	st, ref, runs := &nc.Status, source.ConfigMapRef, "runs "+configName(nc, nc.Status.Active)
	no := Outcome{Stage: StageUndecided, Words: "has not applied the configuration yet: it " + runs}
	switch {
	case ref == nil && st.Active == nil:
		return Outcome{Stage: StageProven, Reason: reason, Words: runs}
	case ref != nil && reason == v1alpha1.ReasonAssignmentEnded:
		return Outcome{Stage: StageProven, Reason: reason, Words: runs + " again: the assignment has ended"}
	case ref == nil || st.Active == nil || st.Active.UID != ref.UID:
		return no
	}

	if t := st.Trial; t != nil {
		words := fmt.Sprintf("%s on trial: the kubelet must stay healthy for %s", runs, Span(time.Duration(t.DurationSeconds)*time.Second))
		if t.Restarts > 0 {
			words += fmt.Sprintf("; it has exited %s (more than %d fail the trial)", printable.Count(int(t.Restarts), "time"),
				t.CrashLoopThreshold)
		}

		return Outcome{Stage: StageTrial, Reason: reason, Words: JoinWords(words, printable.Line(st.Error))}
	}

	if good := st.LastKnownGood; good != nil && (good.UID == ref.UID || good.SHA256 != "" && good.SHA256 == st.Active.SHA256) {
		return Outcome{Stage: StageProven, Reason: reason, Words: runs + ", which has passed its trial and is its last-known-good configuration"}
	}

	return no
}

// provisional reports whether the agent may still withdraw its verdict that a
// source is bad.
func provisional(st *v1alpha1.NodeConfigStatus, source *v1alpha1.NodeConfigSource) bool {
	return slices.ContainsFunc(st.BadConfigs, func(b v1alpha1.BadConfig) bool {
		return b.Provisional && b.UID != "" && b.UID == source.Content().UID
	})
}

// configName names a configuration that a node reports; nil means local.
func configName(nc *v1alpha1.NodeConfig, r *v1alpha1.ConfigRevision) string {
	if r == nil {
		return "its local configuration"
	}

	words := fmt.Sprintf("ConfigMap %s/%s", r.Namespace, r.Name)
	if label := revisionLabel(nc, r); label != r.Name {
		words += " (" + label + ")"
	}

	return printable.Line(words)
}

// Runs names the configuration that a node runs according to its NodeConfig.
func Runs(nc *v1alpha1.NodeConfig) string { return configName(nc, nc.Status.Active) }

// sameSource reports whether two sources are the same object, or local, from
// the same rollout or person.
func sameSource(a, b *v1alpha1.NodeConfigSource) bool {
	if a == nil || b == nil {
		return a == b
	}

	byA, byB, inA, inB := a.By(), b.By(), a.Content(), b.Content()

	return byA.Name == byB.Name && byA.Revision == byB.Revision && byA.Attempt == byB.Attempt &&
		inA.UID == inB.UID && inA.Namespace == inB.Namespace && inA.Name == inB.Name
}
