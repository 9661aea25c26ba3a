// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

var onlyOnZoneA = map[string]string{"zone": "a"}

// inChangedWorld runs a test in which good runs, and the label that the pods a
// and b select has changed since.
func inChangedWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	inGoodWorld(t, func(w *world) {
		w.pods("a", "b")
		w.api.set(func(api *simAPI) { api.spec.NodeSelector, api.labels = onlyOnZoneA, map[string]string{"zone": "b"} })
		test(w)
	})
}

const restartRefused = "any restart of the kubelet would end 2 of the node's 2 pods, and the configuration is not the cause: " +
	"default/a, default/b: NodeAffinity (the pod's node selector needs zone=a, and the node has zone=b); " +
	"correct the cause, move the pods to other nodes, or set trial.allowPodLoss (RestartWouldEvictPods)"

func TestARestartThatCostsPodsWhateverTheConfigurationIsRefused(t *testing.T) {
	inChangedWorld(t, func(w *world) {
		w.assign("uid-next", conf{name: "next"})
		w.pass(20 * time.Second)
		w.wantConfigOK("False | using last-known-good (UID: uid-good): refused current (UID: uid-next): " + restartRefused)
		w.wantStarts("", "good")
		w.wantNoBad()
		w.wantEvent("Warning ConfigRefused: refused current (UID: uid-next): any restart")
		w.api.set(func(api *simAPI) { api.labels = onlyOnZoneA })
		w.runs("next")
		w.wantStarts("", "good", "next")
	})
}

func TestAllowPodLossAllowsARestartThatCostsPods(t *testing.T) {
	inChangedWorld(t, func(w *world) {
		w.assign("uid-next", conf{name: "next"})
		w.pass(time.Second)
		w.api.set(func(api *simAPI) { api.asked.AllowPodLoss = true; api.generation++ })
		w.runs("next") // at once, although the refusal is fresh
		w.wantStarts("", "good", "next")
	})
}

func TestAReturnToLocalIsGuardedToo(t *testing.T) {
	inChangedWorld(t, func(w *world) {
		w.assignLocal()
		w.pass(20 * time.Second)
		w.wantConfigOK("False | using last-known-good (UID: uid-good): refused current (init): " + restartRefused)
		w.wantStarts("", "good")
		w.api.set(func(api *simAPI) { api.unlistable = true })
		w.pass(2 * guardRecheck)
		w.wantConfigOK("Unknown | using last-known-good (UID: uid-good): could not validate current (init): " +
			"cannot tell whether the pods of this node survive a restart: the API server does not answer (CouldNotValidate)")
		w.api.set(func(api *simAPI) { api.unlistable, api.pods = false, nil })
		w.runs("")
		w.wantStarts("", "good", "")
	})
}

func TestAReturnToLocalFromATrialIsNotGuarded(t *testing.T) {
	inChangedWorld(t, func(w *world) {
		w.api.set(func(api *simAPI) { api.asked.AllowPodLoss = true })
		w.assign("uid-next", conf{name: "next"})
		w.runs("next")
		w.assignLocal()
		w.runs("")
		w.wantStarts("", "good", "next", "")
	})
}

func TestAReturnToLocalFromADeadKubeletIsNotGuarded(t *testing.T) {
	inChangedWorld(t, func(w *world) {
		w.kubelet.set(func(s *kubeletState) { s.confs["good"] = conf{name: "good", crashes: crasher.crashes} })
		w.dies(exitOne)
		w.pass(20 * time.Second)
		w.assignLocal()
		w.runs("")
	})
}

// Pods that any start would end are no reason to call the new configuration the
// cause, also if no kubelet runs yet.
func TestTheGuardAtAStartComparesWithTheCurrentConfiguration(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pods("a", "b")
		w.api.set(func(api *simAPI) { api.spec.NodeSelector, api.labels = onlyOnZoneA, map[string]string{"zone": "b"} })
		w.assign("uid-next", conf{name: "next"})
		w.start()
		w.runs("")
		w.wantEvent("Warning ConfigRefused: refused current (UID: uid-next): any restart")
	})
}

func TestARollbackIsNotGuardedAndItsCostIsReported(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.pods("a", "b")
		w.assign("uid-sick", sick)
		w.until("it runs", func() bool { return len(w.kubelet.get().starts) == 3 })
		w.api.set(func(api *simAPI) { api.spec.NodeSelector, api.labels = onlyOnZoneA, map[string]string{"zone": "b"} })
		w.runs("good")
		w.api.set(func(api *simAPI) {
			api.pods[1].Phase, api.pods[1].Reason, api.pods[1].Message = "Failed", "NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed"
		})
		w.pass(lossDelay + time.Second)
		w.wantStarts("", "good", "sick", "good")
		w.wantEvent("Warning PodsLost: the restart of the kubelet (rollback) ended 1 of 2 pods: pod default/b: NodeAffinity")
	})
}

