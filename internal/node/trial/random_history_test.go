// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"flag"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// TestMain sets more and longer histories than rapid's defaults.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "200", "rapid.steps": "60", "rapid.nofailfile": "true"} {
		must.OK(flag.Set(name, value)) // the command line is read after this
	}

	m.Run()
}

// TestInvariantsHoldInRandomHistories runs random histories of a node:
// assignments, verdicts, crashes, outages, reboots, deaths of the agent at any
// point, upgrades, lost writes. nodeSim checks each decision, and invariants
// checks the invariants with its own counts.
func TestInvariantsHoldInRandomHistories(t *testing.T) {
	seen, decisions, walked := map[string]int{}, 0, 0
	rapid.Check(t, func(r *rapid.T) {
		walked++
		n := newRandomNode(r, seen)
		r.Repeat(n.actions())
		n.finish()
		decisions += n.steps
	})
	t.Logf("%d histories, %d decisions; told: %v", walked, decisions, seen)
	if testing.Short() || t.Failed() {
		return
	}

	for _, what := range []string{
		"ConfigChanged", "ConfigRejected", "ConfigRolledBack", "ConfigLastKnownGood", "DeadEnd", "Inconclusive", "TrialResumed", "APILost",
		"Forgotten", string(v1alpha1.ReasonCrashLooped), string(v1alpha1.ReasonNotHealthy), string(v1alpha1.ReasonNotReady), string(v1alpha1.ReasonWorkloadHarmed), string(v1alpha1.ReasonPodsCannotStart), string(v1alpha1.ReasonLostAPI), string(v1alpha1.ReasonValidationFailed),
		"Refuse", "inherited", "died between persist and action", "torn write", "lifted", "revoked what ran",
		"ConfigOnTrial", "last-known-good on trial", "last-known-good gives way",
		notReadyAtBegin, harmBeforeRun, apiLostAgain, failedWhileValidating, localBecameInvalid, downloadedAgain, unknownBoot, fourBad, onlyTrialWorks,
		"forgot at local: {}", "forgot at a removal", "kept what was taken back", "kept at a removal of what is revoked", "kept what another object had assigned",
	} {
		assert.That(t, seen[what] >= 5, "the histories hardly show %s (%d times): they prove little about it", what, seen[what])
	}
}

// randomNode is a nodeSim that rapid drives.
type randomNode struct {
	*nodeSim
	r      *rapid.T
	seen   map[string]int
	inv    *invariants
	object int // the assigning object: it may be deleted and created again

	manyRejected bool // once per history, because it is slow
}

// by returns the UID of the assigning object.
func (n *randomNode) by() string { return fmt.Sprintf("object-%d", n.object) }

func newRandomNode(r *rapid.T, seen map[string]int) *randomNode {
	n := &randomNode{nodeSim: newNodeSim(r), r: r, seen: seen}
	n.validationTakes = time.Millisecond // no two trials begin at the same instant
	n.limits = Limits{
		TrialDuration:      rapid.SampledFrom([]time.Duration{30 * time.Second, 3 * time.Minute, 10 * time.Minute}).Draw(r, "trial"),
		CrashLoopThreshold: rapid.SampledFrom([]int{0, 0, 1, 3, 10}).Draw(r, "threshold"),
		HealthTimeout:      time.Minute, ReadyTimeout: time.Minute,
		APILossRollback: rapid.Bool().Draw(r, "api-loss-rollback"),
		DegradeLocal:    rapid.Bool().Draw(r, "degrade"),
	}
	for p := range 6 { // the same for both UIDs of a payload
		outcome := rapid.SampledFrom([]Outcome{Accepted, Accepted, Accepted, Accepted, Accepted, Rejected, Refused, Protected, CouldNotTell}).Draw(r, "verdict")
		for u := range 2 {
			n.dryRuns[randomConfig(p, u).Revision] = Verdict{Outcome: outcome, Guard: "WouldEvictPods", Message: "so it is"}
		}
	}

	n.basis, n.compares, n.fileVersion = map[string]string{}, rapid.Bool().Draw(r, "compares"), n.version
	n.healthy = true
	if p := rapid.IntRange(0, 11).Draw(r, "never renews"); p < 6 { // a long nodeLeaseDurationSeconds does that
		n.neverRenews = func(c Config) bool { return c.SHA256 == randomConfig(p, 0).SHA256 }
	}

	n.inv = newInvariants(n)
	n.onDecision = n.inv.watch
	n.start()

	return n
}

