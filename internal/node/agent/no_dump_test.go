// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAKubeletWithoutADumpRunsTheLocalConfigurationOnly(t *testing.T) {
	for _, protected := range []payload.Protection{payload.DefaultProtection(), {}} {
		inWorld(t, func(w *world) {
			w.options = func(o *Options) { o.Protected = protected }
			w.kubelet.set(func(s *kubeletState) { s.confs[""] = conf{noDump: true, healthz: 12345} })
			w.start()
			w.runs("")
			w.assign("uid-quiet", conf{name: "quiet", noDump: true})
			w.pass(time.Minute)
			w.wantConfigOK("False | using last-known-good (init): refused current (UID: uid-quiet): " +
				"the kubelet did not print the effective configuration, so it cannot be compared with the local configuration (ProtectedFields)")
			w.wantStarts("")
			w.wantNoBad()
			c := meta.FindStatusCondition(w.status().Conditions, v1alpha1.ConditionKubeletLimited)
			assert.That(t, c != nil && c.Status == "True" && c.Reason == component.LimitNotComparable && c.Message == "it prints nothing",
				"the condition is %+v", c)
		})
	}
}

func TestALocalConfigurationWithoutADumpReturnsToAnEmptyNodeOnly(t *testing.T) {
	for _, pods := range [][]string{nil, {"a"}} {
		inGoodWorld(t, func(w *world) {
			w.pods(pods...)
			w.kubelet.set(func(s *kubeletState) { s.confs[""] = conf{noDump: true}; s.identity = "inode-2" })
			w.assignLocal()
			w.pass(2 * time.Minute)
			if len(pods) == 0 {
				w.wantStarts("", "good", "")
				return
			}

			w.wantStarts("", "good")
			got := w.configOK()
			assert.That(t, strings.Contains(got, "the kubelet did not print the configuration, so the loss of pods cannot be predicted"), "%s", got)
		})
	}
}

func TestConfigThatAloneEndsItsDryRunsIsRejected(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.assign("uid-alone", conf{name: "alone", alone: true})
		w.pass(10 * time.Second)
		w.wantConfigOK("Unknown | using last-known-good (init): could not validate current (UID: uid-alone): it was killed (CouldNotValidate)")
		w.pass(5 * time.Minute)
		w.wantDryRuns("alone", maxUndecidedAlone)
		s := w.status()
		if len(s.BadConfigs) != 1 || !strings.Contains(s.Error, "3 dry runs ended without a verdict, while the local configuration passed each time: it was killed") {
			t.Errorf("bad: %+v, error %q", s.BadConfigs, s.Error)
		}

		w.pass(time.Hour)
		w.wantDryRuns("alone", maxUndecidedAlone)
		w.wantStarts("")
	})
}

func TestUndecidedDryRunIsRepeatedIfLocalFailsToo(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.assign("uid-doubtful", conf{name: "doubtful", doubtful: true})
		w.pass(3 * time.Hour)
		w.wantNoBad()
		n := w.kubelet.checked("doubtful")
		assert.That(t, n > maxUndecidedAlone, "%d dry runs", n)
	})
}
