package trial

import (
	"fmt"
	"testing"
	"time"
)

func TestNewestFiftyBadConfigsAreKept(t *testing.T) {
	n := newNodeSim(t)
	n.do(proven...)
	for i := range 53 {
		n.do(fmt.Sprintf("verdict u%d rejected", i), fmt.Sprintf("assign uid=u%d payload=q%d", i, i))
	}
	if got := n.state.Bad; len(got) != 50 || got[0].Revision != "u52" || got[49].Revision != "u3" {
		t.Errorf("%d are kept, from %s to %s", len(got), got[0].Revision, got[len(got)-1].Revision)
	}
}

func TestOnlyAKnownChangeOfBootIDCountsAsReboot(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after bool // the boot ID is known
		reboots       bool
		startups      int
	}{
		{"the agent died", true, true, false, 1},
		{"the node went down", true, true, true, 2},
		{"nobody knows which boot it is", true, false, false, 1},
		{"nobody knew which boot it was", false, true, false, 1},
		{"nobody knew, and the node went down", false, true, true, 1},
		{"nobody ever knows", false, false, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNodeSim(t)
			n.do(proven...)
			n.bootIDUnknown = !c.before
			n.do("agent-restart", "assign uid=u payload=p1", "healthy 1m", "kill")
			n.bootIDUnknown = !c.after
			if c.reboots {
				n.boot++
			}
			n.do("start")
			if got := n.state; got.Trial == nil || len(got.Startups) != c.startups || got.Run.Config.Revision != "u" {
				t.Fatalf("trial %+v, startups %v, %q runs", got.Trial, got.Startups, got.Run.Config.Revision)
			}
			n.bootIDUnknown = false // and what was not known counts for nothing later
			n.do("agent-restart")
			if got := len(n.state.Startups); got != c.startups {
				t.Errorf("%d startups once it is known again", got)
			}
		})
	}
}

func TestDegradedStartNeedsAnAllowedLastKnownGood(t *testing.T) {
	for name, forbid := range map[string][]string{
		"revoked": {"revoke g"},
		"bad":     {"verdict g rejected", "agent-restart"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNodeSim(t)
			n.do(proven...)
			n.do("flags local-invalid=degrade")
			n.do(forbid...)
			n.do("kill", "assign uid=u payload=p1", "verdict local rejected words=(maxPods must not be negative)", "start")
			if !n.refused || n.state.Current.Revision == "u" {
				t.Errorf("refused: %t, current is %q", n.refused, n.state.Current.Revision)
			}
		})
	}
}

func TestDigestOfANewDownloadIsRecordedInEveryRole(t *testing.T) {
	for name, before := range map[string][]string{
		"it is current":                      nil,
		"another is on trial":                {"assign uid=u payload=p1", "healthy 1m"},
		"another was bad":                    {"assign uid=u payload=p1", "exit status=1 times=4", "healthy 5s"},
		"a crash came between the two files": {"assign uid=u payload=p1", "healthy 1m"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNodeSim(t)
			n.do(proven...)
			n.do(before...)
			n.intent.Config = n.state.LastKnownGood.Config
			n.intent.Config.Checkpoint = "another file"
			if name == "a crash came between the two files" {
				n.dieBeforeActing, n.tearDisk = func() bool { return true }, func(int) int { return 2 }
				n.converge()
				n.dieBeforeActing, n.tearDisk = nil, nil
				n.start()
			}
			n.converge()
			s := n.state
			if s.Current.Checkpoint != "another file" || s.LastKnownGood.Checkpoint != "another file" || s.Run.Config.Checkpoint != "another file" {
				t.Errorf("current %q, last-known-good %q, running %q", s.Current.Checkpoint, s.LastKnownGood.Checkpoint, s.Run.Config.Checkpoint)
			}
		})
	}
}

