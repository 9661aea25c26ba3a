// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestConfigWaitsWhileMorePodsThanMaxPodsRun(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.pods("a", "b", "c", "d")
		w.assign("uid-few", conf{name: "few", maxPods: 3})
		w.pass(30 * time.Second)
		w.wantConfigOK("False | using last-known-good (init): refused current (UID: uid-few): the kubelet would end 4 of the node's 4 pods: default/a, default/b, default/c, default/d: OutOfpods (pods: 4 needed by all pods together, 3 allocatable); move them to other nodes first, or set trial.allowPodLoss in the configuration (WouldEvictPods)")
		s := w.status()
		assert.That(t, len(s.BadConfigs) == 0 && w.nodes.watching(), "bad: %+v, watching: %t", s.BadConfigs, w.nodes.watching())
		w.pods("a", "b", "c")
		w.api.set(func(api *simAPI) {
			api.pods = append(api.pods, source.Pod{UID: "pod-done", Name: "done", Phase: "Succeeded"}) // takes no place
		})
		w.runs("few")
		w.wantStarts("", "few")
		w.wantDryRuns("few", 1)
	})
}

func TestAProtectedFieldIsRefusedOnceUntilTheLocalConfigurationHasItsValue(t *testing.T) {
	with(protecting)(t, func(w *world) {
		w.assign("uid-open", conf{name: "open", readOnlyPort: 10255})
		w.pass(time.Hour)
		w.wantLogged("event=ConfigRefused", 1)
		w.wantDryRuns("open", 1)
		w.wantNoBad()
		w.behaves(conf{readOnlyPort: 10255}) // the operator of the node agrees
		w.runs("open")
		w.wantStarts("", "open")
	})
}

func TestManyProtectedFieldsAreAbbreviated(t *testing.T) {
	v := component.Verdict{Local: component.Effective{"maxPods": json.Number("1")}, Effective: component.Effective{"maxPods": json.Number("2")}}
	for i := range 7 {
		v.Effective[fmt.Sprintf("new%d", i)] = true
	}

	got, compared := v.CheckProtected(payload.DefaultProtection())
	const begin = "protected field new0 would be true, but is unset locally; protected field new1"
	assert.That(t, compared && strings.HasPrefix(got, begin) && strings.HasSuffix(got, "; 2 more"), "%s", got)
}

func TestEditedLocalConfigCausesAnotherValidation(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.crashes("good")
		w.wantDryRuns("good", 1)
		w.behaves(conf{maxPods: 90})
		w.pass(time.Minute)
		w.wantDryRuns("good", 1)
		w.crashes("good")
		w.wantDryRuns("good", 2)
	})
}

// While a drained node is not cordoned, the next pod can come at any moment.
func TestContradictingManagerStateNeedsACordonedAndDrainedNode(t *testing.T) {
	const file = "/var/lib/kubelet/cpu_manager_state"
	taint := func(key, value string) func(*simAPI) {
		return func(api *simAPI) {
			api.taints = []corev1.Taint{{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule}}
		}
	}
	drain := func(api *simAPI) {
		api.pods = []source.Pod{{UID: "pod-ds", Name: "ds", Phase: "Running", OwnerKind: "DaemonSet"}, {UID: "pod-st", Name: "st", Phase: "Running", Static: true}}
	}
	forEach(t, inWorld, map[string]func(*simAPI){
		"cordoned by a person":            func(api *simAPI) { api.unschedulable = true },
		"drained by a rollout":            taint(v1alpha1.TaintDraining, "1.1.1.a"),
		"a new node with a startup taint": taint(startupTaint, ""),
	}, func(w *world, _ string, cordon func(*simAPI)) {
		w.kubelet.set(func(s *kubeletState) { s.cpuState = "none" })
		w.up()
		w.api.set(drain)
		w.assign("uid-static", conf{name: "static", policy: "static"})
		for _, next := range []func(){func() {}, func() { w.pods("a") }, func() { w.api.set(cordon) }} {
			next()
			w.pass(10 * time.Second)
			w.wantConfigOK("False | using last-known-good (init): refused current (UID: uid-static): cpuManagerPolicy is \"static\" " +
				"but cpu_manager_state was written by \"none\"; cordon and drain the node first (NeedsDrain)")
			w.wantStarts("")
		}

		w.api.set(drain)
		w.runs("static")
		w.wantStarts("", "static")
		got := w.kubelet.get().moved
		assert.That(w.t, slices.Equal(got, []string{file + ".evenkeel"}), "moved aside: %q", got)
		w.wantEvent("Warning StateMovedAside: the CPU or memory manager's state contradicted the configuration and was moved to " + file + ".evenkeel")
		w.wantDryRuns("static", 1)
	})
}

