// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

func TestTimeWithoutDecisionsCountsAtMostMaxGap(t *testing.T) {
	n := provenNode(t, "assign uid=u payload=p1", "healthy 1m")
	n.clock += time.Hour // suspended
	n.converge()
	if healthy := n.state.Trial.Healthy.Duration + n.state.Run.UnsavedHealthy; healthy != time.Minute+maxGap {
		t.Errorf("an hour without a look counts %s", healthy-time.Minute)
	}

	n.healthy = false
	n.converge()
	n.clock += time.Hour
	n.converge()
	if len(n.state.Bad) > 0 {
		t.Errorf("a verdict from a gap: %+v", n.state.Bad)
	}
}

func TestRevocationPreventsPromotionInTheSameDecision(t *testing.T) {
	n := provenNode(t, "assign uid=u payload=p1", "healthy 9m55s")
	n.revoked = &[]types.UID{"u"}
	n.clock += 5 * time.Second
	n.converge()
	if n.state.LastKnownGood.Revision != "g" || n.state.Run.Config.Revision != "g" {
		t.Errorf("last-known-good is %q, %q runs", n.state.LastKnownGood.Revision, n.state.Run.Config.Revision)
	}
}

func TestReturnToLastKnownGoodKeepsItsTime(t *testing.T) {
	n := provenNode(t)
	since := n.state.LastKnownGood.Since
	n.do("assign uid=u payload=p1", "healthy 1m", "assign uid=g payload=p0")
	if got := n.state.LastKnownGood; got.Revision != "g" || !got.Since.Equal(since) {
		t.Errorf("last-known-good is %s since %s, want g since %s", got.Revision, got.Since, since)
	}
}

func TestNewestTenPromotionsAreKept(t *testing.T) {
	n := newNodeSim(t)
	n.do("node", "flags trial=0s", "healthy 5s")
	for i := range 13 {
		n.do(fmt.Sprintf("assign uid=u%d payload=p%d", i, i))
	}
	if got := n.state.Promoted; len(got) != 10 || got[0].Revision != "u12" || got[9].Revision != "u3" {
		t.Errorf("kept are %v", got)
	}
}

func TestCleanShutdownKeepsObservedTimes(t *testing.T) {
	s := State{Trial: &Trial{Revision: "u", Healthy: metav1.Duration{Duration: time.Minute}}, Run: Run{UnsavedHealthy: 7 * time.Second}}
	clean := CleanShutdown(s)
	if clean.Trial.Healthy.Duration != 67*time.Second || !clean.Trial.Clean || clean.Run.UnsavedHealthy != 0 {
		t.Errorf("got %+v, credit %s", clean.Trial, clean.Run.UnsavedHealthy)
	}
	if s.Trial.Clean || s.Trial.Healthy.Duration != time.Minute {
		t.Errorf("the state handed in was modified: %+v", s.Trial)
	}
	if none := CleanShutdown(State{}); none.Trial != nil {
		t.Errorf("a trial out of nothing: %+v", none.Trial)
	}
}

