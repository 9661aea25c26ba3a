// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

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
	if a := started.Action; a.Config.Revision != "g" || a.Config.Checkpoint != "another file" || started.Next.Run.Config != a.Config || started.Status.Active != a.Config {
		t.Errorf("started %+v, recorded %+v, reported %+v", a.Config, started.Next.Run.Config, started.Status.Active)
	}
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
	n.intent = Intent{Kind: Assigned, Config: c}
	n.converge()
	n.revoke(n.state.LastKnownGood.UID)
	n.intent = Intent{Kind: Unassigned, Config: Config{AssignedBy: "object"}, TakenBack: &v1alpha1.TakenBackAssignment{Rollout: c.Rollout.Name, AssignedAt: c.Rollout.AssignedAt}}
	n.converge()
	assert.Must(t, n.state.Current.Revision != c.Revision && n.state.Run.Config.Revision == c.Revision,
		"it was not taken back, or stopped running: %+v", n.state)

	c.Checkpoint = "downloaded anew"
	n.intent = Intent{Kind: Assigned, Config: c}
	n.converge()
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
			n.intent = Intent{Kind: Assigned, Config: randomConfig(payload, 0)}
			n.converge()
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
		t.Run(name, func(t *testing.T) {
			n := provenNode(t)
			n.intent.Config.Checkpoint = "file of g"
			n.converge()
			n.do("assign uid=v payload=p2", "exit status=1 times=4", "healthy 5s", "storage fails=full")
			c := n.state.LastKnownGood.Config
			c.Checkpoint = "file of another"
			change(&c)
			n.intent = Intent{Kind: Assigned, Config: c}
			n.converge()
			got := n.state.LastKnownGood
			assert.That(t, got.Revision == "g" && got.Checkpoint == "file of g",
				"last-known-good is %q with %q", got.Revision, got.Checkpoint)
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
		"a verdict is open":   {[]string{"assign uid=u payload=p1", "exit status=1 times=4", "assign uid=g payload=p0"}, true},
		"local, refused":      {[]string{"verdict local refused guard=WouldEvictPods words=(2 pods)", "local"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			n := provenNode(t, c.events...)
			n.converge()
			assert.That(t, n.last.Watch == c.want, "watch is %t, want %t: %+v", n.last.Watch, c.want, n.last.Status.Condition)
		})
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
		t.Run(name, func(t *testing.T) {
			n := newNodeSim(t)
			n.do("node", "assign uid=u payload=p1")
			for range 20 {
				if n.do(c.happens); len(n.state.Bad) > 0 {
					break
				}

				n.do(c.stop, "start")
			}

			if c.want == "" && len(n.state.Bad) > 0 || c.want != "" && (len(n.state.Bad) != 1 || n.state.Bad[0].Failure != c.want) {
				t.Errorf("bad are %+v, want %q", n.state.Bad, c.want)
			}
		})
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
