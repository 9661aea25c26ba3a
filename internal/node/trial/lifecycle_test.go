// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

func TestADropInIsMergedWithTheLocalConfigurationOfItsStart(t *testing.T) {
	u := Config{Revision: "u", ConfigRevision: v1alpha1.ConfigRevision{SHA256: "p1"}, Dropin: true}
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
		{"p1", "a", "a", true}, {"p1", "a", "b", false}, {"p1", "", "b", false}, {"p1", "a", "", true}, {"p2", "a", "a", false}, {"p2", "", "", false},
	} {
		d := &decider{next: State{Promoted: []Promotion{{Revision: "u", SHA256: "p1", Local: c.promoted}}}}
		if got := d.isPromotedOn(Config{Revision: "v", ConfigRevision: v1alpha1.ConfigRevision{SHA256: c.payload}}, c.local); got != c.want {
			t.Errorf("%s with %q, promoted with %q: %t", c.payload, c.local, c.promoted, got)
		}
	}

	d := &decider{next: State{Promoted: []Promotion{
		{Revision: "u", SHA256: "p1", Local: "a"}, {Revision: "v", SHA256: "p1", Local: "a"}, {Revision: "u", SHA256: "p1", Local: "b"}}}}
	d.recordPromotion(Config{Revision: "u", ConfigRevision: v1alpha1.ConfigRevision{SHA256: "p1"}}, "a", Promotion{})
	got := ""
	for _, p := range d.next.Promoted {
		got += p.Revision + p.Local + " "
	}
	if got != "ua va ub " {
		t.Errorf("recorded are %q", got)
	}
}

// A version of the kubelet that runs again finds the trial that it had then:
// what the node was like is not known any more.
func TestAnOldTrialOfAnotherConfigurationIsNoReference(t *testing.T) {
	for _, then := range []Baseline{{}, {API: true, Ready: true}, {Pending: true}} {
		s := State{
			Current: AdoptedConfig{Config{Revision: "u", ConfigRevision: v1alpha1.ConfigRevision{SHA256: "p1"}}, epoch}, Startups: []time.Time{epoch},
			Trial: &Trial{Revision: "old", StartTime: epoch, Terms: Terms{Duration: metav1.Duration{Duration: time.Minute}, Threshold: 3}, Baseline: then},
		}
		d := Decide(s, Observed{Now: epoch.Add(time.Hour)}) // nobody has looked at the Node yet
		if got := d.Next.Trial; got == nil || got.Revision != "u" || !got.Baseline.Pending || got.Baseline.Ready {
			t.Errorf("after %+v: %+v", then, got)
		}
	}
}

// The node did not go down with a kubelet of that version: others have run
// since.
func TestATrialOfAReplacedBinaryCountsNoReboot(t *testing.T) {
	for _, started := range []bool{true, false} {
		c := Config{Revision: "u", ConfigRevision: v1alpha1.ConfigRevision{UID: "u", SHA256: "p1"}}
		s := State{Current: AdoptedConfig{c, epoch}, Startups: []time.Time{epoch}, Run: Run{Started: started, Config: c}}
		s.Trial = &Trial{Revision: "u", StartTime: epoch, Terms: Terms{Duration: metav1.Duration{Duration: time.Minute}}, BootID: "then"}
		d := Decide(s, Observed{Now: epoch.Add(time.Hour), BootID: "now", Verdicts: map[string]Verdict{"": {Outcome: Accepted}, "u": {Outcome: Accepted}}})
		if _, bad := d.Next.BadEntry(c); bad == started {
			t.Errorf("with an agent that runs %t: bad %t", started, bad)
		}
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
		u := Config{Revision: "u", ConfigRevision: v1alpha1.ConfigRevision{SHA256: "p1"}, Dropin: true}
		d := &decider{
			next: State{
				Current: AdoptedConfig{Config: u}, LastKnownGood: AdoptedConfig{Config: Config{Revision: c.good}},
				Trial: &Trial{Revision: "u", Local: "before", Healthy: metav1.Duration{Duration: time.Minute}}, Run: Run{Started: true, Config: u, UnsavedHealthy: time.Second},
			},
			o: Observed{LocalDigest: "now"},
		}
		if c.promoted {
			d.next.Promoted = []Promotion{{Revision: "u", SHA256: "p1", Local: "now"}}
		}

		d.checkMergeBase()
		if over := d.next.Trial == nil; over != c.over || !over && (d.next.Trial.Local != "now" || d.next.Trial.Healthy.Duration != 0) || d.next.Run.UnsavedHealthy != 0 {
			t.Errorf("%s: trial %+v", name, d.next.Trial)
		}
	}
}

// TestTimesOfAnEarlierStateDoNotCountInATrial: nor do those of a trial after
// it.
func TestTimesOfAnEarlierStateDoNotCountInATrial(t *testing.T) {
	d := onTrial()
	d.next.Run.Unhealthy, d.next.Run.NotReady, d.next.Run.UnsavedHealthy, d.next.Run.Retries = time.Second, time.Second, time.Second, 2
	d.beginTrial()
	if run := d.next.Run; run.Unhealthy != 0 || run.NotReady != 0 || run.UnsavedHealthy != 0 {
		t.Errorf("at the begin: %+v", run)
	}

	d.next.Run.Unhealthy, d.next.Run.Healthy = time.Second, false
	d.endTrial()
	if run := d.next.Run; run.Retries != 0 || run.Unhealthy != time.Second {
		t.Errorf("at the end: %+v", run)
	}
}

func TestAPromotionIsRecordedOverTheLocalConfigurationThatRan(t *testing.T) {
	n := provenNode(t, "assign uid=u payload=p1 dropin", "healthy 5m", "edit-local to=local-2", "healthy 5m5s")
	if p := n.state.Promoted[0]; p.Revision != "u" || p.Local != "local-1" {
		t.Errorf("recorded is %+v", p)
	}
}

// TestALostCurrentForgetsNothing: the record was lost, not removed by the
// object that assigns nothing.
func TestALostCurrentForgetsNothing(t *testing.T) {
	n := provenNode(t)
	n.kill()
	n.disk.current = AdoptedConfig{}
	n.do("unassigned by=object", "start")
	if n.state.LastKnownGood.Revision != "g" {
		t.Errorf("last-known-good is %+v", n.state.LastKnownGood)
	}
}

func TestARevisionIsRevokedByItsUID(t *testing.T) {
	s := State{Revoked: []types.UID{"u"}}
	if !s.IsRevoked(Config{Revision: "u-digest", ConfigRevision: v1alpha1.ConfigRevision{UID: "u"}}) || s.IsRevoked(Config{Revision: "u", ConfigRevision: v1alpha1.ConfigRevision{UID: "v"}}) || s.IsRevoked(Config{}) {
		t.Error("revoked is what has the UID, and nothing else")
	}
}

// TestARemovalIsAboutWhatWasAssignedLast: not about the assignment with which
// last-known-good came long ago.
func TestARemovalIsAboutWhatWasAssignedLast(t *testing.T) {
	n := newNodeSim(t)
	n.do("node", "assign uid=g payload=p0 by=object", "healthy 10m5s", "verdict b rejected words=no",
		"assign uid=b payload=p2 by=object", "assign uid=u payload=p1 by=object", "healthy 5s", "revoke u",
		"assign uid=b payload=p2 by=object attempt=2", "unassigned by=object taken-back")
	if n.state.LastKnownGood.Revision != "g" || n.state.Current.Revision != "g" {
		t.Errorf("last-known-good is %q, current is %q", n.state.LastKnownGood.Revision, n.state.Current.Revision)
	}
}
