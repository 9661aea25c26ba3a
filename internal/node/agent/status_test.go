// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestStatusContainsTheWholeDecision(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	when := metav1.NewTime(at)
	config := func(uid types.UID) trial.Config {
		about := v1alpha1.ConfigRevision{UID: uid, Namespace: "ns", Name: "name", SHA256: "sha"}
		return trial.Config{Revision: string(uid) + "-0123456789ab", ConfigRevision: about}
	}
	assigned, active, good := config("a"), config("b"), config("c")
	assigned.Rollout = v1alpha1.RolloutReference{Name: "workers", Revision: 4, Attempt: 2, AssignedAt: metav1.NewTime(at)}
	st := trial.Status{
		Assigned: &assigned, Active: active, LastKnownGood: trial.AdoptedConfig{Config: good, Since: at}, Local: trial.LocalInit,
		Condition: trial.Condition{Status: "False", Reason: "CrashLooped", Message: "using b", Cause: "a crash-looped"}, Error: "words",
		Trial: &v1alpha1.Trial{StartTime: &when, HealthySeconds: 63, DurationSeconds: 600, Restarts: 1, CrashLoopThreshold: 3},
		Bad: []trial.BadConfig{
			{Revision: "a-0123456789ab", ConfigRevision: v1alpha1.ConfigRevision{UID: "a", Namespace: "ns", Name: "name-a"}, Time: at, Reason: "crash-looped", Detail: "exit status 1"},
			{Revision: "d", ConfigRevision: v1alpha1.ConfigRevision{UID: "d"}, Time: at, Reason: "lost the API"},
		},
	}
	want := v1alpha1.NodeConfigStatus{
		ObservedGeneration: 4,
		Assigned:           &assigned.ConfigRevision,
		Active:             &active.ConfigRevision,
		LastKnownGood:      &v1alpha1.LastKnownGoodConfig{ConfigRevision: good.ConfigRevision, Since: &when},
		Error:              "words",
		Trial:              &v1alpha1.Trial{StartTime: &when, HealthySeconds: 63, DurationSeconds: 600, Restarts: 1, CrashLoopThreshold: 3},
		BadConfigs: []v1alpha1.BadConfig{
			{UID: "a", Revision: "a-0123456789ab", Namespace: "ns", Name: "name-a", Time: &when, Reason: "crash-looped: exit status 1"},
			{UID: "d", Revision: "d", Time: &when, Reason: "lost the API"},
		},
		Conditions: []metav1.Condition{
			{Type: "ConfigOK", Status: "False", ObservedGeneration: 4, Reason: "CrashLooped", Message: "using b: a crash-looped"},
			{Type: "Ready", Status: "False", ObservedGeneration: 4, Reason: "CrashLooped", Message: "a crash-looped"},
			{Type: "Stalled", Status: "True", ObservedGeneration: 4, Reason: "CrashLooped", Message: "a crash-looped"},
		},
	}

	assert.NoDiff(t, cmp.Diff(want, nodeConfigStatus(st, nil, v1alpha1.NodeConfigStatus{ObservedGeneration: 4})))
}

