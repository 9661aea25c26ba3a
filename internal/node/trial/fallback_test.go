// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// failing is a decision with a last-known-good that fails in place of u, and
// has not passed a trial with this kubelet version.
func failing() *decider {
	return &decider{
		next: State{
			Current: AdoptedConfig{Config: Config{Revision: "u", ConfigRevision: v1alpha1.ConfigRevision{UID: "u", SHA256: "p1"}}}, LastKnownGood: AdoptedConfig{Config: Config{Revision: "g", ConfigRevision: v1alpha1.ConfigRevision{UID: "g", SHA256: "p0"}}},
			Run: Run{Started: true, Config: Config{Revision: "g", ConfigRevision: v1alpha1.ConfigRevision{UID: "g", SHA256: "p0"}}, Crashes: 4, Counted: 4},
		},
		o: Observed{Limits: Limits{CrashLoopThreshold: 3}, Verdicts: map[string]Verdict{"": {Outcome: Accepted}}},
	}
}

func TestAnUnprovenLastKnownGoodIsGivenUpForLocal(t *testing.T) {
	for name, c := range map[string]struct {
		failure string
		change  func(d *decider)
		handled bool // no dead end
		bad     bool
	}{
		"it crashes":                         {v1alpha1.ReasonCrashLooped, func(*decider) {}, true, true},
		"it is not healthy":                  {v1alpha1.ReasonNotHealthy, func(*decider) {}, true, true},
		"it crashes in an outage":            {v1alpha1.ReasonCrashLooped, func(d *decider) { d.o.Node.RuntimeDown = true }, true, false},
		"it crashed in an outage before":     {v1alpha1.ReasonCrashLooped, func(d *decider) { d.next.Run.Counted = 3 }, true, false},
		"it is not healthy, and rarely died": {v1alpha1.ReasonNotHealthy, func(d *decider) { d.next.Run.Counted = 0 }, true, true},
		"local runs":                         {v1alpha1.ReasonCrashLooped, func(d *decider) { d.next.Run.Config = Config{} }, false, false},
		"another configuration runs":         {v1alpha1.ReasonCrashLooped, func(d *decider) { d.next.Run.Config.Revision = "v" }, false, false},
		"it is current":                      {v1alpha1.ReasonCrashLooped, func(d *decider) { d.next.Current = d.next.LastKnownGood }, false, false},
		"it has passed a trial":              {v1alpha1.ReasonCrashLooped, func(d *decider) { d.next.Promoted = []Promotion{{Revision: "g", SHA256: "p0"}} }, false, false},
		"it is revoked":                      {v1alpha1.ReasonCrashLooped, func(d *decider) { d.next.Revoked = []types.UID{"g"} }, false, false},
		"local is invalid":                   {v1alpha1.ReasonCrashLooped, func(d *decider) { d.o.Verdicts[""] = Verdict{Outcome: Rejected} }, false, false},
	} {
		d := failing()
		c.change(d)
		if handled := d.rejectLastKnownGood(c.failure, "failed"); handled != c.handled || (len(d.next.Bad) > 0) != c.bad {
			t.Errorf("%s: handled %t, bad are %+v", name, handled, d.next.Bad)
		}
	}
}

func TestARollbackWaitsOnlyForTheVerdictOnItsTarget(t *testing.T) {
	for name, c := range map[string]struct {
		change func(d *decider)
		want   ActionKind
	}{
		"current was forgotten, and may run again": {func(*decider) {}, Restart},
		"current is what it goes back to":          {func(d *decider) { d.next.LastKnownGood = d.next.Current }, None},
		"what runs is not bad":                     {func(d *decider) { d.next.Bad = nil }, None},
	} {
		d := failing()
		d.o.Child.Alive, d.next.Bad = true, []BadConfig{{Revision: "g", ConfigRevision: v1alpha1.ConfigRevision{SHA256: "p0"}}}
		c.change(d)
		_ = d.chooseConfig() && d.chooseAction()
		if d.action.Kind != c.want || !d.action.Config.IsLocal() || len(d.toValidate) != 1 || d.toValidate[0].Revision != "u" {
			t.Errorf("%s: %+v, to validate: %+v", name, d.action, d.toValidate)
		}
	}
}

