// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestRevocationPreventsPromotionInTheSameDecision(t *testing.T) {
	n := provenNode(t, "assign uid=u payload=p1", "healthy 9m55s")
	n.revoke("u")
	n.clock += 5 * time.Second
	n.converge()
	assert.That(t, n.state.LastKnownGood.Revision == "g" && n.state.Run.Config.Revision == "g",
		"last-known-good is %q, %q runs", n.state.LastKnownGood.Revision, n.state.Run.Config.Revision)
}

func TestReturnToLastKnownGoodKeepsItsTime(t *testing.T) {
	n := provenNode(t)
	since := n.state.LastKnownGood.Since
	n.do("assign uid=u payload=p1", "healthy 1m", "assign uid=g payload=p0")
	got := n.state.LastKnownGood
	assert.That(t, got.Revision == "g" && got.Since.Equal(since),
		"last-known-good is %s since %s, want g since %s", got.Revision, got.Since, since)
}

func TestNewestTenPromotionsAreKept(t *testing.T) {
	n := newNodeSim(t)
	n.do("node", "flags trial=0s", "healthy 5s")
	for i := range 13 {
		n.do(fmt.Sprintf("assign uid=u%d payload=p%d", i, i))
	}
	got := n.state.Promoted
	assert.That(t, len(got) == 10 && got[0].Revision == "u12" && got[9].Revision == "u3", "kept are %v", got)
}

func TestPayloadDigestsContainsEveryRevision(t *testing.T) {
	s := State{
		Current:       AdoptedConfig{Config: Config{Revision: "c", ConfigRevision: v1alpha1.ConfigRevision{SHA256: "pc"}}},
		LastKnownGood: AdoptedConfig{Config: Config{Revision: "g", ConfigRevision: v1alpha1.ConfigRevision{SHA256: "pg"}}},
		Bad:           []BadConfig{{Revision: "b", ConfigRevision: v1alpha1.ConfigRevision{SHA256: "pb"}}},
		Promoted:      []Promotion{{Revision: "p", SHA256: "pp"}},
	}
	want := map[string]string{"c": "pc", "g": "pg", "b": "pb", "p": "pp"}
	got := s.PayloadDigests()
	assert.That(t, reflect.DeepEqual(got, want), "got %v, want %v", got, want)
	got = (State{}).PayloadDigests()
	assert.That(t, len(got) == 0, "local is no revision: %v", got)
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
		assert.That(t, bad == (c.by != "") && b.Revision == c.by, "%+v: bad %t, by %q, want %q", c.config, bad, b.Revision, c.by)
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
		assert.Equal(t, s.MustPersist(c.next), c.want, c.what)
	}
}

func TestForgetHasTheEffectOfAForgetRequest(t *testing.T) {
	n := provenNode(t, "assign uid=u payload=p1", "exit status=1 times=4", "kill")
	s := n.load()
	before := s.deepCopy()
	forgotten := Forget(s, "u")
	assert.That(t, reflect.DeepEqual(s, before), "the state handed in was modified")
	assert.That(t, len(forgotten.Bad) == 0 && forgotten.Trial == nil, "still there: %+v, %+v", forgotten.Bad, forgotten.Trial)

	n.persist(forgotten)
	n.do("start")
	got := n.state.Run.Config.Revision
	assert.That(t, got == "u" && n.state.Trial != nil && len(n.state.Startups) == 1,
		"%q runs, trial %+v, startups %v", got, n.state.Trial, n.state.Startups)
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
		n := provenNode(t, c.events...)
		runs, why := NextStart(n.load())
		assert.That(t, runs.Revision == c.runs && why == c.why, "%s: %q: %s; want %q: %s", c.name, runs.Revision, why, c.runs, c.why)

		n.do("unanswered cause=(connection refused)", "agent-restart")
		assert.Equal(t, n.state.Run.Config.Revision, runs.Revision, c.name, "runs")
	}
}

func TestAnyVerdictOfThisAttemptIsFinal(t *testing.T) {
	c := Config{Revision: "r", ConfigRevision: v1alpha1.ConfigRevision{SHA256: "p"}, Rollout: v1alpha1.RolloutReference{Attempt: 2}}
	s := State{Bad: []BadConfig{{Revision: "r", ConfigRevision: v1alpha1.ConfigRevision{SHA256: "p"}, Attempt: 1}, {Revision: "other", ConfigRevision: v1alpha1.ConfigRevision{SHA256: "p"}, Attempt: 2}}}
	b, final := s.FinalEntry(c)
	assert.That(t, final && b.Revision == "other", "attempt 2: %t, %+v", final, b)

	c.Rollout.Attempt = 3
	b, final = s.FinalEntry(c)
	assert.That(t, !final, "attempt 3: %+v", b)
	_, bad := s.BadEntry(c)
	assert.That(t, bad, "it is not bad any more, although nothing withdrew the verdicts")
}

