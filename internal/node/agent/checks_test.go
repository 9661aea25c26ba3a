// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/component"
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