func TestADeadEndIsReportedOnceForWhatStays(t *testing.T) {
	for name, c := range map[string]struct {
		change func(d *decider)
		want   bool
	}{
		"last-known-good":            {func(*decider) {}, true},
		"current":                    {func(d *decider) { d.next.Run.Config = d.next.Current.Config }, true},
		"local":                      {func(d *decider) { d.next.Run.Config = Config{} }, true},
		"it is about to be replaced": {func(d *decider) { d.next.Run.Config.Revision = "v" }, false},
		"it is revoked":              {func(d *decider) { d.next.Revoked = []types.UID{"g"} }, false},
		"it was reported before":     {func(d *decider) { d.next.Run.DeadEnd = true }, false},
	} {
		d := failing()
		c.change(d)
		d.reportDeadEnd("failed", "")
		if got := len(d.events) == 1 && d.events[0].Reason == eventDeadEnd && d.next.Run.DeadEnd; got != c.want || !c.want && len(d.events) > 0 {
			t.Errorf("%s: %+v", name, d.events)
		}
	}
}

func TestOnlyFailuresOfTheConfigurationAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(d *decider)
		counted int // exits that can lead to a verdict on the fallback
		starts  int // in the trial
	}{
		"it exited":                      {func(*decider) {}, 1, 2},
		"it could not be started":        {func(d *decider) { d.o.Child.Spawned = false }, 0, 1},
		"the runtime is down":            {func(d *decider) { d.o.Node.RuntimeDown = true }, 0, 1},
		"the runtime was down before":    {func(d *decider) { d.next.Run.Outage = true }, 0, 1},
		"and at the last exit, too":      {func(d *decider) { d.next.Run.Outage, d.next.Run.Excused = true, true }, 1, 2},
		"the node shuts down":            {func(d *decider) { d.o.Node.ShuttingDown = true }, 0, 1},
		"the trial has begun just now":   {func(d *decider) { d.trialBegan = true }, 1, 1},
		"the fallback runs":              {func(d *decider) { d.next.Run.Config.Revision = "g" }, 1, 1},
		"the trial waits":                {func(d *decider) { d.next.Trial.Fallback = Inconclusive }, 1, 1},
		"the configuration is forbidden": {func(d *decider) { d.next.Revoked = []types.UID{"u"} }, 1, 1},
	} {
		u := Config{Revision: "u", ConfigRevision: v1alpha1.ConfigRevision{UID: "u", SHA256: "p1"}}
		d := &decider{
			next: State{Current: AdoptedConfig{Config: u}, Trial: &Trial{Revision: "u", Terms: Terms{Threshold: 3}}, Startups: []time.Time{epoch}, Run: Run{Started: true, Config: u}},
			o:    Observed{Child: Child{Exited: true, Spawned: true, Exit: "exit status 1"}},
		}
		c.change(d)
		d.handleExit()
		if r := d.next.Run; r.Crashes != 1 || r.Counted != c.counted || len(d.next.Startups) != c.starts {
			t.Errorf("%s: %d crashes, %d counted, %d starts; want 1, %d, %d", name, r.Crashes, r.Counted, len(d.next.Startups), c.counted, c.starts)
		}
	}
}

// In a long crash loop the reported errors do not change at each exit.
func TestTheErrorsOfALongCrashLoopAreReplacedRarely(t *testing.T) {
	for name, c := range map[string]struct {
		crashes int
		last    string
		want    string
	}{
		"it began":             {maxStarts, "exit status 1", "new"},
		"it is long":           {maxStarts + 1, "exit status 1", "old"},
		"it is long and stale": {2 * staleErrors, "exit status 1", "new"},
		"the exit is another":  {maxStarts + 1, "exit status 2", "new"},
	} {
		d := &decider{next: State{Run: Run{Started: true, Crashes: c.crashes, LastExit: c.last, LastErrors: "old"}}, o: Observed{Child: Child{Exited: true, Exit: "exit status 1", LastErrors: "new"}}}
		if d.handleExit(); d.next.Run.LastErrors != c.want {
			t.Errorf("%s: %q, want %q", name, d.next.Run.LastErrors, c.want)
		}
	}
}