func TestRollbackMovesManagerStateAndACrashDoesNot(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.assign("uid-sick", sick)
		w.untilStarts(3)
		w.kubelet.set(func(s *kubeletState) { s.cpuState = "static" })
		w.dies(exitOne)
		w.pass(5 * time.Second)
		assert.Equal(t, len(w.kubelet.get().moved), 0, "files moved aside after a crash")
		w.runs("good")
		assert.Equal(t, len(w.kubelet.get().moved), 1, "files moved aside for the rollback")
	})
}

func TestHarmToTheNodeFailsATrial(t *testing.T) {
	type harm struct {
		c      conf
		happen func(w *world)
		reason string
		words  string
	}
	forEach(t, inStartedWorld, map[string]harm{
		"the node is not Ready":      {good, func(w *world) { w.api.set(func(api *simAPI) { api.ready = false }) }, "NotReady", "left the node not ready for 20s"},
		"its Lease is never renewed": {conf{name: "good", loses: true}, func(*world) {}, "NotReady", "left the node not ready for 20s"},
		"pressure": {good, func(w *world) { w.api.set(func(api *simAPI) { api.pressure = []string{"MemoryPressure"} }) },
			"WorkloadHarmed", "harmed the workload: MemoryPressure turned True"},
		"a pod is rejected": {good, func(w *world) {
			w.api.set(func(api *simAPI) {
				api.pods = []source.Pod{{UID: "pod-a", Namespace: "default", Name: "a", Phase: "Failed", Reason: "OutOfpods", Message: "Pod was rejected: too many"}}
			})
		}, "WorkloadHarmed", "harmed the workload: pod default/a: OutOfpods"},
	}, func(w *world, _ string, tt harm) {
		w.pods("a")
		w.assign("uid-it", tt.c)
		w.untilStarts(2)
		w.pass(3 * time.Second)
		tt.happen(w)
		w.untilStarts(3)
		w.pass(time.Second)
		w.wantStarts("", tt.c.name, "")
		w.wantReason(tt.reason, "current (UID: uid-it) "+tt.words)
	})
}

func TestLeaseCountsOnlyIfRenewedSinceTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(renewed string) source.NodeState { return source.NodeState{Reachable: true, LeaseRenewed: renewed} }
		l := &leaseObserver{since: time.Now()}
		assert.That(t, !l.renewed(at("10:00")), "renewed, although its base is not known")
		l.readBase(t.Context(), fixedNodes{state: at("10:00")})
		assert.That(t, !l.renewed(at("10:00")), "renewed, although the time is the same")
		assert.That(t, l.renewed(at("10:01")), "not renewed, although the time has changed")
		assert.That(t, !l.renewed(source.NodeState{LeaseRenewed: "10:02"}), "renewed, although the API is not reachable")
		late := &leaseObserver{since: time.Now()}
		late.readBase(t.Context(), fixedNodes{})
		<-time.After(leaseGrace + time.Millisecond)
		late.update(at("10:05"))
		assert.That(t, !late.renewed(at("10:05")) && late.renewed(at("10:15")), "after the grace period the present time must become the base")
	})
}

// fixedNodes is a node that never changes.
type fixedNodes struct {
	Nodes
	state source.NodeState
}

func (n fixedNodes) Snapshot(context.Context) source.NodeState { return n.state }

// The Lease may have been renewed before its base was read; the watch has seen
// that renewal, and then polls once a minute.
func TestOverdueLeaseRestartsTheWatchOnce(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.adopts("r1", conf{name: "late", loses: true})
		before := w.nodes.get().starts
		w.pass(leaseGrace - time.Second)
		assert.Equal(t, w.nodes.get().starts-before, 0, "requests within the time that it has")
		w.pass(2 * leaseGrace)
		assert.Equal(t, w.nodes.get().starts-before, 1, "requests")
	})
}

var onlyOnZoneA = map[string]string{"zone": "a"}

// zoneChanges changes the label that all pods select.
func (w *world) zoneChanges() {
	w.api.set(func(api *simAPI) { api.spec.NodeSelector, api.labels = onlyOnZoneA, map[string]string{"zone": "b"} })
}

// inChangedWorld runs a test in which good runs, and the label that the pods a
// and b select has changed since.
var inChangedWorld = after(func(w *world) {
	withGood(w)
	w.pods("a", "b")
	w.zoneChanges()
})

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
		w.zoneChanges()
		w.assign("uid-third", conf{name: "third"})
		w.pass(time.Second)
		w.wantStarts("", "good", "next")
		w.api.set(func(api *simAPI) { api.asked.AllowPodLoss = true; api.generation++ })
		w.within(5*time.Second, "it is allowed at once", func() bool { return len(w.kubelet.get().starts) == 4 })
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

