// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// onTrial is a decision about u, which runs on trial beside g and is healthy.
func onTrial() *decider {
	u := newConfig("u", "p1")
	return &decider{
		next: State{
			Current: AdoptedConfig{Config: u}, LastKnownGood: AdoptedConfig{Config: newConfig("g", "p0")},
			Trial:    &Trial{Revision: "u", Terms: Terms{Duration: metav1.Duration{Duration: 10 * time.Minute}, Threshold: 3}, Baseline: Baseline{API: true, Ready: true}},
			Startups: []time.Time{epoch}, Run: Run{Started: true, Config: u, Healthy: true, SinceStart: time.Minute},
		},
		o: Observed{
			Child: Child{Alive: true, Healthy: true}, Node: Node{API: true, Ready: true}, Verdicts: map[string]Verdict{"": {Outcome: Accepted}},
			Limits: Limits{TrialDuration: 10 * time.Minute, CrashLoopThreshold: 3, HealthTimeout: time.Minute, ReadyTimeout: time.Minute, APILossRollback: true},
		},
	}
}

func TestHarmToTheWorkloadIsJudgedByWhatTheAPISays(t *testing.T) {
	pressure := func(d *decider) { d.o.Node.Pressure = []string{"MemoryPressure"} }
	lost := func(d *decider) { d.o.Node.LostPods = []string{"default/web"} }
	for name, c := range map[string]struct {
		change []func(d *decider)
		want   bool
	}{
		"pressure":                                     {[]func(d *decider){pressure}, true},
		"pressure, and the API is away":                {[]func(d *decider){pressure, func(d *decider) { d.o.Node.API = false }}, false},
		"pressure, and the runtime is down":            {[]func(d *decider){pressure, func(d *decider) { d.o.Node.RuntimeDown = true }}, false},
		"pressure, and the API was away before":        {[]func(d *decider){pressure, func(d *decider) { d.next.Trial.Baseline.API = false }}, false},
		"pressure, as before":                          {[]func(d *decider){pressure, func(d *decider) { d.next.Trial.Baseline.Pressure = []string{"MemoryPressure"} }}, false},
		"pressure at the start":                        {[]func(d *decider){pressure, func(d *decider) { d.next.Run.SinceStart = 0 }}, false},
		"a lost pod":                                   {[]func(d *decider){lost}, true},
		"a lost pod, and the API is away":              {[]func(d *decider){lost, func(d *decider) { d.o.Node.API = false }}, false},
		"a lost pod at the start":                      {[]func(d *decider){lost, func(d *decider) { d.next.Run.SinceStart = 0 }}, false},
		"a lost pod, which is allowed":                 {[]func(d *decider){lost, func(d *decider) { d.next.Trial.Terms.AllowPodLoss = true }}, false},
		"a lost pod, and the API was away at adoption": {[]func(d *decider){lost, func(d *decider) { d.next.Trial.Baseline.API = false }}, true},
		"nothing": {nil, false},
	} {
		d := onTrial()
		for _, change := range c.change {
			change(d)
		}

		d.judgeTrial()
		got := slices.ContainsFunc(d.next.Bad, func(b BadConfig) bool { return b.Failure == v1alpha1.ReasonWorkloadHarmed })
		assert.That(t, got == c.want, "%s: bad are %+v", name, d.next.Bad)
	}
}

func TestOnlyAnUnexplainedLossIsProvisional(t *testing.T) {
	for _, unexplained := range []bool{false, true} {
		for _, pressure := range [][]string{nil, {"MemoryPressure"}} {
			d := onTrial()
			d.o.Node.LostPods, d.o.Node.LossUnexplained, d.o.Node.Pressure = []string{"default/web"}, unexplained, pressure
			d.judgeTrial()
			want := unexplained && pressure == nil
			got := d.next.Bad[0]
			assert.That(t, got.Provisional == want && (d.next.Trial != nil) == want,
				"unexplained %t, pressure %v: %+v, trial %+v", unexplained, pressure, got, d.next.Trial)
		}
	}
}

func TestTheAPIIsProbedIfAnotherConfigurationCanRun(t *testing.T) {
	invalid := func(d *decider) { d.o.Verdicts[""] = Verdict{Outcome: Rejected} }
	again := func(d *decider) { d.next.LastKnownGood = d.next.Current } // last-known-good itself is on trial
	for name, c := range map[string]struct {
		change []func(d *decider)
		want   bool
	}{
		"it was lost early":                      {nil, true},
		"it was lost later":                      {[]func(d *decider){func(d *decider) { d.next.Trial.APILostEarly = false }}, false},
		"it was lost just now":                   {[]func(d *decider){func(d *decider) { d.next.Run.APIAway = time.Minute }}, false},
		"the flag is off":                        {[]func(d *decider){func(d *decider) { d.o.Limits.APILossRollback = false }}, false},
		"only local can run":                     {[]func(d *decider){again}, true},
		"only last-known-good can run":           {[]func(d *decider){invalid}, true},
		"nothing else can run":                   {[]func(d *decider){again, invalid}, false},
		"it is not healthy for long at the same": {[]func(d *decider){func(d *decider) { d.next.Run.Unhealthy, d.next.Run.Healthy = time.Minute, false }}, false},
	} {
		d := onTrial()
		d.next.Trial.APILostEarly, d.next.Run.APIAway, d.o.Node.API = true, apiLossAfter, false
		for _, change := range c.change {
			change(d)
		}

		d.judgeTrial()
		got := d.next.Trial != nil && d.next.Trial.Fallback == APIProbe
		assert.That(t, got == c.want, "%s: trial %+v, bad are %+v", name, d.next.Trial, d.next.Bad)
	}
}

