// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// onTrial is a decision about u, which runs on trial beside g and is healthy.
func onTrial() *decider {
	u := Config{Revision: "u", ConfigRevision: v1alpha1.ConfigRevision{UID: "u", SHA256: "p1"}}
	return &decider{
		next: State{
			Current: AdoptedConfig{Config: u}, LastKnownGood: AdoptedConfig{Config: Config{Revision: "g", ConfigRevision: v1alpha1.ConfigRevision{UID: "g", SHA256: "p0"}}},
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
		if got := slices.ContainsFunc(d.next.Bad, func(b BadConfig) bool { return b.Failure == v1alpha1.ReasonWorkloadHarmed }); got != c.want {
			t.Errorf("%s: bad are %+v", name, d.next.Bad)
		}
	}
}

func TestOnlyAnUnexplainedLossIsProvisional(t *testing.T) {
	for _, unexplained := range []bool{false, true} {
		for _, pressure := range [][]string{nil, {"MemoryPressure"}} {
			d := onTrial()
			d.o.Node.LostPods, d.o.Node.LossUnexplained, d.o.Node.Pressure = []string{"default/web"}, unexplained, pressure
			d.judgeTrial()
			want := unexplained && pressure == nil
			if got := d.next.Bad[0]; got.Provisional != want || (d.next.Trial != nil) != want {
				t.Errorf("unexplained %t, pressure %v: %+v, trial %+v", unexplained, pressure, got, d.next.Trial)
			}
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
		if got := d.next.Trial != nil && d.next.Trial.Fallback == APIProbe; got != c.want {
			t.Errorf("%s: trial %+v, bad are %+v", name, d.next.Trial, d.next.Bad)
		}
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
		if promoted := d.next.LastKnownGood.Revision == "u"; promoted != (name == "") {
			t.Errorf("%q: last-known-good is %q", name, d.next.LastKnownGood.Revision)
		}
	}
}

func TestAProbeIsJudgedByWhatLastKnownGoodDoes(t *testing.T) {
	for since, want := range map[time.Duration]int{0: 0, time.Second: 1} {
		d := onTrial()
		d.next.Trial.Fallback = APIProbe
		d.next.Run.Config, d.next.Run.SinceStart = d.next.LastKnownGood.Config, since
		if d.judgeProbe(); len(d.next.Bad) != want {
			t.Errorf("%s after the start of last-known-good, bad are %+v", since, d.next.Bad)
		}
	}
}

func TestAStateThatHasEndedIsNoVerdict(t *testing.T) {
	d := onTrial()
	d.next.Run.Unhealthy, d.next.Run.NotReady = time.Minute, time.Minute
	if d.judgeTrial(); len(d.next.Bad) > 0 {
		t.Errorf("bad are %+v", d.next.Bad)
	}
	if left := d.recovered(time.Hour, 4*time.Second, time.Minute); left != 59*time.Second {
		t.Errorf("%s are left of an hour beyond the limit", left)
	}
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
			c := Config{Revision: "u", ConfigRevision: v1alpha1.ConfigRevision{UID: "u", SHA256: "p1"}}
			s := State{Current: AdoptedConfig{c, epoch}, LastKnownGood: AdoptedConfig{c, epoch}, Startups: []time.Time{epoch}}
			s.Trial = &Trial{Revision: "u", StartTime: epoch, Terms: Terms{Duration: metav1.Duration{Duration: time.Hour}, Threshold: 3}, Baseline: Baseline{API: true, Ready: true}}
			s.Run = Run{Started: true, Config: c, Healthy: healthy, NotReady: time.Hour, Unhealthy: time.Hour}
			if healthy {
				s.Run.Unhealthy = 0
			}

			o := Observed{
				Now: epoch, Limits: Limits{HealthTimeout: time.Minute, ReadyTimeout: time.Minute}, Intent: Intent{Kind: Assigned, Config: c},
				Child: Child{Alive: true, Healthy: healthy}, Node: tt.node, Verdicts: map[string]Verdict{},
			}
			if tt.local != NotValidated {
				o.Verdicts[""] = Verdict{Outcome: tt.local}
			}

			want := tt.bad || name == "the API is away" && !healthy // that is no reason to be unhealthy
			d := Decide(s, o)
			if got := len(d.Next.Bad) > 0; got != want || tt.local == NotValidated && len(d.Validate) == 0 {
				t.Errorf("%s, healthy %t: bad %+v, waits for %+v", name, healthy, d.Next.Bad, d.Validate)
			}
		}
	}
}
