package trial

import (
	"testing"
	"time"
)

func TestADropInIsMergedWithTheLocalConfigurationOfItsStart(t *testing.T) {
	u := Config{Revision: "u", Payload: "p1", Dropin: true}
	for name, c := range map[string]struct {
		change func(d *decider, c *Config)
		want   string
	}{
		"it runs":                     {func(*decider, *Config) {}, "before"},
		"it exited":                   {func(d *decider, _ *Config) { d.o.Child.Alive = false }, "now"},
		"another configuration runs":  {func(d *decider, _ *Config) { d.next.Run.Config.Revision = "g" }, "now"},
		"this agent has started none": {func(d *decider, _ *Config) { d.next.Run.Started = false }, "now"},
		"it is no drop-in":            {func(_ *decider, c *Config) { c.Dropin = false }, ""},
	} {
		d := &decider{next: State{Run: Run{Started: true, Config: u, Local: "before"}}, o: Observed{LocalDigest: "now", Child: Child{Alive: true}}}
		config := u
		if c.change(d, &config); d.mergeBase(config) != c.want {
			t.Errorf("%s: %q, want %q", name, d.mergeBase(config), c.want)
		}
	}
}

func TestAPromotionCountsForItsLocalConfiguration(t *testing.T) {
	for _, c := range []struct {
		payload, promoted, local string
		want                     bool
	}{
		{"p1", "a", "a", true}, {"p1", "a", "b", false}, {"p1", "", "b", true}, {"p1", "a", "", true}, {"p2", "a", "a", false}, {"p2", "", "", false},
	} {
		d := &decider{next: State{Promoted: []Promotion{{Revision: "u", Payload: "p1", Local: c.promoted}}}}
		if got := d.isPromotedOn(Config{Revision: "v", Payload: c.payload}, c.local); got != c.want {
			t.Errorf("%s with %q, promoted with %q: %t", c.payload, c.local, c.promoted, got)
		}
	}
	d := &decider{next: State{Promoted: []Promotion{{"u", "p1", epoch, "a"}, {"v", "p1", epoch, "a"}, {"u", "p1", epoch, ""}, {"u", "p1", epoch, "b"}}}}
	d.recordPromotion(Config{Revision: "u", Payload: "p1"}, "a")
	got := ""
	for _, p := range d.next.Promoted {
		got += p.Revision + p.Local + " "
	}
	if got != "ua va ub " {
		t.Errorf("recorded are %q", got)
	}
}

func TestATrialOverAnotherLocalConfigurationBeginsAgain(t *testing.T) {
	for name, c := range map[string]struct {
		good     string // last-known-good
		promoted bool   // with the present local configuration
		over     bool
	}{
		"u is proven":                          {"u", true, true},
		"u is not proven":                      {"u", false, false},
		"g is proven, and u has passed before": {"g", true, false},
		"g is proven":                          {"g", false, false},
	} {
		u := Config{Revision: "u", Payload: "p1", Dropin: true}
		d := &decider{
			next: State{
				Current: AdoptedConfig{Config: u}, LastKnownGood: AdoptedConfig{Config: Config{Revision: c.good}},
				Trial: &Trial{Revision: "u", Local: "before", Healthy: time.Minute}, Run: Run{Started: true, Config: u, UnsavedHealthy: time.Second},
			},
			o: Observed{LocalDigest: "now"},
		}
		if c.promoted {
			d.next.Promoted = []Promotion{{Revision: "u", Payload: "p1", Local: "now"}}
		}
		d.checkMergeBase()
		if over := d.next.Trial == nil; over != c.over || !over && (d.next.Trial.Local != "now" || d.next.Trial.Healthy != 0) || d.next.Run.UnsavedHealthy != 0 {
			t.Errorf("%s: trial %+v", name, d.next.Trial)
		}
	}
}
