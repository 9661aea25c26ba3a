// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
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
		c := Config{Revision: "a", ConfigRevision: v1alpha1.ConfigRevision{SHA256: "p"}}
		s := State{
			Current: AdoptedConfig{Config: c},
			Trial:   &Trial{Revision: "a", Terms: Terms{Duration: metav1.Duration{Duration: tt.duration}}, Healthy: metav1.Duration{Duration: tt.healthy / 2}},
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
	trial.Trial = &Trial{Terms: Terms{Duration: metav1.Duration{Duration: time.Hour}}}
	young, sick, doubted := rest, rest, rest
	young.Run.HealthyFor = stableAfter - time.Second
	sick.Run.Healthy = false
	doubted.Bad = []BadConfig{{Revision: "a", Provisional: true}}
	limits := Limits{HealthTimeout: time.Hour, ReadyTimeout: time.Hour, RestInterval: time.Minute}
	usual := limits
	usual.RestInterval = 0
	for what, tt := range map[string]struct {
		state  State
		limits Limits
		edit   func(*decider)
		want   time.Duration
	}{
		"at rest":                 {rest, limits, nil, time.Minute},
		"without the setting":     {rest, usual, nil, 10 * time.Second},
		"in a trial":              {trial, limits, nil, 5 * time.Second},
		"healthy for too short":   {young, limits, nil, 10 * time.Second},
		"not healthy":             {sick, limits, nil, 10 * time.Second},
		"with a verdict in doubt": {doubted, limits, nil, 10 * time.Second},
		"blocked":                 {rest, limits, func(d *decider) { d.blocked = blocker{status: "Unknown"} }, 10 * time.Second},
		"about to validate":       {rest, limits, func(d *decider) { d.toValidate = []Config{{}} }, 10 * time.Second},
	} {
		d := &decider{next: tt.state, o: Observed{Child: Child{Alive: true, Healthy: tt.state.Run.Healthy}, Limits: tt.limits}}
		if tt.edit != nil {
			tt.edit(d)
		}
		if got := d.nextWake(); got != tt.want {
			t.Errorf("%s: the next decision is after %v, want %v", what, got, tt.want)
		}
	}
}