// g runs in place of u, which failed, when it is assigned again with a new file; the disk is full, so it is not adopted.
func TestARestartAfterACrashReportsTheNewDownload(t *testing.T) {
	n := newNodeSim(t)
	n.do(proven...)
	n.do("assign uid=u payload=p1", "exit status=1 times=4", "healthy 5s", "storage fails=full")
	n.intent.Config = n.state.LastKnownGood.Config
	n.intent.Config.Checkpoint = "another file"
	n.converge()
	if s := n.state; s.Run.Config.Checkpoint == "another file" || s.LastKnownGood.Checkpoint != "another file" {
		t.Fatalf("running %q, last-known-good %q", s.Run.Config.Checkpoint, s.LastKnownGood.Checkpoint)
	}
	var started Decision
	n.onDecision = func(_ State, _ Observed, d Decision) {
		if d.Action.Kind == Start {
			started = d
		}
	}
	n.do("exit status=1")
	if a := started.Action; a.Config.Revision != "g" || a.Config.Checkpoint != "another file" || started.Next.Run.Config != a.Config || started.Status.Active != a.Config {
		t.Errorf("started %+v, recorded %+v, reported %+v", a.Config, started.Next.Run.Config, started.Status.Active)
	}
}

func TestRollbackDoesNotWaitForAnotherVerdict(t *testing.T) {
	n := newNodeSim(t)
	n.do(proven...)
	n.do("assign uid=u payload=p1", "healthy 1m")
	n.verdicts["g"] = Verdict{Outcome: Accepted} // found while the trial went on
	n.do("validation hangs", "assign uid=v payload=p2", "unhealthy 2m")
	if got := n.state.Run.Config.Revision; got != "g" {
		t.Errorf("%q runs", got)
	}
}

func TestBaselineNeedsAReachableAPI(t *testing.T) {
	n := newNodeSim(t)
	n.do(proven...)
	n.do("api down", "assign uid=u payload=p1", "healthy 1m", "api up", "notready 10m")
	if len(n.state.Bad) > 0 || n.state.Run.Config.Revision != "u" {
		t.Errorf("bad %v, %q runs", n.state.Bad, n.state.Run.Config.Revision)
	}
}

func TestAPIProbeHappensOncePerTrial(t *testing.T) {
	n := newNodeSim(t)
	n.do(proven...)
	n.do("flags api-loss-rollback=on", "assign uid=u payload=p1", "healthy 1m", "api down", "healthy 11m")
	if n.state.Trial == nil || !n.state.Trial.APIProbed || n.state.Run.Config.Revision != "g" {
		t.Fatalf("%+v", n.state.Trial)
	}
	n.do("healthy 3m", "api up", "healthy 5s", "api down", "healthy 11m")
	if n.state.Run.Config.Revision != "u" || n.state.Trial.Fallback != NoFallback {
		t.Errorf("%q runs: %+v", n.state.Run.Config.Revision, n.state.Trial)
	}
}

func TestHarmBeforeTheStartDoesNotFailATrial(t *testing.T) {
	for _, harm := range []string{"lost-pods pod-1", "pressure PIDPressure"} {
		n := newNodeSim(t)
		n.do(proven...)
		n.do("waiting", "assign uid=u payload=p1", harm, "waiting 1m") // for the lock that the last kubelet has
		if len(n.state.Bad) > 0 {
			t.Errorf("%s: bad are %v before it ran", harm, n.state.Bad)
		}
		n.do("healthy 10s")
		if len(n.state.Bad) != 1 || n.state.Bad[0].Failure != WorkloadHarmed {
			t.Errorf("%s: bad configurations are %v, want one", harm, n.state.Bad)
		}
	}
}

