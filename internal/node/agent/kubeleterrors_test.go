// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func (w *world) newErrors() string {
	if c := meta.FindStatusCondition(w.status().Conditions, v1alpha1.ConditionNewKubeletErrors); c != nil {
		return c.Message
	}
	return ""
}

func TestNewErrorsOfAHealthyKubeletAreWarnings(t *testing.T) {
	inWorld(t, func(w *world) {
		const usual, words = "cannot read 12: odd", "the kubelet is healthy, and logs errors that it did not log before: Failed to start node shutdown manager: no bus"
		w.kubelet.set(func(s *kubeletState) { s.confs[""] = conf{errors: []string{usual}} })
		w.start()
		w.pass(time.Minute)
		w.assign("uid-quiet", conf{name: "quiet", errors: []string{"cannot read 34: odd"}})
		w.pass(wholeTrial)
		assert.Equal(t, w.newErrors(), "")

		w.assign("uid-loud", conf{name: "loud", errors: []string{usual, "Failed to start node shutdown manager: no bus"}})
		w.pass(wholeTrial)
		assert.Equal(t, w.newErrors(), words)
		w.wantEvent("NewKubeletErrors: " + words)
		w.promoted("uid-loud")

		w.assign("uid-better", better)
		w.pass(wholeTrial)
		assert.Equal(t, w.newErrors(), "")
	})
}

// A kubelet that ran for seconds has not logged all that it usually logs: errors are compared with those of the one before it.
func TestAShortRunIsNoReferenceForNewErrors(t *testing.T) {
	for name, c := range map[string]struct {
		runs []kubeletErrors // what the kubelets logged, and whether they ran for long enough
		want kubeletErrors
	}{
		"the first one is short":  {[]kubeletErrors{{now: []string{"a"}}}, kubeletErrors{}},
		"the first one is long":   {[]kubeletErrors{{now: []string{"a"}, compared: true}}, kubeletErrors{before: []string{"a"}, changed: true}},
		"the second one is short": {[]kubeletErrors{{now: []string{"a"}, compared: true}, {now: []string{"b"}}}, kubeletErrors{before: []string{"a"}, changed: true}},
	} {
		var e kubeletErrors
		for _, run := range c.runs {
			e.now, e.compared = run.now, run.compared
			e = e.next(trial.CauseChange)
		}
		assert.NoDiff(t, cmp.Diff(c.want, e, cmp.AllowUnexported(kubeletErrors{})), name)
	}
}
