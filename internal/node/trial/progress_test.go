package trial

import (
	"testing"
	"time"
)

func TestADecisionIsMadeAtEachTenthOfATrial(t *testing.T) {
	for _, tt := range []struct{ duration, healthy, want time.Duration }{
		{10 * time.Minute, 0, 5 * time.Second}, // the usual interval
		{10 * time.Minute, 57 * time.Second, 3 * time.Second},
		{10 * time.Minute, time.Minute, 5 * time.Second},
		{20 * time.Second, 0, 2 * time.Second},
		{20 * time.Second, 3500 * time.Millisecond, 500 * time.Millisecond},
		{2 * time.Second, 0, time.Second}, // the status counts seconds
	} {
		c := Config{Revision: "a", Payload: "p"}
		s := State{
			Current: AdoptedConfig{Config: c},
			Trial:   &Trial{Revision: "a", Terms: Terms{Duration: tt.duration}, Healthy: tt.healthy / 2},
			Run:     Run{Started: true, Config: c, Healthy: true, UnsavedHealthy: tt.healthy - tt.healthy/2, HealthyFor: time.Hour},
		}
		d := &decider{next: s, o: Observed{Child: Child{Alive: true, Healthy: true}, Limits: Limits{HealthTimeout: time.Hour, ReadyTimeout: time.Hour}}}
		if got := d.nextWake(); got != tt.want {
			t.Errorf("a trial of %v, healthy for %v: the next decision is after %v, want %v", tt.duration, tt.healthy, got, tt.want)
		}
	}
}

func TestOnlyANodeAtRestDecidesRarely(t *testing.T) {
	rest := State{Run: Run{Started: true, Healthy: true, HealthyFor: time.Hour}}
	trial := rest
	trial.Trial = &Trial{Terms: Terms{Duration: time.Hour}}
	young, sick := rest, rest
	young.Run.HealthyFor = stableAfter - time.Second
	sick.Run.Healthy = false
	limits := Limits{HealthTimeout: time.Hour, ReadyTimeout: time.Hour, RestInterval: time.Minute}
	usual := limits
	usual.RestInterval = 0
	for what, tt := range map[string]struct {
		state  State
		limits Limits
		want   time.Duration
	}{
		"at rest": {rest, limits, time.Minute}, "without the setting": {rest, usual, 10 * time.Second}, "in a trial": {trial, limits, 5 * time.Second},
		"healthy for too short": {young, limits, 10 * time.Second}, "not healthy": {sick, limits, 10 * time.Second},
	} {
		d := &decider{next: tt.state, o: Observed{Child: Child{Alive: true, Healthy: tt.state.Run.Healthy}, Limits: tt.limits}}
		if got := d.nextWake(); got != tt.want {
			t.Errorf("%s: the next decision is after %v, want %v", what, got, tt.want)
		}
	}
}
