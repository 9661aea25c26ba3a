// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestOldRejectionsAreDroppedExceptThatOfLocal(t *testing.T) {
	c := newChecks()
	for _, revision := range []string{"", "a", "runs"} {
		c.put(revision, verdict{Verdict: component.Verdict{Outcome: component.Rejected}})
	}

	soon, later := time.Now().Add(recheckAfter/2), time.Now().Add(2*recheckAfter)
	for _, tt := range []struct {
		what  string
		now   time.Time
		alive bool
		asked bool // the verdict on a is gone
	}{
		{"soon", soon, true, false},
		{"while no kubelet runs", later, false, false},
		{"later", later, true, true},
	} {
		c.dropUndecided(tt.now, "runs", tt.alive)
		verdicts := c.all()
		_, has := verdicts["a"]
		_, local := verdicts[""]
		_, runs := verdicts["runs"]
		assert.That(t, has != tt.asked && local && runs, "%s: the verdicts are %v", tt.what, verdicts)
	}
}

func TestDryRunsWithoutAVerdictAreCountedInARow(t *testing.T) {
	undecided := component.Verdict{Outcome: component.CouldNotTell, CandidateOnly: true}
	for what, interrupt := range map[string]func(*checks){
		"a verdict":                     func(c *checks) { c.countUndecided("u", component.Verdict{Outcome: component.Accepted}) },
		"an outage":                     func(c *checks) { c.countUndecided("u", component.Verdict{Outcome: component.CouldNotTell}) },
		"it is assigned again":          func(c *checks) { c.drop("u") },
		"another kubelet":               (*checks).clear,
		"another one was assigned then": func(c *checks) { c.put("u", verdict{Verdict: undecided}); c.keep("other") },
	} {
		c := newChecks()
		for i, want := range []component.Outcome{component.CouldNotTell, component.CouldNotTell, component.Rejected} {
			if i == 2 {
				interrupt(&c)
				assert.Equal(t, c.countUndecided("u", undecided).Outcome, component.CouldNotTell, what, "the first one after it")
				c.countUndecided("u", undecided)
			}

			assert.Equal(t, c.countUndecided("u", undecided).Outcome, want, what, "dry run", i+1)
		}
	}
}

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
			w.wantConfigOKHas("", "the kubelet did not print the configuration, so the loss of pods cannot be predicted")
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
		w.wantError("3 dry runs ended without a verdict, while the local configuration passed each time: it was killed")
		assert.Equal(t, len(w.status().BadConfigs), 1, "bad configurations")
		w.pass(time.Hour)
		w.wantDryRuns("alone", maxUndecidedAlone)
		w.wantStarts("")
	})
}