func TestPayloadDigestsContainsEveryRevision(t *testing.T) {
	s := State{
		Current:       AdoptedConfig{Config: Config{Revision: "c", ConfigRevision: v1alpha1.ConfigRevision{SHA256: "pc"}}},
		LastKnownGood: AdoptedConfig{Config: Config{Revision: "g", ConfigRevision: v1alpha1.ConfigRevision{SHA256: "pg"}}},
		Bad:           []BadConfig{{Revision: "b", ConfigRevision: v1alpha1.ConfigRevision{SHA256: "pb"}}},
		Promoted:      []Promotion{{Revision: "p", SHA256: "pp"}},
	}
	want := map[string]string{"c": "pc", "g": "pg", "b": "pb", "p": "pp"}
	if got := s.PayloadDigests(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := (State{}).PayloadDigests(); len(got) != 0 {
		t.Errorf("local is no revision: %v", got)
	}
}

func TestBadEntryMatchesByRevisionOrPayload(t *testing.T) {
	s := State{Bad: []BadConfig{{Revision: "b", ConfigRevision: v1alpha1.ConfigRevision{SHA256: "p"}}, {Revision: "unknown"}}}
	for _, c := range []struct {
		config Config
		by     string // empty: it is not bad
	}{
		{Config{Revision: "b", ConfigRevision: v1alpha1.ConfigRevision{SHA256: "other"}}, "b"},
		{Config{Revision: "other", ConfigRevision: v1alpha1.ConfigRevision{SHA256: "p"}}, "b"},
		{Config{Revision: "other", ConfigRevision: v1alpha1.ConfigRevision{SHA256: "q"}}, ""},
		{Config{Revision: "other"}, ""}, // an unknown payload is not the unknown payload of another
		{Config{}, ""},
	} {
		b, bad := s.BadEntry(c.config)
		if bad != (c.by != "") || b.Revision != c.by {
			t.Errorf("%+v: bad %t, by %q, want %q", c.config, bad, b.Revision, c.by)
		}
	}
}

func TestStateMustBeSavedForANewCurrentOrAWithdrawnVerdict(t *testing.T) {
	s := State{Current: AdoptedConfig{Config: Config{Revision: "c"}}, Bad: []BadConfig{{Revision: "b"}}}
	for _, c := range []struct {
		what string
		next State
		want bool
	}{
		{"the same", s, false},
		{"a trial", State{Current: s.Current, Bad: s.Bad, Trial: &Trial{Revision: "c"}}, false},
		{"a promotion", State{Current: s.Current, LastKnownGood: s.Current, Bad: s.Bad}, false},
		{"one more verdict", State{Current: s.Current, Bad: []BadConfig{{Revision: "x"}, {Revision: "b", Attempt: 1}}}, false},
		{"a lifted verdict", State{Current: s.Current}, true},
		{"a verdict in the place of another", State{Current: s.Current, Bad: []BadConfig{{Revision: "x"}}}, true},
		{"another current", State{Bad: s.Bad}, true},
	} {
		if got := s.MustPersist(c.next); got != c.want {
			t.Errorf("%s: got %t, want %t", c.what, got, c.want)
		}
	}
}

func TestForgetHasTheEffectOfAForgetRequest(t *testing.T) {
	n := provenNode(t, "assign uid=u payload=p1", "exit status=1 times=4", "kill")
	s := n.load()
	before := s.deepCopy()
	forgotten := Forget(s, "u")
	if !reflect.DeepEqual(s, before) {
		t.Error("the state handed in was modified")
	}
	if len(forgotten.Bad) != 0 || forgotten.Trial != nil {
		t.Errorf("still there: %+v, %+v", forgotten.Bad, forgotten.Trial)
	}

	n.persist(forgotten)
	n.do("start")
	if got := n.state.Run.Config.Revision; got != "u" || n.state.Trial == nil || len(n.state.Startups) != 1 {
		t.Errorf("%q runs, trial %+v, startups %v", got, n.state.Trial, n.state.Startups)
	}
}

// TestNextStartEqualsWhatAStartRuns compares NextStart with a start without the
// API.
func TestNextStartEqualsWhatAStartRuns(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []string
		runs   string
		why    string
	}{
		{"local", []string{"node"}, "", "it is current"},
		{"on trial", []string{"assign uid=u payload=p1"}, "u", "it is current, on trial"},
		{"proven", nil, "g", "it is current"},
		{"bad", []string{"assign uid=u payload=p1", "unhealthy 2m"}, "g", "it is last-known-good; current (UID: u) was not healthy for 2m0s"},
		{"revoked", []string{"assign uid=u payload=p1", "revoke u"}, "g", "it is last-known-good; current (UID: u) is revoked"},
		{"all revoked", []string{"revoke g"}, "", "it is the only fallback left; current (UID: g) is revoked"},
		{"inconclusive", []string{"assign uid=u payload=p1", "unhealthy 2m", "unhealthy 2m"}, "g", "it is last-known-good; the trial of current (UID: u) waits: Inconclusive"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := provenNode(t, c.events...)
			runs, why := NextStart(n.load())
			if runs.Revision != c.runs || why != c.why {
				t.Errorf("%q: %s; want %q: %s", runs.Revision, why, c.runs, c.why)
			}

			n.do("unanswered cause=(connection refused)", "agent-restart")
			if got := n.state.Run.Config.Revision; got != runs.Revision {
				t.Errorf("it says that %q runs, and %q does", runs.Revision, got)
			}
		})
	}
}

func TestAnyVerdictOfThisAttemptIsFinal(t *testing.T) {
	c := Config{Revision: "r", ConfigRevision: v1alpha1.ConfigRevision{SHA256: "p"}, Rollout: v1alpha1.RolloutReference{Attempt: 2}}
	s := State{Bad: []BadConfig{{Revision: "r", ConfigRevision: v1alpha1.ConfigRevision{SHA256: "p"}, Attempt: 1}, {Revision: "other", ConfigRevision: v1alpha1.ConfigRevision{SHA256: "p"}, Attempt: 2}}}
	if b, final := s.FinalEntry(c); !final || b.Revision != "other" {
		t.Errorf("attempt 2: %t, %+v", final, b)
	}

	c.Rollout.Attempt = 3
	if b, final := s.FinalEntry(c); final {
		t.Errorf("attempt 3: %+v", b)
	}
	if _, bad := s.BadEntry(c); !bad {
		t.Error("it is not bad any more, although nothing withdrew the verdicts")
	}
}

func TestStatusReportsAssignedActiveLastKnownGoodAndTrial(t *testing.T) {
	n := provenNode(t, "assign uid=u payload=p1 attempt=2", "exit status=1", "healthy 1m")
	st := n.last.Status
	if st.Assigned == nil || st.Assigned.Revision != "u" || st.Assigned.Rollout.Attempt != 2 {
		t.Errorf("assigned is %+v", st.Assigned)
	}
	if st.Active.Revision != "u" || st.LastKnownGood.Revision != "g" || st.Local != LocalInit {
		t.Errorf("active %q, last-known-good %q, local %q", st.Active.Revision, st.LastKnownGood.Revision, st.Local)
	}
	if want := epoch.Add(n.limits.TrialDuration); !st.LastKnownGood.Since.After(want) || st.LastKnownGood.Since.After(want.Add(10*time.Second)) {
		t.Errorf("last-known-good since %s", st.LastKnownGood.Since)
	}

	p := st.Trial
	if p == nil || p.HealthySeconds < 50 || p.DurationSeconds != int64(n.limits.TrialDuration/time.Second) || p.Restarts != 1 || p.CrashLoopThreshold != 3 {
		t.Errorf("the trial is %+v", p)
	}

	n.do("local")
	if st := n.last.Status; st.Assigned != nil || !st.Active.IsLocal() || !st.LastKnownGood.IsLocal() || st.Trial != nil {
		t.Errorf("after local was assigned: %+v", st)
	}
}
