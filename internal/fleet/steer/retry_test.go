package steer

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

func TestWhatWaitsForARetryCanBeRetried(t *testing.T) {
	for name, test := range map[string]struct {
		status v1alpha1.NodeConfigRolloutStatus
		want   string // of the error; empty: it is retried
	}{
		"nothing":         {v1alpha1.NodeConfigRolloutStatus{}, "has nothing to retry"},
		"a stop":          {v1alpha1.NodeConfigRolloutStatus{Halt: &v1alpha1.RolloutHalt{}}, ""},
		"a failed node":   {v1alpha1.NodeConfigRolloutStatus{Nodes: v1alpha1.RolloutCounts{Failed: 1}}, ""},
		"a blocked node":  {v1alpha1.NodeConfigRolloutStatus{Nodes: v1alpha1.RolloutCounts{Blocked: 1}}, ""},
		"joining stopped": {v1alpha1.NodeConfigRolloutStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionJoiningStopped, Status: "True"}}}, ""},
		"joining goes on": {v1alpha1.NodeConfigRolloutStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionJoiningStopped, Status: "False"}}}, "has nothing to retry"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &v1alpha1.NodeConfigRollout{Status: test.status}
			r.Status.UpdateRevision = &v1alpha1.RolloutRevision{Number: 2}
			_, err := retry(r, nil)
			switch {
			case test.want == "" && (err != nil || r.Spec.Retry == nil || r.Spec.Retry.Attempt != 2):
				t.Errorf("error %v, retry %+v", err, r.Spec.Retry)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}