func TestReadinessFollowsConfigOKAndTheTrial(t *testing.T) {
	for _, tt := range []struct {
		ok    metav1.ConditionStatus
		trial bool
		want  string
	}{
		{"True", false, "Ready=True why"},
		{"True", true, "Ready=False OnTrial, Reconciling=True OnTrial"},
		{"False", false, "Ready=False why, Stalled=True why"},
		{"False", true, "Ready=False why, Stalled=True why"},
		{"Unknown", false, "Ready=False why, Reconciling=True why"},
		{"Unknown", true, "Ready=False why, Reconciling=True why"},
	} {
		st := trial.Status{Condition: trial.Condition{Status: tt.ok, Reason: "why", Cause: "cause"}}
		if tt.trial {
			st.Trial = &v1alpha1.Trial{}
		}

		var got []string
		for _, c := range readiness(st) {
			assert.That(t, c.Message != "", "%+v", c)
			got = append(got, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
		}

		assert.Equal(t, strings.Join(got, ", "), tt.want, "ConfigOK", tt.ok, "on trial", tt.trial)
	}
}

func TestTheNodeIsConfiguredOnlyWithAnAssignedConfiguration(t *testing.T) {
	for _, tt := range []struct {
		ok         metav1.ConditionStatus
		assigned   bool
		generation int64
		want       metav1.Condition
	}{
		{"True", false, 1, metav1.Condition{Status: "Unknown", Reason: "NothingAssigned", Message: "no configuration is assigned (NodeConfig generation 1)"}},
		{"False", false, 0, metav1.Condition{Status: "Unknown", Reason: "NothingAssigned", Message: "no configuration is assigned"}},
		{"True", true, 7, metav1.Condition{Status: "True", Reason: "why", Message: "cause (NodeConfig generation 7)"}},
		{"False", true, 7, metav1.Condition{Status: "False", Reason: "why", Message: "cause (NodeConfig generation 7)"}},
		{"Unknown", true, 0, metav1.Condition{Status: "Unknown", Reason: "why", Message: "cause"}},
	} {
		st := trial.Status{Condition: trial.Condition{Status: tt.ok, Reason: "why", Cause: "cause"}}
		if tt.assigned {
			st.Assigned = &trial.Config{Revision: "a"}
		}

		assert.Equal(t, configured(st, tt.generation), tt.want, "ConfigOK", tt.ok, "assigned", tt.assigned)
	}
}

// TestFirstReportContainsNumbersForPlans: for a node that joins nothing is
// assigned, so nothing is watched.
func TestFirstReportContainsNumbersForPlans(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pods("a", "b", "c")
		w.api.set(func(api *simAPI) { api.pods[0].Static, api.pods[1].OwnerKind = true, "DaemonSet" })
		w.up()
		first := w.reporter.all()[0].Status
		assert.Equal(t, *first.WorkloadPods, 1, "workload pods")
		assert.Equal(t, *first.DefaultTrialSeconds, int64(limits.TrialDuration/time.Second), "seconds for a trial")
	})
	inWorld(t, func(w *world) {
		w.apiUp(false)
		w.up()
		assert.That(t, w.reporter.last().Status.WorkloadPods == nil, "with the API away it says a number of workload pods")
	})
}

func unreadyOf(s v1alpha1.NodeConfigStatus) int64 {
	if s.PodsUnreadyOnRestart == nil {
		return -1
	}

	return *s.PodsUnreadyOnRestart
}

// probedPods are two pods that a restart of every kubelet or of an old one
// makes unready, and several that none does.
func (w *world) probedPods() {
	w.pods("static", "ready", "not-ready", "not-probed", "deleted", "failed")
	w.api.set(func(api *simAPI) {
		for i := range api.pods {
			p := &api.pods[i]
			p.Static, p.Deleting = p.Name == "static", p.Name == "deleted"
			p.Ready, p.Probed = p.Name != "not-ready", p.Name != "not-probed"
			if p.Name == "failed" {
				p.Phase = "Failed"
			}
		}
	})
}

func TestStatusSaysHowManyPodsARestartMakesUnready(t *testing.T) {
	on := map[string]any{"ChangeContainerStatusOnKubeletRestart": true}
	for _, tt := range []struct {
		version string
		gates   map[string]any
		want    int64
	}{
		{"v1.33.13", nil, 2}, {"v1.34.4-eks-1a2b3c", nil, 2}, {"v1.35.4", nil, 1}, {"v1.36.3", on, 2}, {"v1.37.2", nil, 1},
		{"unknown", nil, 1}, // as the guards take it
	} {
		inWorld(t, func(w *world) {
			w.kubelet.set(func(s *kubeletState) { s.version, s.confs[""] = tt.version, conf{gates: tt.gates} })
			w.probedPods()
			w.up()
			assert.Equal(t, unreadyOf(w.reporter.all()[0].Status), tt.want, tt.version, "with", tt.gates, "pods")
		})
	}
}

// The files may be many, and a node makes a decision every few seconds.
func TestTheLocalFilesAreReadOncePerDecision(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.adopts("uid-good", good)
		w.pass(5 * time.Second) // the dry run of the fallback is over
		decided, read := w.init.get().passes, int(w.kubelet.reads.Load())
		w.pass(20 * time.Second)
		decided, read = w.init.get().passes-decided, int(w.kubelet.reads.Load())-read
		assert.That(t, w.status().Trial != nil && decided != 0 && read == decided,
			"in %d decisions of a trial the local files were read %d times", decided, read)
	})
}

