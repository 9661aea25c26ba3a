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
		c.change(d, &config)
		assert.Equal(t, d.mergeBase(config), c.want, name)
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
		trial := d.next.Trial
		begun := trial != nil && trial.Local == "now" && trial.Healthy.Duration == 0
		assert.That(t, (trial == nil) == c.over && begun != c.over && d.next.Run.UnsavedHealthy == 0, "%s: trial %+v", name, trial)
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
	for revision, uid := range map[string]types.UID{"u-digest": "u", "u": "v", "": ""} {
		got := s.IsRevoked(Config{Revision: revision, ConfigRevision: v1alpha1.ConfigRevision{UID: uid}})
		assert.Equal(t, got, uid == "u", "revision", revision, "of", uid)
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
		resumed := d.Next.Trial != nil && d.Next.Trial.Fallback == NoFallback
		assert.That(t, d.Action.Config.Revision == "u" && resumed && len(d.Next.Startups) == want,
			"%s: %+v, trial %+v, startups %v, want %d", fallback, d.Action, d.Next.Trial, d.Next.Startups, want)
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
		n := provenNode(t, "assign uid=u payload=p1", "healthy 5s")
		s, o := n.state.deepCopy(), n.observe()
		s.Promoted = append(s.Promoted, Promotion{Revision: "u", SHA256: "p1"})
		c.set(&s, &o)
		o.Elapsed = 0
		d := Decide(s, o)
		assert.That(t, d.Wake == c.want, "%s: the next decision is in %s, want %s: %+v", name, d.Wake, c.want, d.Next.Run)
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

// g runs in place of u, which failed, when it is assigned again with a new
// file; the disk is full, so it is not adopted.
func TestARestartAfterACrashReportsTheNewDownload(t *testing.T) {
	n := provenNode(t, "assign uid=u payload=p1", "exit status=1 times=4", "healthy 5s", "storage fails=full")
	n.intent.Config = n.state.LastKnownGood.Config
	n.intent.Config.Checkpoint = "another file"
	n.converge()
	s := n.state
	assert.Must(t, s.Run.Config.Checkpoint != "another file" && s.LastKnownGood.Checkpoint == "another file",
		"running %q, last-known-good %q", s.Run.Config.Checkpoint, s.LastKnownGood.Checkpoint)

	var started Decision
	n.onDecision = func(_ State, _ Observed, d Decision) {
		if d.Action.Kind == Start {
			started = d
		}
	}
	n.do("exit status=1")
	c := started.Action.Config
	assert.That(t, c.Revision == "g" && c.Checkpoint == "another file" && started.Next.Run.Config == c && started.Status.Active == c,
		"started %+v, recorded %+v, reported %+v", c, started.Next.Run.Config, started.Status.Active)
}

func TestWaitingTrialResumesWhenNothingElseCanRun(t *testing.T) {
	for _, fallback := range []Fallback{Inconclusive, APIProbe} {
		n := provenNode(t, "flags local-invalid=degrade", "kill", "verdict local rejected words=(maxPods must not be negative)")
		v := n.disk.versions[n.version]
		v.promoted, v.trial = nil, &Trial{Revision: "g", Terms: Terms{Duration: metav1.Duration{Duration: time.Minute}}, Fallback: fallback}
		n.disk.versions[n.version] = v
		n.do("start")
		assert.That(t, !n.refused && n.state.Run.Config.Revision == "g" && n.state.Trial != nil && n.state.Trial.Fallback == NoFallback,
			"%s: refused: %t, %q runs: %+v", fallback, n.refused, n.state.Run.Config.Revision, n.state.Trial)
	}
}

func TestReassignedRunningConfigIsReportedAsAssigned(t *testing.T) {
	n := provenNode(t, "flags local-invalid=degrade", "kill", "verdict local rejected words=(maxPods must not be negative)", "start")
	c := randomConfig(1, 0)
	c.AssignedBy, c.Rollout, c.Checkpoint = "object", v1alpha1.RolloutReference{Name: "workers", AssignedAt: metav1.NewTime(epoch)}, "file"
	n.assign(c)
	n.revoke(n.state.LastKnownGood.UID)
	n.intent = Intent{Kind: Unassigned, Config: Config{AssignedBy: "object"}, TakenBack: &v1alpha1.TakenBackAssignment{Rollout: c.Rollout.Name, AssignedAt: c.Rollout.AssignedAt}}
	n.converge()
	assert.Must(t, n.state.Current.Revision != c.Revision && n.state.Run.Config.Revision == c.Revision,
		"it was not taken back, or stopped running: %+v", n.state)

	c.Checkpoint = "downloaded anew"
	n.assign(c)
	assert.That(t, n.state.Current.Config == c && n.state.Run.Config == c, "assigned is %+v, said to run %+v", c, n.state.Run.Config)
}

// TestStaleAssignmentAtStartKeepsTheAdoptedConfig: the adopted configuration
// continues, on trial or not.
func TestStaleAssignmentAtStartKeepsTheAdoptedConfig(t *testing.T) {
	for reason, want := range map[string]string{"StaleAssignment": "p1-0-content", "": "p0-0-content"} {
		n := newNodeSim(t)
		n.healthy = true
		n.start()
		for payload, wait := range []time.Duration{11 * time.Minute, time.Minute} {
			n.assign(randomConfig(payload, 0))
			n.pass(wait)
		}

		n.sigterm()
		n.intent = Intent{Kind: Invalid, Cause: "not adopted", Reason: reason, Config: randomConfig(2, 0)}
		n.start()
		assert.Equal(t, n.state.Run.Config.Revision, want, "with reason", reason, "runs")
	}
}

// The digest of last-known-good's file is needed for a rollback: a file of
// another assignment must not replace it.
func TestOnlyANewDownloadOfLastKnownGoodReplacesItsDigest(t *testing.T) {
	for name, change := range map[string]func(c *Config){
		"another revision":            func(c *Config) { c.Revision, c.UID, c.SHA256 = "u", "u", "p1" },
		"a revision with its content": func(c *Config) { c.Revision, c.UID = "g2", "g2" },
		"its name, another content":   func(c *Config) { c.SHA256 = "p1" },
		"it was not downloaded":       func(c *Config) { c.Checkpoint = "" },
	} {
		n := provenNode(t)
		n.intent.Config.Checkpoint = "file of g"
		n.converge()
		n.do("assign uid=v payload=p2", "exit status=1 times=4", "healthy 5s", "storage fails=full")
		c := n.state.LastKnownGood.Config
		c.Checkpoint = "file of another"
		change(&c)
		n.assign(c)
		got := n.state.LastKnownGood
		assert.That(t, got.Revision == "g" && got.Checkpoint == "file of g",
			"%s: last-known-good is %q with %q", name, got.Revision, got.Checkpoint)
	}
}

func TestTheNodeIsWatchedWhereADecisionDependsOnItsPods(t *testing.T) {
	for name, c := range map[string]struct {
		events []string
		want   bool
	}{
		"nothing is new":       {nil, false},
		"on trial":             {[]string{"assign uid=u payload=p1"}, true},
		"refused for pods":     {[]string{"verdict u refused guard=WouldEvictPods words=(2 pods)", "assign uid=u payload=p1"}, true},
		"refused for a field":  {[]string{"verdict u protected guard=ProtectedFields words=(a field)", "assign uid=u payload=p1"}, false},
		"could not validate":   {[]string{"verdict u could-not-tell words=(no runtime)", "assign uid=u payload=p1"}, true},
		"pods cannot be read":  {[]string{"verdict u refused guard=CouldNotValidate words=(forbidden)", "assign uid=u payload=p1"}, true},
		"the disk is full":     {[]string{"storage fails=full", "assign uid=u payload=p1"}, true},
		"revoked":              {[]string{"revoke u", "assign uid=u payload=p1"}, false},
		"a verdict is open":    {[]string{"assign uid=u payload=p1", "exit status=1 times=4", "assign uid=g payload=p0"}, true},
		"local, refused":       {[]string{"verdict local refused guard=WouldEvictPods words=(2 pods)", "local"}, true},
		"pods after the trial": {[]string{"refuses shop/web blog/web 5m"}, true},
		"pods after an hour":   {[]string{"refuses shop/web blog/web 61m"}, false},
	} {
		n := provenNode(t, c.events...)
		n.converge()
		assert.That(t, n.last.Watch == c.want, "%s: watch is %t, want %t: %+v", name, n.last.Watch, c.want, n.last.Status.Condition)
	}
}

// TestFrequentAgentRestartsDoNotPreventAVerdict: monitoring may stop the unit
// because its kubelet is not healthy, and the stop also ends the count of
// unhealthy time.
func TestFrequentAgentRestartsDoNotPreventAVerdict(t *testing.T) {
	for name, c := range map[string]struct{ happens, stop, want string }{
		"never healthy, stopped":                                  {"unhealthy 45s", "sigterm", v1alpha1.ReasonNotHealthy},
		"never healthy, killed":                                   {"unhealthy 45s", "kill", v1alpha1.ReasonNotHealthy},
		"never Ready, stopped":                                    {"notready 45s", "sigterm", v1alpha1.ReasonNotReady},
		"never Ready, killed":                                     {"notready 45s", "kill", v1alpha1.ReasonNotReady},
		"the agent dies before its kubelet can be healthy":        {"unhealthy 8s", "kill", ""},
		"the agent is upgraded before its kubelet can be healthy": {"unhealthy 25s", "sigterm", ""},
	} {
		n := newNodeSim(t)
		n.do("node", "assign uid=u payload=p1")
		for range 20 {
			if n.do(c.happens); len(n.state.Bad) > 0 {
				break
			}

			n.do(c.stop, "start")
		}

		got := ""
		for _, b := range n.state.Bad {
			got += b.Failure
		}

		assert.Equal(t, got, c.want, name, "bad are:", n.state.Bad)
	}
}

func TestHealthResetsTheSavedUnhealthyTime(t *testing.T) {
	n := newNodeSim(t)
	n.do("node", "assign uid=u payload=p1")
	for range 5 {
		n.do("unhealthy 100s", "healthy 400s", "kill", "start")
		n.must(n.state.Run.Unhealthy == 0 && len(n.state.Bad) == 0, "it is remembered: %+v", n.state.Trial)
	}
}

func TestARestartForAChangeAsksThePodGuard(t *testing.T) {
	n := provenNode(t)
	s, o := n.state.deepCopy(), n.observe()
	o.Node = Node{API: true, Ready: true, Pods: []string{"old"}}
	o.Intent.Config, o.Verdicts["u"] = newConfig("u", "p1"), Verdict{Outcome: Accepted}
	asked := Decide(s, o)
	want := Adoption{Config: o.Intent.Config}
	assert.Must(t, asked.Ask != nil && *asked.Ask == want && asked.Action.Kind == None && asked.Next.Current.Revision == "g",
		"without an answer: %+v, want only the question %+v", asked, want)

	o.Guard = &Permit{Adoption: want, Pods: []string{"new"}}
	d := Decide(s, o)
	assert.That(t, d.Ask == nil && !d.Refused && d.Action.Kind == Restart && d.Next.Trial.Baseline.Pods[0] == "new",
		"permitted: %+v, want a restart with the pods of the guard as the baseline", d)

	o.Guard.Refusal = Verdict{Outcome: Refused, Guard: v1alpha1.ReasonWouldEvictPods, Message: "one pod"}
	d = Decide(s, o)
	assert.That(t, d.Ask == nil && d.Refused && d.Action.Kind == None && d.Status.Condition.Reason == v1alpha1.ReasonWouldEvictPods,
		"refused: %+v, want no restart, and the reason", d)

	o.Intent.Config.RequestedTerms.AllowPodLoss = true
	d = Decide(s, o)
	assert.That(t, d.Ask != nil && d.Ask.AllowPodLoss, "with an answer to another question: %+v, want a question", d)

	o.Guard, o.Child, o.Intent.Config = nil, Child{Exited: true, Spawned: true, Exit: "exit status 1"}, s.Current.Config
	d = Decide(s, o)
	assert.That(t, d.Ask == nil, "after a crash: %+v, want no question", d)
}