func randomConfig(payload, uid int) Config {
	object := fmt.Sprintf("p%d-%d", payload, uid)
	c := Config{Revision: object + "-content", ConfigRevision: v1alpha1.ConfigRevision{UID: types.UID(object), Namespace: "ns", Name: "config", SHA256: fmt.Sprintf("sha-%d", payload)}}
	c.Dropin = payload == 3 || payload == 4
	switch payload { // the requested terms are part of the payload
	case 4:
		c.RequestedTerms = RequestedTerms{Duration: metav1.Duration{Duration: time.Minute}, Starts: 1}
	case 5:
		c.RequestedTerms = RequestedTerms{Duration: metav1.Duration{Duration: 20 * time.Minute}, Starts: 3, AllowPodLoss: true}
	}

	return c
}

func (n *randomNode) drawConfig() Config {
	c := randomConfig(rapid.IntRange(0, 5).Draw(n.r, "payload"), rapid.IntRange(0, 1).Draw(n.r, "uid"))
	c.Rollout.Attempt = int64(rapid.IntRange(0, 3).Draw(n.r, "attempt"))
	c.Checkpoint = rapid.SampledFrom([]string{"file", "file", "downloaded anew"}).Draw(n.r, "checkpoint")
	if rapid.Bool().Draw(n.r, "rollout") {
		c.Rollout.Name, c.Rollout.AssignedAt = "workers", metav1.NewTime(epoch.Add(n.clock))
	}

	c.AssignedBy = n.by()

	return c
}

// change changes the world once, lets the node react, and checks invariant 6:
// at most one stop and start.
func (n *randomNode) change(change func()) func(*rapid.T) {
	return func(*rapid.T) {
		if !n.up {
			if n.refused && rapid.Bool().Draw(n.r, "repaired") {
				n.dryRuns[""] = Verdict{Outcome: Accepted}
			}

			n.start()

			return
		}

		n.inv.starts = 0
		if !n.child.Alive {
			n.inv.starts = -1 // the start of the kubelet that should run by now
		}
		if _, bad := n.state.BadEntry(n.state.Run.Config); bad || n.state.IsRevoked(n.state.Run.Config) {
			n.inv.starts-- // it runs because nothing else could: it does not wait for a verdict when something can
		}

		n.clock += time.Millisecond
		before := len(n.trace)
		change()
		if n.up {
			n.converge()
		}

		for _, line := range n.trace[min(before, len(n.trace)):] {
			if strings.Contains(line, "ConfigRolledBack") || strings.Contains(line, "Inconclusive") {
				n.inv.starts-- // neither a failed trial nor a withdrawn verdict waits for the verdict on the next assignment
			}
		}

		n.inv.starts, n.stopped = n.inv.starts-n.stopped, 0
		n.must(n.inv.starts <= 1, "one change cost the node %d starts of its kubelet", n.inv.starts)
	}
}

