// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheLastOutcomeOfAContentSaysWhetherItFailed(t *testing.T) {
	entry := func(revision int64, sha256, outcome, reason string, failed int32) v1alpha1.RolloutOutcome {
		return v1alpha1.RolloutOutcome{Revision: revision, SHA256: sha256, Outcome: outcome, Reason: reason, Failed: failed, Message: reason + ": w-7 CrashLooped"}
	}
	stopped := entry(3, "a", v1alpha1.OutcomeHalted, v1alpha1.HaltTooManyFailures, 1)
	const words = "revision 3 was stopped (TooManyFailures: w-7 CrashLooped)"
	marked := held("kind: KubeletConfiguration", "3", "u1")
	marked.Annotations[v1alpha1.AnnotationStopped] = "Aborted: an operator stopped it"
	for name, tt := range map[string]struct {
		history []v1alpha1.RolloutOutcome // newest first
		have    *corev1.ConfigMap
		want    string
	}{
		"nothing":                                {nil, nil, ""},
		"it was stopped":                         {[]v1alpha1.RolloutOutcome{stopped}, nil, words},
		"another was stopped":                    {[]v1alpha1.RolloutOutcome{entry(4, "b", v1alpha1.OutcomeHalted, v1alpha1.HaltAborted, 0)}, nil, ""},
		"stopped, and tried again with success":  {[]v1alpha1.RolloutOutcome{entry(5, "a", v1alpha1.OutcomeSucceeded, "", 0), stopped}, nil, ""},
		"success, and stopped later":             {[]v1alpha1.RolloutOutcome{stopped, entry(1, "a", v1alpha1.OutcomeSucceeded, "", 0)}, nil, words},
		"stopped, and replaced without a result": {[]v1alpha1.RolloutOutcome{entry(5, "a", v1alpha1.OutcomeSuperseded, "", 0), stopped}, nil, words},
		"by an outage":                           {[]v1alpha1.RolloutOutcome{entry(3, "a", v1alpha1.OutcomeHalted, v1alpha1.HaltInconclusive, 1)}, nil, ""},
		"replaced after a failure": {[]v1alpha1.RolloutOutcome{entry(3, "a", v1alpha1.OutcomeSuperseded, "replaced by revision 4; failed", 2)}, nil,
			"revision 3 failed on 2 of its nodes (replaced by revision 4; failed: w-7 CrashLooped)"},
		"the target itself":  {[]v1alpha1.RolloutOutcome{entry(7, "a", v1alpha1.OutcomeHalted, v1alpha1.HaltAborted, 0)}, nil, ""},
		"beyond the history": {nil, marked, "revision 3 was stopped (Aborted: an operator stopped it)"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, FailureOf(&v1alpha1.NodeConfigRolloutStatus{History: tt.history}, tt.have, 7, "a"), tt.want, "it says")
		})
	}
}

// An undo to a revision that nobody has seen succeed must wait for the
// approvals of the steps.
func TestOnlyAnUndoToARevisionThatSucceededPassesThePauses(t *testing.T) {
	content := held("kind: KubeletConfiguration", "3", "u1")
	sha256 := PayloadDigest(content)
	entry := func(outcome, reason string) v1alpha1.RolloutOutcome {
		return v1alpha1.RolloutOutcome{Revision: 3, SHA256: sha256, Outcome: outcome, Reason: reason}
	}
	succeeded := entry(v1alpha1.OutcomeSucceeded, "")
	for name, tt := range map[string]struct {
		history []v1alpha1.RolloutOutcome // newest first
		current *v1alpha1.RolloutRevision
		pinned  bool
		want    bool
	}{
		"it succeeded":               {[]v1alpha1.RolloutOutcome{succeeded}, nil, true, true},
		"beyond the history":         {nil, &v1alpha1.RolloutRevision{Number: 3, ConfigMapRef: v1alpha1.ConfigMapReference{SHA256: sha256}}, true, true},
		"replaced in the next undo":  {[]v1alpha1.RolloutOutcome{entry(v1alpha1.OutcomeSuperseded, ""), succeeded}, nil, true, true},
		"replaced at its first step": {[]v1alpha1.RolloutOutcome{entry(v1alpha1.OutcomeSuperseded, "")}, nil, true, false},
		"aborted after its success":  {[]v1alpha1.RolloutOutcome{entry(v1alpha1.OutcomeHalted, v1alpha1.HaltAborted), succeeded}, nil, true, false},
		"nothing is known":           {nil, nil, true, false},
		"no undo":                    {[]v1alpha1.RolloutOutcome{succeeded}, nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := &v1alpha1.NodeConfigRollout{Status: v1alpha1.NodeConfigRolloutStatus{History: tt.history, CurrentRevision: tt.current}}
			r.Spec.AllNodes, r.Spec.Pin = true, &v1alpha1.RolloutPin{SHA256: sha256, Instead: "other"}
			p := Build(Objects{Rollout: r, Template: Template{Content: payload.Payload{SHA256: sha256}, Pinned: tt.pinned}, Settings: DefaultSettings})
			assert.Equal(t, p.Invalid, "", "invalid")
			assert.Equal(t, p.PassPauses, tt.want, "it passes the pauses")
		})
	}
}