func TestPodsThatTheNextKubeletMakesUnreadyAreReported(t *testing.T) {
	inWorld(t, func(w *world) {
		w.probedPods()
		w.up()
		replace := func(version string, want int64) {
			t.Helper()
			w.replaceBinary(version)
			asked := w.kubelet.asked.Load()
			w.pass(2 * recountInterval)
			s := w.status()
			assert.That(t, unreadyOf(s) == want && s.ComponentVersion == "v1.36.3",
				"%s was replaced by %s: %d pods, want %d", s.ComponentVersion, version, unreadyOf(s), want)
			assert.Equal(t, w.kubelet.asked.Load()-asked, 1, "requests for the version")
		}
		replace("v1.34.4", 2)
		replace("v1.37.2", 1)
		w.wantStarts("")
	})
}

func TestIdleAgentCountsPodsAgainWhereARestartMakesThemUnready(t *testing.T) {
	forEach(t, inWorld, map[string]int64{"v1.34.4": 2, "v1.36.3": 0}, func(w *world, version string, want int64) {
		w.replaceBinary(version)
		w.up() // an empty node
		w.probedPods()
		before := w.api.snapshots
		w.pass(2 * recountInterval)
		assert.Equal(w.t, unreadyOf(w.reporter.last().Status), want, "pods")
		n := w.api.snapshots - before
		assert.That(w.t, n <= 2 && (n > 0) == (want > 0), "%d requests", n)
		w.apiUp(false)
		w.pass(2 * recountInterval)
		assert.Equal(w.t, unreadyOf(w.reporter.last().Status), want, "pods without the API")
	})
}

func TestPodsThatTheLastRestartMadeUnreadyCount(t *testing.T) {
	inWorld(t, func(w *world) {
		w.kubelet.set(func(s *kubeletState) { s.version = "v1.34.4" })
		w.probedPods()
		w.up()
		w.adopts("a", conf{name: "a"})
		w.api.set(func(api *simAPI) {
			for i := range api.pods {
				api.pods[i].Ready = false
			}
		})
		w.pass(limits.TrialDuration + time.Second)
		s := w.reporter.last().Status
		assert.That(t, s.Trial == nil && unreadyOf(s) == 2, "after the trial the status says %d pods, want 2; trial %+v", unreadyOf(s), s.Trial)
		w.pass(2 * recountInterval) // something else makes them unready
		assert.Equal(t, unreadyOf(w.reporter.last().Status), 0, "pods later")
	})
}

// An overloaded API server fails to answer agents for minutes. If they wrote
// that, it would stay overloaded.
func TestAShortSilenceOfTheSourceIsNotReported(t *testing.T) {
	const unanswered = "Unknown | using current (UID: uid-good): failed to sync, desired config unclear, cause: the API server refuses connections (SyncFailed)"
	const limit = silenceFactor * unansweredLimit
	inGoodWorld(t, func(w *world) {
		before := len(w.reporter.all())
		for range 3 {
			w.apiUp(false)
			w.pass(limit - 5*time.Second)
			w.apiUp(true)
			w.pass(25 * time.Second)
		}

		w.wantReports(before)
		w.apiUp(false)
		w.pass(limit - 5*time.Second)
		signal(w.source.changed) // the next decision without a reason is ten seconds later
		w.pass(6 * time.Second)
		w.wantConfigOK(unanswered)
		w.apiUp(true)
		w.pass(10 * time.Second)
		w.wantConfigOK("True | using current (UID: uid-good): all checks passed (AllChecksPassed)")
		w.apiUp(false)
		w.pass(time.Second)
		died := time.Now()
		w.dies(exitOne)
		w.pass(10 * time.Second)
		w.wantConfigOK(unanswered) // the kubelet was started since
		at := w.reporter.last().KubeletStart
		assert.That(t, !at.Before(died), "the kubelet died at %s, and its last start is reported as %s", died, at)
	})
}

