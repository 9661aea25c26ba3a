// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

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
	forEach(t, inWorld, map[string]payload.Protection{
		"with protected fields": payload.DefaultProtection(), "without": {},
	}, func(w *world, _ string, protected payload.Protection) {
		w.options = func(o *Options) { o.Protected = protected }
		w.behaves(conf{noDump: true, healthz: 12345})
		w.up()
		w.assign("uid-quiet", conf{name: "quiet", noDump: true})
		w.pass(time.Minute)
		w.wantConfigOK("False | using last-known-good (init): refused current (UID: uid-quiet): " +
			"the kubelet did not print the effective configuration, so it cannot be compared with the local configuration (ProtectedFields)")
		w.wantStarts("")
		w.wantNoBad()
		assert.Equal(w.t, w.condition(v1alpha1.ConditionKubeletLimited), "True "+component.LimitNotComparable+": it prints nothing")
	})
}

func TestALocalConfigurationWithoutADumpReturnsToAnEmptyNodeOnly(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.pods("a")
		w.behaves(conf{noDump: true})
		w.replaceBinary("v1.36.3")
		w.assignLocal()
		w.pass(2 * time.Minute)
		w.wantStarts("", "good")
		w.wantConfigOKHas("", "the kubelet did not print the configuration, so the loss of pods cannot be predicted")
		w.pods()
		w.pass(2 * time.Minute)
		w.wantStarts("", "good", "")
	})
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
