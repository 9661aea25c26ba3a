package policy

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
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
			assert.Equal(t, FailureOf(&v1alpha1.NodeConfigRolloutStatus{History: tt.history}, tt.have, rollout.Revision{Number: 7, SHA256: "a"}), tt.want, "it says")
		})
	}
}