func TestWaitingTrialResumesWhenNothingElseCanRun(t *testing.T) {
	for _, fallback := range []Fallback{Inconclusive, APIProbe} {
		n := newNodeSim(t)
		n.do(proven...)
		n.do("flags local-invalid=degrade", "kill", "verdict local rejected words=(maxPods must not be negative)")
		v := n.disk.versions[n.version]
		v.promoted, v.trial = nil, &Trial{Revision: "g", Terms: Terms{Duration: time.Minute}, Fallback: fallback}
		n.disk.versions[n.version] = v
		n.do("start")
		if n.refused || n.state.Run.Config.Revision != "g" || n.state.Trial == nil || n.state.Trial.Fallback != NoFallback {
			t.Errorf("%s: refused: %t, %q runs: %+v", fallback, n.refused, n.state.Run.Config.Revision, n.state.Trial)
		}
	}
}

func TestNoAPIProbeWhenNothingElseCanRun(t *testing.T) {
	n := newNodeSim(t)
	n.do(proven...)
	n.do("flags local-invalid=degrade api-loss-rollback=on", "kill", "verdict local rejected words=(maxPods must not be negative)")
	v := n.disk.versions[n.version]
	v.promoted = nil // it is on trial again
	n.disk.versions[n.version] = v
	n.do("start", "healthy 5s", "api down", "healthy 11m")
	if trial := n.state.Trial; trial == nil || !trial.APILostEarly || trial.APIProbed || n.last.Status.Condition.Reason == "DeadEnd" {
		t.Errorf("%+v: %+v", trial, n.last.Status.Condition)
	}
}

func TestReassignedRunningConfigIsReportedAsAssigned(t *testing.T) {
	n := newNodeSim(t)
	n.do(proven...)
	n.do("flags local-invalid=degrade", "kill", "verdict local rejected words=(maxPods must not be negative)", "start")
	c := randomConfig(1, 0)
	c.AssignedBy, c.Rollout, c.Checkpoint = "object", RolloutRef{Name: "workers", AssignedAt: epoch}, "file"
	n.intent = Intent{Kind: Assigned, Config: c}
	n.converge()
	n.revoked = &[]string{n.state.LastKnownGood.UID}
	n.intent = Intent{Kind: Unassigned, Config: Config{AssignedBy: "object"}, TakenBack: c.Rollout}
	n.converge()
	if n.state.Current.Revision == c.Revision || n.state.Run.Config.Revision != c.Revision {
		t.Fatalf("it was not taken back, or stopped running: %+v", n.state)
	}
	c.Checkpoint = "downloaded anew"
	n.intent = Intent{Kind: Assigned, Config: c}
	n.converge()
	if n.state.Current.Config != c || n.state.Run.Config != c {
		t.Errorf("assigned is %+v, said to run %+v", c, n.state.Run.Config)
	}
}

// TestStaleAssignmentAtStartKeepsTheAdoptedConfig: the adopted configuration continues, on trial or not.
func TestStaleAssignmentAtStartKeepsTheAdoptedConfig(t *testing.T) {
	for reason, want := range map[string]string{"StaleAssignment": "p1-0", "": "p0-0"} {
		n := newNodeSim(t)
		n.healthy = true
		n.start()
		for payload, wait := range []time.Duration{11 * time.Minute, time.Minute} {
			n.intent = Intent{Kind: Assigned, Config: randomConfig(payload, 0)}
			n.converge()
			n.pass(wait)
		}
		n.sigterm()
		n.intent = Intent{Kind: Invalid, Cause: "not adopted", Reason: reason, Config: randomConfig(2, 0)}
		n.start()
		if got := n.state.Run.Config.Revision; got != want {
			t.Errorf("with reason %q, %s runs, want %s", reason, got, want)
		}
	}
}

