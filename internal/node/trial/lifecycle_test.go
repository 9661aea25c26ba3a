// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
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
		assert.Equal(t, d.isPromotedOn(newConfig("v", c.payload), c.local), c.want, c.payload, "with", c.local, "promoted with", c.promoted)
	}

	d := &decider{next: State{Promoted: []Promotion{
		{Revision: "u", SHA256: "p1", Local: "a"}, {Revision: "v", SHA256: "p1", Local: "a"}, {Revision: "u", SHA256: "p1", Local: "b"}}}}
	d.recordPromotion(Config{Revision: "u", ConfigRevision: v1alpha1.ConfigRevision{SHA256: "p1"}}, "a", Promotion{})
	got := ""
	for _, p := range d.next.Promoted {
		got += p.Revision + p.Local + " "
	}
	assert.That(t, got == "ua va ub ", "recorded are %q", got)
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
		got := d.Next.Trial
		assert.That(t, got != nil && got.Revision == "u" && got.Baseline.Pending && !got.Baseline.Ready, "after %+v: %+v", then, got)
	}
}

// The node did not go down with a kubelet of that version: others have run
// since.
func TestATrialOfAReplacedBinaryCountsNoReboot(t *testing.T) {
	for _, started := range []bool{true, false} {
		c := newConfig("u", "p1")
		s := State{Current: AdoptedConfig{c, epoch}, Startups: []time.Time{epoch}, Run: Run{Started: started, Config: c}}
		s.Trial = &Trial{Revision: "u", StartTime: epoch, Terms: Terms{Duration: metav1.Duration{Duration: time.Minute}}, BootID: "then"}
		d := Decide(s, Observed{Now: epoch.Add(time.Hour), BootID: "now", Verdicts: map[string]Verdict{"": {Outcome: Accepted}, "u": {Outcome: Accepted}}})
		_, bad := d.Next.BadEntry(c)
		assert.That(t, bad != started, "with an agent that runs %t: bad %t", started, bad)
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
	run := d.next.Run
	assert.That(t, run.Unhealthy == 0 && run.NotReady == 0 && run.UnsavedHealthy == 0, "at the begin: %+v", run)

	d.next.Run.Unhealthy, d.next.Run.Healthy = time.Second, false
	d.endTrial()
	run = d.next.Run
	assert.That(t, run.Retries == 0 && run.Unhealthy == time.Second, "at the end: %+v", run)
}

func TestAPromotionIsRecordedOverTheLocalConfigurationThatRan(t *testing.T) {
	n := provenNode(t, "assign uid=u payload=p1 dropin", "healthy 5m", "edit-local to=local-2", "healthy 5m5s")
	p := n.state.Promoted[0]
	assert.That(t, p.Revision == "u" && p.Local == "local-1", "recorded is %+v", p)
}

// TestALostCurrentForgetsNothing: the record was lost, not removed by the
// object that assigns nothing.
func TestALostCurrentForgetsNothing(t *testing.T) {
	n := provenNode(t)
	n.kill()
	n.disk.current = AdoptedConfig{}
	n.do("unassigned by=object", "start")
	assert.That(t, n.state.LastKnownGood.Revision == "g", "last-known-good is %+v", n.state.LastKnownGood)
}

func TestARevisionIsRevokedByItsUID(t *testing.T) {
	s := State{Revoked: []types.UID{"u"}}
	if !s.IsRevoked(Config{Revision: "u-digest", ConfigRevision: v1alpha1.ConfigRevision{UID: "u"}}) || s.IsRevoked(Config{Revision: "u", ConfigRevision: v1alpha1.ConfigRevision{UID: "v"}}) || s.IsRevoked(Config{}) {
		t.Error("revoked is what has the UID, and nothing else")
	}
}

// Startups are forgotten only if the trial was inconclusive: after a probe,
// they still count.
func TestATrialThatIsResumedBecauseNothingElseCanRunKeepsItsStartups(t *testing.T) {
	for fallback, want := range map[Fallback]int{Inconclusive: 1, APIProbe: 3} {
		n := newNodeSim(t)
		n.do("node", "assign uid=u payload=p1", "healthy 5s", "exit status=1 times=2", "healthy 5s")
		s, o := n.state.deepCopy(), n.observe()
		s.Trial.Fallback, s.Run, o.Child = fallback, Run{}, Child{}
		o.Verdicts = map[string]Verdict{"": {Outcome: Rejected, Message: "maxPods"}, "u": {Outcome: Accepted}}
		o.Limits.DegradeLocal = true
		s.LastKnownGood = AdoptedConfig{Config: newConfig("g", "p0")}
		s.Revoked, o.Revoked = nil, nil
		o.Verdicts["g"] = Verdict{Outcome: Unavailable}
		d := Decide(s, o)
		if d.Action.Config.Revision != "u" || d.Next.Trial == nil || d.Next.Trial.Fallback != NoFallback || len(d.Next.Startups) != want {
			t.Errorf("%s: %s %q, trial %+v, %d startups, want %d", fallback, d.Action.Kind, d.Action.Config.Revision, d.Next.Trial, len(d.Next.Startups), want)
		}
	}
}

func TestTheNextDecisionComesWhenAClockReachesItsLimit(t *testing.T) {
	const soon = 300 * time.Millisecond
	healthyFor := func(healthy, duration time.Duration) func(*State, *Observed) {
		return func(s *State, _ *Observed) {
			s.Trial.Terms.Duration.Duration, s.Trial.Healthy.Duration, s.Run.UnsavedHealthy = duration, healthy/2, healthy-healthy/2
		}
	}
	for name, c := range map[string]struct {
		want time.Duration
		set  func(s *State, o *Observed)
	}{
		"the trial ends":                       {soon, healthyFor(2*time.Second, 2*time.Second+soon)},
		"nothing":                              {5 * time.Second, healthyFor(0, 10*time.Minute)},
		"a tenth of the trial is shown":        {soon, healthyFor(time.Minute-soon, 10*time.Minute)},
		"it was shown just now":                {5 * time.Second, healthyFor(time.Minute, 10*time.Minute)},
		"a tenth of a short trial is shown":    {500 * time.Millisecond, healthyFor(3500*time.Millisecond, 20*time.Second)},
		"a short trial has begun":              {2 * time.Second, healthyFor(0, 20*time.Second)},
		"a second of a very short one is over": {time.Second, healthyFor(0, 2*time.Second)}, // the status counts seconds
		"it is not healthy": {soon, func(s *State, o *Observed) {
			s.Run.Unhealthy, o.Child.Healthy = o.Limits.HealthTimeout-soon, false
		}},
		"the node is not Ready": {soon, func(s *State, o *Observed) {
			s.Run.NotReady, o.Node.Ready = o.Limits.ReadyTimeout-soon, false
		}},
		"its crashes are forgotten": {soon, func(s *State, _ *Observed) { s.Run.Crashes, s.Run.HealthyFor = 1, stableAfter-soon }},
		"nothing, and nothing is on": {10 * time.Second, func(s *State, _ *Observed) {
			s.Trial, s.Startups, s.LastKnownGood = nil, nil, s.Current
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := provenNode(t, "assign uid=u payload=p1", "healthy 5s")
			s, o := n.state.deepCopy(), n.observe()
			s.Promoted = append(s.Promoted, Promotion{Revision: "u", SHA256: "p1"})
			c.set(&s, &o)
			o.Elapsed = 0
			d := Decide(s, o)
			assert.That(t, d.Wake == c.want, "the next decision is in %s, want %s: %+v", d.Wake, c.want, d.Next.Run)
		})
	}
}

// The fallback must stay healthy for as long as the configuration ever ran:
// also for the time that an agent cannot save any more.
func TestTheUptimeIsSavedWithTheTimeWithoutHealth(t *testing.T) {
	for name, set := range map[string]func(s *State, o *Observed){
		"not healthy": func(s *State, o *Observed) { s.Run.Unhealthy, o.Child.Healthy = 20*time.Second, false },
		"not Ready":   func(s *State, o *Observed) { s.Run.NotReady, o.Node.Ready = 20*time.Second, false },
	} {
		n := provenNode(t, "assign uid=u payload=p1", "healthy 5s")
		s, o := n.state.deepCopy(), n.observe()
		s.Run.Uptime, o.Elapsed = 30*time.Second, 0
		set(&s, &o)
		assert.Equal(t, Decide(s, o).Next.Trial.LongestUptime.Duration, 30*time.Second, name, "the longest uptime is")
	}
}

// A crash came between the writes of current and of its trial.
func TestATrialOfAnotherConfigurationIsReplacedAtTheStart(t *testing.T) {
	n := provenNode(t, "assign uid=u payload=p1", "healthy 5s")
	s, o := n.state.deepCopy(), n.observe()
	s.Trial.Revision, s.Run, o.Child, o.Elapsed = "v", Run{}, Child{}, 0
	d := Decide(s, o)
	assert.That(t, d.Next.Trial != nil && d.Next.Trial.Revision == "u" && d.Action.Config.Revision == "u",
		"%s %q, trial %+v", d.Action.Kind, d.Action.Config.Revision, d.Next.Trial)
}

// Only a drop-in that will run with another local configuration at its next
// start is not blamed for its crashes.
func TestCrashesAreBlamedOnWhatRunsAgain(t *testing.T) {
	for name, c := range map[string]struct {
		dropin bool
		local  string // at the start of the kubelet
		exited bool
		want   string
	}{
		"a whole configuration":                  {false, "now", true, v1alpha1.ReasonCrashLooped},
		"the same, and local was edited":         {false, "before", true, v1alpha1.ReasonCrashLooped},
		"a drop-in":                              {true, "now", true, v1alpha1.ReasonCrashLooped},
		"a drop-in, and local was edited":        {true, "before", true, ""},
		"the same, while it runs without health": {true, "before", false, v1alpha1.ReasonNotHealthy},
	} {
		d := &decider{
			next: State{Run: Run{Started: true, Config: Config{Revision: "u", Dropin: c.dropin}, Local: c.local, Crashes: 4}},
			o:    Observed{LocalDigest: "now", Child: Child{Exited: c.exited, Spawned: c.exited, Alive: !c.exited}, Limits: Limits{CrashLoopThreshold: 3, HealthTimeout: time.Minute, ReadyTimeout: time.Minute}},
		}
		if !c.exited {
			d.next.Run.Unhealthy = time.Minute
		}
		got, _ := d.currentFailure()
		assert.That(t, got == c.want, "%s: %q, want %q", name, got, c.want)
	}
}

// The API probe goes on although its fallback fails: only the verdict on
// last-known-good is withdrawn.
func TestAProbeGoesOnWhenAVerdictIsWithdrawn(t *testing.T) {
	for before, want := range map[Fallback]Fallback{APIProbe: APIProbe, NoFallback: Inconclusive} {
		d := &decider{next: State{
			Current: AdoptedConfig{Config: Config{Revision: "u"}}, LastKnownGood: AdoptedConfig{Config: Config{Revision: "g"}},
			Trial: &Trial{Revision: "u", Fallback: before}, Bad: []BadConfig{{Revision: "g", Provisional: true}},
		}}
		d.withdrawVerdicts()
		got := d.next.Trial.Fallback
		assert.That(t, got == want && len(d.next.Bad) == 0, "%q becomes %q, want %q; bad are %+v", before, got, want, d.next.Bad)
	}
}