func TestStatusReportsAssignedActiveLastKnownGoodAndTrial(t *testing.T) {
	n := provenNode(t, "assign uid=u payload=p1 attempt=2", "exit status=1", "healthy 1m")
	st := n.last.Status
	assert.That(t, st.Assigned != nil && st.Assigned.Revision == "u" && st.Assigned.Rollout.Attempt == 2, "assigned is %+v", st.Assigned)
	assert.That(t, st.Active.Revision == "u" && st.LastKnownGood.Revision == "g" && st.Local == LocalInit,
		"active %q, last-known-good %q, local %q", st.Active.Revision, st.LastKnownGood.Revision, st.Local)
	took := st.LastKnownGood.Since.Sub(epoch)%(24*time.Hour) - n.limits.TrialDuration // the wall clock jumps by days
	assert.That(t, took > 0 && took <= 10*time.Second, "last-known-good since %s", st.LastKnownGood.Since)

	p := st.Trial
	assert.Must(t, p != nil && p.HealthySeconds >= 50 && p.DurationSeconds == 600 && p.Restarts == 1 && p.CrashLoopThreshold == 3,
		"the trial is %+v", p)

	n.do("local")
	st = n.last.Status
	assert.That(t, st.Assigned == nil && st.Active.IsLocal() && st.LastKnownGood.IsLocal() && st.Trial == nil,
		"after local was assigned: %+v", st)
}

// rejectable returns a configuration that the kubelet rejects.
func (n *nodeSim) rejectable(i int) Config {
	c := newConfig("rejected", fmt.Sprintf("sha-rejected-%d", i))
	c.Revision = fmt.Sprintf("rejected-%d", i)
	n.dryRuns[c.Revision] = Verdict{Outcome: Rejected, Message: "no"}
	return c
}

// assign assigns a configuration.
func (n *nodeSim) assign(c Config) {
	n.intent = Intent{Kind: Assigned, Config: c}
	n.converge()
}

// fails makes the configuration that runs bad for good.
func (n *nodeSim) fails() {
	c := n.state.Run.Config
	n.exit("exit status 1", true)
	n.pass(2 * time.Minute)
	b, bad := n.state.BadEntry(c)
	n.must(bad && !b.Provisional, "%s is not bad: %+v", c.Revision, n.state.Bad)
}

// TestBadEntryOfCurrentSurvivesManyRejections: current and last-known-good must
// not run again because the list of bad configurations is limited.
func TestBadEntryOfCurrentSurvivesManyRejections(t *testing.T) {
	n := newNodeSim(t)
	n.do("node threshold=0")
	n.assign(randomConfig(1, 0))
	n.fails()
	for i := range 3 * maxBad {
		n.assign(n.rejectable(i))
		n.must(n.state.Run.Config.IsLocal(), "after %d rejections it runs again: %+v", i+1, n.state.Run.Config)
	}

	newest, oldest := fmt.Sprintf("rejected-%d", 3*maxBad-1), fmt.Sprintf("rejected-%d", 2*maxBad+1)
	bad := n.state.Bad
	kept := slices.ContainsFunc(bad, func(b BadConfig) bool { return b.Revision == oldest })
	n.must(len(bad) == maxBad && bad[0].Revision == newest && kept, "%d entries from %s on", len(bad), bad[0].Revision)
	n.do("kill", "start")
	n.must(n.state.Run.Config.IsLocal(), "the next agent runs it again: %+v", n.state.Run.Config)
}

// TestBadEntryOfTheAssignedConfigSurvives: a verdict on what runs must not make
// room by forgetting the one on what is assigned.
func TestBadEntryOfTheAssignedConfigSurvives(t *testing.T) {
	n := newNodeSim(t)
	n.do("node threshold=0")
	n.assign(randomConfig(1, 0))
	n.fails()
	for i := range maxBad - 1 {
		n.assign(n.rejectable(i))
	}

	n.assign(randomConfig(2, 0))
	n.assign(randomConfig(1, 1)) // the same content as the first one
	n.fails()
	n.must(n.state.Run.Config.IsLocal() && !n.state.Current.Same(randomConfig(1, 1)), "the first one runs again: %+v", n.state.Run.Config)
	n.must(len(n.state.Bad) == maxBad, "%d entries", len(n.state.Bad))
}