// The digest of last-known-good's file is needed for a rollback: a file of another assignment must not replace it.
func TestOnlyANewDownloadOfLastKnownGoodReplacesItsDigest(t *testing.T) {
	for name, change := range map[string]func(c *Config){
		"another revision":            func(c *Config) { c.Revision, c.UID, c.Payload = "u", "u", "p1" },
		"a revision with its content": func(c *Config) { c.Revision, c.UID = "g2", "g2" },
		"its name, another content":   func(c *Config) { c.Payload = "p1" },
		"it was not downloaded":       func(c *Config) { c.Checkpoint = "" },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNodeSim(t)
			n.do(proven...)
			n.intent.Config.Checkpoint = "file of g"
			n.converge()
			n.do("assign uid=v payload=p2", "exit status=1 times=4", "healthy 5s", "storage fails=full")
			c := n.state.LastKnownGood.Config
			c.Checkpoint = "file of another"
			change(&c)
			n.intent = Intent{Kind: Assigned, Config: c}
			n.converge()
			if got := n.state.LastKnownGood; got.Revision != "g" || got.Checkpoint != "file of g" {
				t.Errorf("last-known-good is %q with %q", got.Revision, got.Checkpoint)
			}
		})
	}
}

func TestTheNodeIsWatchedWhereADecisionDependsOnItsPods(t *testing.T) {
	for name, c := range map[string]struct {
		events []string
		want   bool
	}{
		"nothing is new":      {nil, false},
		"on trial":            {[]string{"assign uid=u payload=p1"}, true},
		"refused for pods":    {[]string{"verdict u refused guard=WouldEvictPods words=(2 pods)", "assign uid=u payload=p1"}, true},
		"refused for a field": {[]string{"verdict u protected guard=ProtectedFields words=(a field)", "assign uid=u payload=p1"}, false},
		"could not validate":  {[]string{"verdict u could-not-tell words=(no runtime)", "assign uid=u payload=p1"}, true},
		"pods cannot be read": {[]string{"verdict u refused guard=CouldNotValidate words=(forbidden)", "assign uid=u payload=p1"}, true},
		"the disk is full":    {[]string{"storage fails=full", "assign uid=u payload=p1"}, true},
		"revoked":             {[]string{"revoke u", "assign uid=u payload=p1"}, false},
		"local, refused":      {[]string{"verdict local refused guard=WouldEvictPods words=(2 pods)", "local"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNodeSim(t)
			n.do(proven...)
			n.do(c.events...)
			n.converge()
			if n.last.Watch != c.want {
				t.Errorf("watch is %t, want %t: %+v", n.last.Watch, c.want, n.last.Status.Condition)
			}
		})
	}
}

// u has failed, and after a restart of the agent last-known-good cannot run either.
func TestTheConditionIsAboutTheAssignmentAndNotItsFallback(t *testing.T) {
	for name, verdict := range map[string]string{
		"last-known-good is rejected now":  "verdict g rejected words=(no such cgroup)",
		"its file is damaged":              "verdict g unavailable words=(damaged)",
		"it changes a protected field now": "verdict g protected guard=ProtectedFields words=(a field)",
	} {
		t.Run(name, func(t *testing.T) {
			n := newNodeSim(t)
			n.do(proven...)
			n.do("assign uid=u payload=p1", "exit status=1 times=4", "healthy 2m", verdict, "agent-restart")
			if c := n.last.Status.Condition; !n.state.Run.Config.IsLocal() || c.Status != "False" || c.Reason != "CrashLooped" {
				t.Errorf("%q runs, the condition is %+v", n.state.Run.Config.Revision, c)
			}
		})
	}
}

// The API was reachable when the agent was restarted. That says nothing about the kubelet on trial, which was started then.
func TestAnAPIThatWasNotSeenSinceTheStartIsNotLost(t *testing.T) {
	n := newNodeSim(t)
	n.do(proven...)
	n.do("flags api-loss-rollback=on", "assign uid=u payload=p1", "healthy 30s", "kill")
	n.onDecision = func(_ State, _ Observed, d Decision) {
		if d.Action.Kind == Start {
			n.node.API = false
		}
	}
	n.do("start")
	n.onDecision = nil
	n.do("healthy 11m")
	if s := n.state; s.Run.Config.Revision != "u" || s.Trial == nil || s.Trial.APILostEarly || s.Trial.Fallback != NoFallback {
		t.Errorf("%q runs, trial %+v", s.Run.Config.Revision, s.Trial)
	}
}