func TestARestartAfterACrashIsNotGuardedAndItsCostIsReported(t *testing.T) {
	inChangedWorld(t, func(w *world) {
		w.dies(exitOne)
		w.runs("good")
		w.dies(exitOne) // before it is healthy for long: both restarts have one report
		w.runs("good")
		w.api.set(func(api *simAPI) {
			api.pods[0].Phase, api.pods[0].Reason = "Failed", "Evicted"
		})
		w.pass(2 * lossDelay)
		got := strings.Count(strings.Join(w.reporter.told(), "\n"), "PodsLost: the restart of the kubelet (crash) ended 1 of 2 pods: pod default/a: Evicted")
		assert.That(t, got != 0, "events are %q", w.reporter.told())
	})
}

func TestNothingIsAdoptedWhileItIsNotKnownWhetherPodsSurvive(t *testing.T) {
	for name, tt := range map[string]struct {
		fail, heal func(w *world)
		words      string
	}{
		"the pods cannot be listed": {
			func(w *world) { w.api.set(func(api *simAPI) { api.unlistable = true }) },
			func(w *world) { w.api.set(func(api *simAPI) { api.unlistable = false }) },
			"the API server does not answer"},
		"a file of the kubelet cannot be read": {
			func(w *world) {
				w.kubelet.set(func(s *kubeletState) { s.describeErr = errors.New("allocated_pods_state: it is garbage") })
			},
			func(w *world) { w.kubelet.set(func(s *kubeletState) { s.describeErr = nil }) },
			"allocated_pods_state: it is garbage"},
	} {
		t.Run(name, func(t *testing.T) {
			inGoodWorld(t, func(w *world) {
				tt.fail(w)
				w.assign("uid-next", conf{name: "next"})
				w.pass(unansweredLimit + guardInterval)
				w.wantConfigOK("Unknown | using last-known-good (UID: uid-good): could not validate current (UID: uid-next): " +
					"cannot tell whether the pods of this node survive a restart: " + tt.words + " (CouldNotValidate)")
				w.wantStarts("", "good")
				tt.heal(w)
				w.runs("next")
			})
		})
	}
}

// Without a running kubelet one is started anyway, and with the configuration
// of before.
func TestTheGuardHoldsAtTheAgentsStartToo(t *testing.T) {
	inChangedWorld(t, func(w *world) {
		w.stop()
		w.assign("uid-next", conf{name: "next"})
		w.start()
		w.runs("good")
		w.pass(guardRecheck)
		w.wantConfigOK("False | using last-known-good (UID: uid-good): refused current (UID: uid-next): " + restartRefused)
		w.wantStarts("", "good", "good")
	})
}

// While a node is blocked, each change of a pod leads to a decision, and the
// whole pods must not be listed for each.
func TestARefusalIsKeptForAWhile(t *testing.T) {
	inChangedWorld(t, func(w *world) {
		w.assign("uid-next", conf{name: "next"})
		w.pass(time.Minute)
		counted := func(d time.Duration, each func()) int {
			w.api.mu.Lock()
			before := w.api.bounds
			w.api.mu.Unlock()
			for range int(d / time.Second) {
				each()
				w.pass(time.Second)
			}

			w.api.mu.Lock()
			defer w.api.mu.Unlock()

			return w.api.bounds - before
		}
		got := counted(10*time.Minute, func() {})
		assert.That(t, got >= 8 && got <= 12, "%d lists in 10 min without a change, want one a minute", got)
		if got := counted(10*time.Minute, func() {
			w.api.set(func(api *simAPI) { api.pods[0].Reason += "x" })
		}); got < 40 || got > 62 {
			t.Errorf("%d lists in 10 min with a change each second, want one each 10 s", got)
		}
	})
}