func TestAReturnToLocalFromWhatIsNotHealthyOrProvenIsNotGuarded(t *testing.T) {
	forEach(t, inChangedWorld, map[string]func(w *world){
		"on trial": func(w *world) {
			w.api.set(func(api *simAPI) { api.asked.AllowPodLoss = true })
			w.adopts("uid-next", conf{name: "next"})
		},
		"dead": func(w *world) {
			w.behaves(conf{name: "good", crashes: crasher.crashes})
			w.dies(exitOne)
			w.pass(20 * time.Second)
		},
	}, func(w *world, _ string, begin func(w *world)) {
		begin(w)
		w.assignLocal()
		w.runs("")
	})
}

func TestARollbackIsNotGuardedAndItsCostIsReported(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.pods("a", "b")
		w.assign("uid-sick", sick)
		w.untilStarts(3)
		w.zoneChanges()
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
		w.crashes("good")
		w.dies(exitOne) // before it is healthy for long: both restarts have one report
		w.runs("good")
		w.evicted(0)
		w.pass(2 * lossDelay)
		w.wantEvent("PodsLost: the restart of the kubelet (crash) ended 1 of 2 pods: pod default/a: Evicted")
	})
}

func TestNothingIsAdoptedWhileAFileOfTheKubeletCannotBeRead(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.kubelet.set(func(s *kubeletState) { s.describeErr = errors.New("allocated_pods_state: it is garbage") })
		w.assign("uid-next", conf{name: "next"})
		w.pass(unansweredLimit + guardInterval)
		w.wantConfigOK("Unknown | using last-known-good (UID: uid-good): could not validate current (UID: uid-next): " +
			"cannot tell whether the pods of this node survive a restart: allocated_pods_state: it is garbage (CouldNotValidate)")
		w.wantStarts("", "good")
		w.kubelet.set(func(s *kubeletState) { s.describeErr = nil })
		w.runs("next")
	})
}

// Without a running kubelet one is started anyway, and with the configuration
// of before. Pods that any start would end are no reason to call the new
// configuration the cause.
func TestTheGuardHoldsAtTheAgentsStartToo(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pods("a", "b")
		w.zoneChanges()
		w.assign("uid-next", conf{name: "next"})
		w.up()
		w.wantConfigOK("False | using last-known-good (init): refused current (UID: uid-next): " + restartRefused)
		w.wantStarts("")
	})
}

// While a node is blocked, each change of a pod leads to a decision, and the
// whole pods must not be listed for each.
func TestARefusalIsKeptForAWhile(t *testing.T) {
	inChangedWorld(t, func(w *world) {
		w.assign("uid-next", conf{name: "next"})
		w.pass(time.Minute)
		counted := func(d time.Duration, each func()) int {
			before := w.api.bounds
			for range int(d / time.Second) {
				each()
				w.pass(time.Second)
			}

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

// A pod that has ended between the dry run and the restart is no loss of the
// trial.
func TestTheBaselineOfATrialIsOfTheMomentOfTheRestart(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.pods("a", "b")
		w.assign("uid-next", conf{name: "next"})
		w.pass(100 * time.Millisecond) // the dry run is in progress, the pods are counted
		w.evicted(1)
		w.runs("next")
		w.promoted("uid-next")
		w.wantStarts("", "good", "next")
	})
}

// A kubelet of 1.37 does not admit pods with mount options of volumes without
// an alpha gate; earlier ones do not know the field.
func TestTheGuardPredictsForTheKubeletThatWillStart(t *testing.T) {
	options := []corev1.VolumeMount{{Name: "v", BindMountOptions: []string{"noexec"}}}
	inStartedWorld(t, func(w *world) {
		w.pods("a", "b")
		w.api.set(func(api *simAPI) { api.spec.Containers = []corev1.Container{{Name: "a", VolumeMounts: options}} })
		w.assign("uid-few", conf{name: "few", maxPods: 1}) // refused, and validated by the old kubelet
		w.pass(5 * time.Second)
		w.replaceBinary("v1.37.0")
		w.assign("uid-next", conf{name: "next"})
		w.pass(20 * time.Second)
		w.wantConfigOKHas("False ", "would end 2 of the node's 2 pods", ": PodFeatureUnsupported")
		w.wantStarts("")
		w.replaceBinary("v1.36.3")
		w.runs("next")
		w.wantStarts("", "next")
	})
}