func TestARefusalOfTheAPIServerIsReportedAfterHalfAMinute(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		before := len(w.reporter.all())
		w.source.publish(w.source.looks, source.Answer{Intent: trial.Intent{Cause: "forbidden to this node (403)"}})
		w.pass(unansweredLimit - 5*time.Second)
		w.wantReports(before)
		w.pass(15 * time.Second)
		w.wantError("forbidden to this node (403)")
	})
}

// An API server that has just started refuses for a moment what it grants
// later, and an overloaded one may not list the pods.
func TestWhatIsNotAnsweredJustAfterAnOutageIsNotReported(t *testing.T) {
	forEach(t, inGoodWorld, map[string]func(*world){
		"the NodeConfig is forbidden": func(w *world) {
			w.source.publish(w.source.looks, source.Answer{Intent: trial.Intent{Cause: "forbidden to this node (403)"}})
		},
		"the pods are unknown": func(w *world) {
			unlistable(true)(w)
			w.assign("uid-next", conf{name: "next"})
			w.apiUp(true)
		},
	}, func(w *world, _ string, happens func(*world)) {
		w.apiUp(false)
		w.pass(2 * unansweredLimit)
		before := len(w.reporter.all())
		happens(w)
		w.pass(5 * time.Second)
		w.wantReports(before)
	})
}

// The controller waits for the end of a trial.
func TestTheEndOfATrialIsReportedAlthoughTheSourceIsSilent(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.adopts("uid-next", conf{name: "next"})
		w.source.publish(w.source.looks, source.Answer{Silent: true, Intent: trial.Intent{Cause: "the API server is overloaded (429)"}})
		w.pass(limits.TrialDuration + time.Second)
		s := w.status()
		assert.That(t, s.Trial == nil && s.LastKnownGood != nil && s.LastKnownGood.UID == "uid-next",
			"trial %+v, last-known-good %+v", s.Trial, s.LastKnownGood)
	})
}

// The controller takes an assignment back from a node that does not answer: a
// node that cannot read the ConfigMap has answered.
func TestThatAnAssignmentWasSeenIsReportedAtOnce(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.source.publish(w.source.looks, source.Answer{Generation: 5, Intent: trial.Intent{Cause: "ConfigMap better cannot be read"}})
		w.pass(time.Second)
		assert.Equal(t, w.status().ObservedGeneration, 5, "generation")
		w.wantError("ConfigMap better cannot be read")
	})
}

func TestThatThePodGuardHasNoAnswerYetIsNotReported(t *testing.T) {
	const unknown = "Unknown | using last-known-good (UID: uid-good): could not validate current (UID: uid-next): "
	const unanswered = unknown + "cannot tell whether the pods of this node survive a restart: the API server does not answer (CouldNotValidate)"
	type guardCase struct {
		next    conf
		fails   func(w *world)
		happens func(w *world)
		within  time.Duration // the next report comes
		want    string
		limit   time.Duration // the agent's option
	}
	forEach(t, inWorld, map[string]guardCase{
		"an answer":                     {conf{}, unlistable(true), unlistable(false), guardInterval, "True | using current (UID: uid-next): all checks passed (AllChecksPassed)", 0},
		"nothing":                       {conf{}, unlistable(true), func(*world) {}, unansweredLimit + 2*time.Second - 2*guardInterval, unanswered, 0},
		"nothing, after a slow dry run": {conf{slow: true}, unlistable(true), func(*world) {}, unansweredLimit + 2*time.Second - 2*guardInterval, unanswered, 0},
		"nothing, and the node cannot be watched": {conf{}, func(w *world) { w.nodes.api = &simAPI{w: w, uid: "nc-1"} }, func(*world) {}, unansweredLimit + 2*time.Second - 2*guardInterval,
			unknown + "cannot count the pods of this node: the API server does not answer (CouldNotValidate)", 0},
		"the kubelet exits":             {conf{}, unlistable(true), func(w *world) { w.dies(exitOne) }, 100 * time.Millisecond, unanswered, 0},
		"nothing, with a shorter limit": {conf{}, unlistable(true), func(*world) {}, 3 * time.Second, unanswered, 2*guardInterval + time.Second},
	}, func(w *world, _ string, c guardCase) {
		w.options = func(o *Options) { o.UnansweredLimit = c.limit }
		withGood(w)
		w.promoted("uid-good")
		c.fails(w)
		before := len(w.reporter.all())
		c.next.name = "next"
		w.assign("uid-next", c.next)
		w.pass(2 * guardInterval)
		w.wantReports(before)
		w.wantLogged("reason=CouldNotValidate", 1)
		c.happens(w)
		w.pass(c.within)
		w.wantConfigOK(c.want)
	})
}