func (n *randomNode) actions() map[string]func(*rapid.T) {
	coin := func(label string) bool { return rapid.IntRange(0, 3).Draw(n.r, label) > 0 } // true in three of four cases
	pass := func(*rapid.T) {
		n.pass(time.Duration(rapid.SampledFrom([]int{1, 5, 20, 40, 70, 130, 700}).Draw(n.r, "seconds")) * time.Second)
	}
	assign := n.change(func() {
		n.intent = Intent{Kind: Assigned, Config: n.drawConfig()}
		if rapid.IntRange(0, 3).Draw(n.r, "ends by itself") == 0 {
			n.intent.Config.End.After.Duration = time.Duration(rapid.IntRange(1, 20).Draw(n.r, "minutes")) * time.Minute
			n.intent.Config.End.Requested = fmt.Sprint(rapid.IntRange(0, 2).Draw(n.r, "request"))
		}
	})
	exit := n.change(func() {
		if n.child.Alive {
			n.exit("exit status 1", coin("spawned"))
		}
	})
	replace := func() {
		n.inv.starts-- // the start after that exit was not requested
		n.otherFile()
		if n.fileVersion != n.version {
			n.examine()
		}
	}
	actions := map[string]func(*rapid.T){
		"assign": assign, "assign2": assign, "pass": pass, "pass2": pass, "exit": exit, "exit2": exit,
		"crash-loop": func(*rapid.T) {
			for range rapid.IntRange(1, 12).Draw(n.r, "exits") {
				exit(n.r)
				n.pass(time.Minute / 2)
			}
		},
		"assign-local": n.change(func() { n.intent = Intent{Kind: Nil} }),
		"unclear": n.change(func() {
			n.intent = Intent{Kind: rapid.SampledFrom([]IntentKind{Unanswered, Invalid}).Draw(n.r, "kind"), Cause: "who knows"}
		}),
		"remove": n.change(func() { // by a person or by a rollout; the mark of an earlier taking back may still be there
			n.remove()
			switch rapid.IntRange(0, 4).Draw(n.r, "how") {
			case 0:
				n.takeBack(n.clock)
			case 1:
				n.takeBack(0)
			case 2:
				n.revoke(n.state.Current.UID)
			}
		}),
		"assign-and-remove": func(*rapid.T) { // rare by chance with a last-known-good
			assign(n.r)
			n.pass(time.Duration(rapid.SampledFrom([]int{5, 700}).Draw(n.r, "seconds")) * time.Second)
			n.change(func() {
				n.remove()
				if rapid.Bool().Draw(n.r, "taken back") {
					n.takeBack(n.clock)
				} else {
					n.revoke(n.state.Current.UID)
				}
			})(n.r)
		},
		"recreate": n.change(func() {
			n.object++
			n.remove()
		}),
		"old-records": func(*rapid.T) { // of an agent that did not record the assigning object
			n.sigterm()
			n.kill()
			n.disk.current.AssignedBy, n.disk.lastKnownGood.AssignedBy = "", ""
			n.inv.from, n.inv.kept = "", ""
			n.start()
		},
		"health": n.change(func() { n.healthy, n.waiting = coin("healthy"), !coin("not waiting") }),
		"ready":  n.change(func() { n.node.Ready = coin("ready") }),
		"api":    n.change(func() { n.node.API = coin("api") }),
		"outages": n.change(func() {
			n.node.RuntimeDown, n.node.ShuttingDown = !coin("runtime"), !coin("not shutting down")
		}),
		"workload": n.change(func() {
			n.node.Pressure, n.node.LostPods = nil, nil
			n.node.LossUnexplained = coin("explained")
			switch rapid.IntRange(0, 5).Draw(n.r, "harm") {
			case 0:
				n.node.Pressure = []string{"MemoryPressure"}
			case 1:
				n.node.LostPods = []string{"pod"}
			}
		}),
		"pods": n.change(func() {
			list := func(label string) (pods []PodStart) {
				for _, name := range rapid.SliceOfN(rapid.SampledFrom([]string{"a/1", "a/2", "b/1", "kube-system/1", "evenkeel-system/1"}), 0, 3).Draw(n.r, label) {
					pods = append(pods, podStart(name))
				}

				return pods
			}
			n.node.Started, n.node.Refused = list("started"), list("refused")
		}),
		"api-loss": func(*rapid.T) { // rare by chance: adopted, lost soon, away for long
			n.change(n.repairAll)(n.r)
			assign(n.r)
			n.pass(time.Duration(rapid.SampledFrom([]int{5, 60, 200}).Draw(n.r, "seconds")) * time.Second)
			n.change(func() { n.node.API = false })(n.r)
			n.pass(610 * time.Second)
			if coin("back") {
				n.change(func() { n.node.API = true })(n.r)
			}
		},
		"trial-goes-wrong": func(*rapid.T) { // and last-known-good may fail as well
			n.change(n.repairAll)(n.r)
			n.pass(5 * time.Second)
			assign(n.r)
			n.pass(5 * time.Second)
			switch rapid.IntRange(0, 4).Draw(n.r, "how") {
			case 0:
				n.healthy = false
			case 1:
				n.node.Ready = false
			case 2:
				n.change(func() { n.revoke(n.state.Run.Config.UID) })(n.r)
			case 4:
				n.node.Refused = []PodStart{podStart("a/1"), podStart("b/1")}
			case 3:
				n.healthy = false
				for range 2*n.limits.CrashLoopThreshold + 2 {
					exit(n.r)
					n.pass(10 * time.Second)
				}
			}

			n.pass(65 * time.Second)
			if len(n.node.Refused) > 0 {
				n.pass(30 * time.Second)
			}
			if coin("last-known-good does better") {
				n.change(n.repairAll)(n.r)
			}

			n.pass(65 * time.Second)
		},
		"guard": n.change(func() { // pods, cordon or local changed
			maps.DeleteFunc(n.verdicts, func(_ string, v Verdict) bool {
				return v.Outcome == Refused || v.Outcome == Protected || v.Outcome == CouldNotTell
			})
		}),
		"protect": n.change(func() { // the local configuration or the list of protected fields changed: seen at the next validation
			payload := rapid.IntRange(0, 5).Draw(n.r, "payload")
			for u := range 2 {
				revision := randomConfig(payload, u).Revision
				if v := n.dryRuns[revision]; v.Outcome == Accepted || v.Outcome == Protected {
					v.Outcome = Accepted + Protected - v.Outcome
					n.dryRuns[revision] = v
					delete(n.verdicts, revision)
				}
			}
		}),
		"flags": func(*rapid.T) {
			n.sigterm()
			n.limits.TrialDuration = rapid.SampledFrom([]time.Duration{30 * time.Second, 10 * time.Minute}).Draw(n.r, "trial")
			n.limits.CrashLoopThreshold = rapid.SampledFrom([]int{0, 3}).Draw(n.r, "threshold")
			n.start()
		},
		"local": n.change(func() {
			n.dryRuns[""] = Verdict{Outcome: rapid.SampledFrom([]Outcome{Accepted, Accepted, Accepted, Rejected, CouldNotTell, Refused}).Draw(n.r, "local"), Guard: "RestartWouldEvictPods"}
		}),
		"forget": n.change(func() {
			if len(n.state.Bad) > 0 {
				n.forget = []string{n.state.Bad[0].Revision}
				delete(n.verdicts, n.forget[0])
			}
		}),
		"revoke": n.change(func() {
			uids := []types.UID{}
			for range rapid.IntRange(0, 2).Draw(n.r, "revoked") {
				uids = append(uids, n.drawConfig().UID)
			}

			n.revoke(uids...)
		}),
		"storage": n.change(func() {
			n.diskFails = ""
			if !coin("works") {
				n.diskFails = "no space left on device"
			} else {
				n.storage = ""
			}
		}),
		"slow-validation": func(*rapid.T) {
			n.validationHangs = true
			assign(n.r)
			n.pass(7 * time.Second)
			n.validationHangs = false
			n.change(func() {})(n.r)
		},
		"many-rejections": func(*rapid.T) { // more than are kept
			if n.manyRejected || n.diskFails != "" || coin("rarely") {
				return
			}

			n.manyRejected = true
			for i := range maxBad + 5 {
				n.change(func() { n.intent = Intent{Kind: Assigned, Config: n.rejectable(i)} })(n.r)
			}
		},
		"never-healthy": func(*rapid.T) { // and the unit is stopped because of that, again and again
			n.change(n.repairAll)(n.r)
			assign(n.r)
			n.healthy = false
			for range rapid.IntRange(1, 6).Draw(n.r, "stops") {
				n.pass(time.Duration(rapid.SampledFrom([]int{7, 20, 30, 45}).Draw(n.r, "seconds")) * time.Second)
				if coin("stopped") {
					n.sigterm()
				} else {
					n.inv.killed()
					n.kill()
				}

				n.start()
			}
		},
		"kill":    func(*rapid.T) { n.inv.killed(); n.kill(); n.start() },
		"sigterm": func(*rapid.T) { n.sigterm(); n.start() },
		"upgrade": func(*rapid.T) {
			n.sigterm()
			n.replaceFile(rapid.SampledFrom([]string{"v1", "v2"}).Draw(n.r, "version"))
			n.start()
		},
		"replace": n.change(replace),
		"new-version-fails": func(*rapid.T) { // the new version fails with what worked before, and perhaps with every configuration
			n.change(n.repairAll)(n.r)
			n.pass(time.Minute)
			n.change(replace)(n.r)
			for i := range 3*n.limits.CrashLoopThreshold + 4 {
				if n.healthy = n.state.Run.Config.IsLocal() && coin("local works"); !n.healthy && i < 40 {
					exit(n.r)
				}

				n.pass(10 * time.Second)
			}

			n.change(n.repairAll)(n.r)
			n.pass(65 * time.Second)
		},
		"edit-local":   n.change(func() { n.editLocal() }),
		"replace-file": n.change(func() { n.otherFile() }),
		"edit-and-roll-back": func(*rapid.T) { // the local configuration is the fallback, and changes while the trial runs
			n.change(n.repairAll)(n.r)
			assign(n.r)
			n.pass(5 * time.Second)
			n.change(func() { n.editLocal() })(n.r)
			n.change(func() { n.healthy = false })(n.r)
			n.pass(65 * time.Second)
			if coin("edited again") {
				n.change(func() { n.editLocal() })(n.r)
			}

			n.change(n.repairAll)(n.r)
			n.pass(65 * time.Second)
		},
		"reboot": func(*rapid.T) {
			if coin("clean") {
				n.sigterm()
			}

			n.inv.killed()
			n.kill()
			n.boot++
			n.node.ShuttingDown = false
			n.start()
		},
		"die-while-deciding": func(*rapid.T) {
			n.dieBeforeActing = func() bool { n.seen["died between persist and action"]++; return true }
			if coin("whole") {
				n.seen["torn write"]++
				n.tearDisk = func(steps int) int { return rapid.IntRange(0, steps).Draw(n.r, "written") }
				n.inv.lostWrite[n.version] = true
			}

			switch rapid.IntRange(0, 2).Draw(n.r, "upon") {
			case 0:
				assign(n.r)
			case 1:
				exit(n.r)
			case 2:
				pass(n.r)
			}

			n.inv.killed()
			n.kill()
			n.dieBeforeActing, n.tearDisk = nil, nil
			if !coin("same boot") {
				n.boot++
				n.inv.lostWrite[n.version] = true
			}

			n.start()
		},
		"": func(*rapid.T) { n.inv.atRest() },
	}
	actions["trial-goes-wrong2"] = actions["trial-goes-wrong"]
	maps.Copy(actions, n.rareScenarios())

	return actions
}