func TestNothingIsProvenWhileTheClocksArePaused(t *testing.T) {
	for name, pause := range map[string]func(n *Node){
		"": func(*Node) {}, "the API is away": func(n *Node) { n.API = false }, "the runtime is down": func(n *Node) { n.RuntimeDown = true },
	} {
		d := onTrial()
		d.next.Trial.Healthy.Duration = d.next.Trial.Terms.Duration.Duration
		pause(&d.o.Node)
		d.judgeTrial()
		promoted := d.next.LastKnownGood.Revision == "u"
		assert.That(t, promoted == (name == ""), "%q: last-known-good is %q", name, d.next.LastKnownGood.Revision)
	}
}

func TestAProbeIsJudgedByWhatLastKnownGoodDoes(t *testing.T) {
	for since, want := range map[time.Duration]int{0: 0, time.Second: 1} {
		d := onTrial()
		d.next.Trial.Fallback = APIProbe
		d.next.Run.Config, d.next.Run.SinceStart = d.next.LastKnownGood.Config, since
		d.judgeProbe()
		assert.Equal(t, len(d.next.Bad), want, since, "after the start of last-known-good, bad are:", d.next.Bad)
	}
}

func TestAStateThatHasEndedIsNoVerdict(t *testing.T) {
	d := onTrial()
	d.next.Run.Unhealthy, d.next.Run.NotReady = time.Minute, time.Minute
	d.judgeTrial()
	assert.That(t, len(d.next.Bad) == 0, "bad are %+v", d.next.Bad)
	assert.Equal(t, d.recovered(time.Hour, 4*time.Second, time.Minute), 59*time.Second, "left of an hour beyond the limit")
}

// Of last-known-good that is on trial again, local is the fallback. If that was
// invalid for long, the time in a bad state is over any limit.
func TestLastKnownGoodIsNotRejectedBeforeLocalIsKnownToRun(t *testing.T) {
	for name, tt := range map[string]struct {
		local Outcome
		node  Node
		bad   bool
	}{
		"local is not validated": {NotValidated, Node{API: true}, false},
		"local is invalid":       {Rejected, Node{API: true}, false},
		"the API is away":        {Accepted, Node{}, false},
		"the runtime is away":    {Accepted, Node{API: true, RuntimeDown: true}, false},
		"local may run":          {Accepted, Node{API: true}, true},
	} {
		for _, healthy := range []bool{true, false} {
			d := onTrial()
			d.next.LastKnownGood = d.next.Current
			d.next.Run.Healthy, d.next.Run.NotReady = healthy, time.Hour
			if !healthy {
				d.next.Run.Unhealthy = time.Hour
			}

			d.o.Intent, d.o.Child.Healthy, d.o.Node = Intent{Kind: Assigned, Config: d.next.Current.Config}, healthy, tt.node
			if d.o.Verdicts[""] = (Verdict{Outcome: tt.local}); tt.local == NotValidated {
				delete(d.o.Verdicts, "")
			}

			want := tt.bad || name == "the API is away" && !healthy // that is no reason to be unhealthy
			got := Decide(d.next, d.o)
			assert.That(t, len(got.Next.Bad) > 0 == want && (tt.local != NotValidated || len(got.Validate) != 0),
				"%s, healthy %t: bad %+v, waits for %+v", name, healthy, got.Next.Bad, got.Validate)
		}
	}
}

// failing is a decision with a last-known-good that fails in place of u, and
// has not passed a trial with this kubelet version.
func failing() *decider {
	return &decider{
		next: State{
			Current: AdoptedConfig{Config: newConfig("u", "p1")}, LastKnownGood: AdoptedConfig{Config: newConfig("g", "p0")},
			Run: Run{Started: true, Config: newConfig("g", "p0"), Crashes: 4, Counted: 4},
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
		assert.Equal(t, d.rejectLastKnownGood(c.failure, "failed"), c.handled, name, "handled")
		assert.Equal(t, len(d.next.Bad) > 0, c.bad, name, "bad are:", d.next.Bad)
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
		assert.That(t, d.action.Kind == c.want && d.action.Config.IsLocal() && len(d.toValidate) == 1 && d.toValidate[0].Revision == "u",
			"%s: %+v, to validate: %+v", name, d.action, d.toValidate)
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
		got := len(d.events) == 1 && d.events[0].Reason == eventDeadEnd && d.next.Run.DeadEnd
		assert.That(t, got == c.want && (c.want || len(d.events) == 0), "%s: %+v", name, d.events)
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
		d := onTrial()
		d.o.Child = Child{Exited: true, Spawned: true, Exit: "exit status 1"}
		c.change(d)
		d.handleExit()
		r := d.next.Run
		assert.That(t, r.Crashes == 1 && r.Counted == c.counted && len(d.next.Startups) == c.starts,
			"%s: %d crashes, %d counted, %d starts; want 1, %d, %d", name, r.Crashes, r.Counted, len(d.next.Startups), c.counted, c.starts)
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
		d.handleExit()
		assert.Equal(t, d.next.Run.LastErrors, c.want, name)
	}
}