func TestTheSilenceAfterARefusalIsNotReportedAtOnce(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.pods("a", "b", "c", "d")
		w.assign("uid-few", conf{name: "few", maxPods: 3})
		w.pass(2 * unansweredLimit)
		w.wantReason(v1alpha1.ReasonWouldEvictPods, "")
		unlistable(true)(w)
		before := len(w.reporter.all())
		w.until("the guard has asked again", func() bool { return w.log.count("reason=CouldNotValidate") > 0 })
		w.pass(unansweredLimit - 5*time.Second)
		w.wantReports(before)
		w.pass(guardInterval)
		w.wantReason(v1alpha1.ReasonCouldNotValidate, "")
	})
}

func TestARollbackWithoutAnAnswerOfTheSourceIsReportedAtOnce(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.assign("uid-sick", sick)
		w.untilStarts(3)
		w.pass(limits.HealthTimeout - 2*time.Second)
		w.apiUp(false)
		w.untilStarts(4)
		s := w.status()
		assert.That(t, len(s.BadConfigs) == 1, "bad are %+v", s.BadConfigs)
	})
}

func unlistable(now bool) func(*world) {
	return func(w *world) { w.api.set(func(api *simAPI) { api.unlistable = now }) }
}

// The controller waits for a minute for the report that an assignment was seen.
func TestAnAssignmentIsReportedAlthoughTheAPIServerComesAndGoes(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		unlistable(true)(w)
		w.assign("uid-next", conf{name: "next"})
		for range 2 {
			w.pass(20 * time.Second)
			w.apiUp(false)
			w.pass(5 * time.Second)
			w.apiUp(true)
		}

		seen := func(r source.Report) bool { return r.Status.ObservedGeneration == w.api.generation }
		assert.That(t, slices.ContainsFunc(w.reporter.all(), seen), "generation %d was not reported", w.api.generation)
	})
}

// The node's watch tells nothing new, and the API server can be able to answer
// again.
func TestThePodGuardAsksAgainSoonIfItHadNoAnswer(t *testing.T) {
	a := Agent{guard: guard{judgement: judgement{refusal: trial.Verdict{Outcome: trial.CouldNotTell}}, at: time.Now()}}
	assert.That(t, a.guardWait() > guardInterval, "a refusal is kept for %s", a.guardWait())
	a.guard.unanswered = true
	assert.That(t, a.guardWait() <= guardInterval, "without an answer, it is kept for %s", a.guardWait())
}

func TestAChangeIsReportedFewTimes(t *testing.T) {
	with(withoutACrash)(t, func(w *world) {
		w.pass(time.Second)
		for _, tt := range []struct {
			uid                 string
			c                   conf
			reports, conditions int // how often the NodeConfig and the Node are written, without a trial's progress
		}{
			{"uid-good", good, 3, 1},
			{"uid-typo", typo, 1, 1},
			{"uid-crasher", crasher, 4, 2}, // two while it runs, one of the rollback, and one of the final verdict
		} {
			before := len(w.reporter.all())
			w.assign(tt.uid, tt.c)
			w.pass(wholeTrial + time.Minute)
			all, conditions := w.reporter.all(), 0
			for i := before; i < len(all); i++ {
				if all[i].Condition != all[i-1].Condition {
					conditions++
				}
			}

			reports := len(all) - before
			assert.That(t, reports <= tt.reports, "%s: %d reports, want at most %d: %+v", tt.uid, reports, tt.reports, all[before:])
			assert.That(t, conditions <= tt.conditions, "%s: the Node's condition changed %d times: %+v", tt.uid, conditions, all[before:])
		}
	})
}