// remove removes the assignment.
func (n *randomNode) remove() {
	n.intent = Intent{Kind: Unassigned, Config: Config{AssignedBy: n.by()}, Cause: "nothing is assigned"}
}

// takeBack marks that a rollout took back what it assigned until then.
func (n *randomNode) takeBack(until time.Duration) {
	n.intent.TakenBack = &v1alpha1.TakenBackAssignment{Rollout: "workers", AssignedAt: metav1.NewTime(epoch.Add(until))}
}

// editLocal edits the local file, which may become invalid, or valid again.
func (n *randomNode) editLocal() {
	n.digest, n.dryRuns[""] = rapid.SampledFrom([]string{"local-1", "local-2", "typo"}).Draw(n.r, "local"), Verdict{Outcome: Accepted}
	if n.digest == "typo" {
		n.dryRuns[""] = Verdict{Outcome: Rejected, Message: "it has a typo"}
	}
}

// otherFile replaces the kubelet's file by one that may decide differently. It
// runs at the next start.
func (n *randomNode) otherFile() {
	n.replaceFile(rapid.SampledFrom([]string{"v1", "v2", "v3"}).Draw(n.r, "version"))
	n.otherVerdicts()
}

// otherVerdicts are those of another binary.
func (n *randomNode) otherVerdicts() {
	outcome := rapid.SampledFrom([]Outcome{Accepted, Rejected, CouldNotTell}).Draw(n.r, "verdict")
	for p := range rapid.IntRange(0, 6).Draw(n.r, "payloads") {
		for u := range 2 {
			n.dryRuns[randomConfig(p, u).Revision] = Verdict{Outcome: outcome, Message: "so says another binary"}
		}
	}
}