// Pods of which the guard cannot know are no reason to wait: those that appear
// after its look are judged by the trial.
func TestTheGuardSeesThePodsOfTheMomentOfTheRestart(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.pods("a")
		w.api.set(func(api *simAPI) { api.labels = map[string]string{"zone": "b"} })
		w.assign("uid-next", conf{name: "next"})
		w.pass(100 * time.Millisecond) // the dry run is in progress, the pods are counted
		w.api.set(func(api *simAPI) {
			api.spec.NodeSelector = onlyOnZoneA
			api.pods = append(api.pods, source.Pod{UID: "pod-late", Namespace: "default", Name: "late", Phase: "Pending"})
		})
		w.pass(20 * time.Second)
		ok := w.configOK()
		assert.That(t, strings.Contains(ok, "default/a, default/late: NodeAffinity"), "%s", ok)
		w.wantStarts("", "good")
		assert.That(t, w.status().Conditions[0].Reason == v1alpha1.ReasonRestartWouldEvictPods, "%+v", w.status().Conditions)
	})
}

// The trial does not know such a pod, but its loss is reported.
func TestALostPodThatTheGuardDidNotSeeIsReported(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.pods("a")
		w.api.set(func(api *simAPI) {
			api.late = []source.Pod{{UID: "pod-late", Namespace: "default", Name: "late", Phase: "Pending"}}
		})
		w.assign("uid-next", conf{name: "next"})
		w.runs("next")
		w.api.set(func(api *simAPI) {
			p := &api.pods[1]
			p.Phase, p.Reason, p.Message = "Failed", "OutOfpods", "Pod was rejected: Node didn't have enough resource: pods"
		})
		w.pass(lossDelay + time.Second)
		w.wantEvent("Warning PodsLost: the restart of the kubelet (change) ended 1 of 2 pods: pod default/late: OutOfpods")
		w.promoted("uid-next")
	})
}

// A pod that has ended between the dry run and the restart is no loss of the
// trial.
func TestTheBaselineOfATrialIsOfTheMomentOfTheRestart(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.pods("a", "b")
		w.assign("uid-next", conf{name: "next"})
		w.pass(100 * time.Millisecond) // the dry run is in progress, the pods are counted
		w.api.set(func(api *simAPI) { api.pods[1].Phase, api.pods[1].Reason = "Failed", "Evicted" })
		w.runs("next")
		w.promoted("uid-next")
		w.wantStarts("", "good", "next")
	})
}

// A kubelet of 1.37 does not admit pods with mount options of volumes without
// an alpha gate; earlier ones do not know the field.
func TestTheGuardPredictsForTheKubeletThatWillStart(t *testing.T) {
	replaced := func(w *world, version string) {
		w.kubelet.set(func(s *kubeletState) { s.identity, s.version = "inode-"+version, version })
	}
	needsOptions := func(api *simAPI) {
		api.spec.Containers = []corev1.Container{{Name: "a", VolumeMounts: []corev1.VolumeMount{{Name: "v", BindMountOptions: []string{"noexec"}}}}}
	}
	refused := regexp.MustCompile(`^False .* would end 2 of the node's 2 pods.*: PodFeatureUnsupported`)
	inStartedWorld(t, func(w *world) {
		w.pods("a", "b")
		w.api.set(needsOptions)
		w.assign("uid-few", conf{name: "few", maxPods: 1}) // refused, and validated by the old kubelet
		w.pass(5 * time.Second)
		replaced(w, "v1.37.0")
		w.assign("uid-next", conf{name: "next"})
		w.pass(20 * time.Second)
		got := w.configOK()
		assert.That(t, refused.MatchString(got), "ConfigOK is %s", got)
		w.wantStarts("")
		replaced(w, "v1.36.3")
		w.runs("next")
		w.wantStarts("", "next")
	})
	inWorld(t, func(w *world) {
		p := w.takesPreflights()
		w.start()
		w.runs("")
		w.pods("a", "b")
		w.api.set(needsOptions)
		replaced(w, "v1.37.0")
		p.ask("request", conf{name: "next"}, 0)
		a := w.answered("request")
		assert.That(t, a.Verdict == v1alpha1.PreflightRefused && strings.Contains(a.Message, "PodFeatureUnsupported"), "the answer is %+v", a)
	})
}

func TestAReplacedBinaryValidatesWhatIsAssigned(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.pods("a", "b")
		w.assign("uid-few", conf{name: "few", maxPods: 1})
		w.pass(5 * time.Second)
		w.kubelet.set(func(s *kubeletState) {
			s.identity, s.version = "inode-2", "v1.37.0"
			s.confs["few"] = conf{name: "few", rejected: "unrecognized feature gate"} // by that one
		})
		w.pods("a") // and it would be adopted
		w.pass(20 * time.Second)
		w.wantStarts("")
		w.wantConfigOK("False | using last-known-good (init): failed to validate current (UID: uid-few) (ValidationFailed)")
	})
}
