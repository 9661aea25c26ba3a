// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

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
		s.LastKnownGood = AdoptedConfig{Config: Config{Revision: "g", ConfigRevision: v1alpha1.ConfigRevision{UID: "g", SHA256: "p0"}}}
		s.Revoked, o.Revoked = nil, nil
		o.Verdicts["g"] = Verdict{Outcome: Unavailable}
		d := Decide(s, o)
		if d.Action.Config.Revision != "u" || d.Next.Trial == nil || d.Next.Trial.Fallback != NoFallback || len(d.Next.Startups) != want {
			t.Errorf("%s: %s %q, trial %+v, %d startups, want %d", fallback, d.Action.Kind, d.Action.Config.Revision, d.Next.Trial, len(d.Next.Startups), want)
		}
	}
}

func TestTheNextDecisionComesWhenAClockReachesItsLimit(t *testing.T) {
	for name, set := range map[string]func(s *State, o *Observed){
		"the trial ends": func(s *State, _ *Observed) {
			s.Trial.Terms.Duration.Duration, s.Run.UnsavedHealthy = 2300*time.Millisecond, 2*time.Second
		},
		"progress is shown":          func(s *State, _ *Observed) { s.Run.UnsavedHealthy = time.Minute - 300*time.Millisecond },
		"it is not healthy":          func(s *State, o *Observed) { s.Run.Unhealthy = o.Limits.HealthTimeout - 300*time.Millisecond },
		"the node is not Ready":      func(s *State, o *Observed) { s.Run.NotReady = o.Limits.ReadyTimeout - 300*time.Millisecond },
		"its crashes are forgotten":  func(s *State, _ *Observed) { s.Run.Crashes, s.Run.HealthyFor = 1, stableAfter-300*time.Millisecond },
		"nothing, and nothing is on": func(s *State, _ *Observed) { s.Trial, s.Startups, s.LastKnownGood = nil, nil, s.Current },
	} {
		t.Run(name, func(t *testing.T) {
			n := provenNode(t, "assign uid=u payload=p1", "healthy 5s")
			s, o := n.state.deepCopy(), n.observe()
			s.Promoted = append(s.Promoted, Promotion{Revision: "u", SHA256: "p1"})
			want := 300 * time.Millisecond
			switch set(&s, &o); name {
			case "it is not healthy":
				o.Child.Healthy = false
			case "the node is not Ready":
				o.Node.Ready = false
			case "nothing, and nothing is on":
				want = 10 * time.Second
			}

			o.Elapsed = 0
			if d := Decide(s, o); d.Wake != want {
				t.Errorf("the next decision is in %s, want %s: %+v", d.Wake, want, d.Next.Run)
			}
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
		if got := Decide(s, o).Next.Trial.LongestUptime.Duration; got != 30*time.Second {
			t.Errorf("%s: the longest uptime is %s", name, got)
		}
	}
}

// A crash came between the writes of current and of its trial.
func TestATrialOfAnotherConfigurationIsReplacedAtTheStart(t *testing.T) {
	n := provenNode(t, "assign uid=u payload=p1", "healthy 5s")
	s, o := n.state.deepCopy(), n.observe()
	s.Trial.Revision, s.Run, o.Child, o.Elapsed = "v", Run{}, Child{}, 0
	if d := Decide(s, o); d.Next.Trial == nil || d.Next.Trial.Revision != "u" || d.Action.Config.Revision != "u" {
		t.Errorf("%s %q, trial %+v", d.Action.Kind, d.Action.Config.Revision, d.Next.Trial)
	}
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
		if got, _ := d.currentFailure(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
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
		if got := d.next.Trial.Fallback; got != want || len(d.next.Bad) > 0 {
			t.Errorf("%q becomes %q, want %q; bad are %+v", before, got, want, d.next.Bad)
		}
	}
}