// repairAll ends every outage and failure.
func (n *randomNode) repairAll() {
	n.node, n.healthy, n.waiting = Node{API: true, Ready: true}, true, false
}

// finish ends each history: everything works again, and the node must come to
// run a configuration that it may run.
func (n *randomNode) finish() {
	n.dryRuns[""] = Verdict{Outcome: Accepted}
	if n.state.Temporary != nil { // otherwise the node stays after the end
		n.dryRuns[n.state.LastKnownGood.Revision] = Verdict{Outcome: Accepted}
	}

	n.repairAll()
	n.diskFails, n.storage, n.validationHangs, n.neverRenews = "", "", false, nil
	n.kill()
	n.start()
	n.pass(25 * time.Minute)
	n.must(n.up && n.child.Alive && n.state.Run.Healthy, "no healthy kubelet in the end: %+v", n.state.Run)
	n.must(n.state.Trial == nil || n.dryRuns[n.state.Current.Revision].Outcome != Accepted || n.state.IsRevoked(n.state.Current.Config) || !n.state.OnTrial(n.state.Run.Config),
		"a trial does not end: %+v", n.state.Trial)
	for _, b := range n.state.Bad {
		n.must(!b.Provisional || b.matches(n.state.Run.Config), "a verdict stays provisional: %+v", b)
	}

	n.inv.atRest()
}
