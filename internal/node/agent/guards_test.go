// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
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

func TestChangeOfAProtectedFieldIsRefusedButNotBad(t *testing.T) {
	inWorld(t, func(w *world) {
		w.options = func(o *Options) { o.Protected = payload.DefaultProtection() }
		w.start()
		w.runs("")
		w.assign("uid-open", conf{name: "open", readOnlyPort: 10255})
		w.pass(5 * time.Second)
		w.wantConfigOK("False | using last-known-good (init): refused current (UID: uid-open): protected field readOnlyPort would be 10255, but is 0 locally (ProtectedFields)")
		w.wantStarts("")
		w.wantNoBad()
		w.pass(time.Hour)
		told, n := w.log.count("event=ConfigRefused"), w.kubelet.checked("open")
		assert.That(t, told == 1 && n == 1, "told %d times, after %d dry runs", told, n)
		w.kubelet.set(func(s *kubeletState) { s.confs[""] = conf{readOnlyPort: 10255} }) // the operator of the node agrees
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
	if !compared || !strings.HasPrefix(got, "protected field new0 would be true, but is unset locally; protected field new1") || !strings.HasSuffix(got, "; 2 more") {
		t.Error(got)
	}
}

func TestUnusableLocalConfigKeepsTheAdoptedConfig(t *testing.T) {
	for _, local := range []conf{{doubtful: true}, {rejected: "no"}} {
		inWorld(t, func(w *world) {
			w.options = func(o *Options) {
				o.Protected, o.Limits.DegradeLocal = payload.DefaultProtection(), local.rejected != ""
			}
			w.start()
			withGood(w)
			w.stop()
			w.kubelet.set(func(s *kubeletState) { s.confs[""] = local })
			w.start()
			w.runs("good")
			starts := []string{"", "good", "good"}
			if local.rejected == "" {
				w.assign("uid-other", conf{name: "other"})
				w.pass(5 * time.Second)
				w.wantConfigOK("False | using last-known-good (UID: uid-good): refused current (UID: uid-other): the kubelet did not print the effective local configuration, so protected fields cannot be compared; check that the local configuration is valid (ProtectedFields)")
				w.kubelet.set(func(s *kubeletState) { s.confs[""] = conf{} })
				w.runs("other")
				starts = append(starts, "other")
			}

			w.wantStarts(starts...)
		})
	}
}

func TestEditedLocalConfigCausesAnotherValidation(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.dies(exitOne)
		w.runs("good")
		w.wantDryRuns("good", 1)
		w.kubelet.set(func(s *kubeletState) { s.confs[""] = conf{maxPods: 90} })
		w.pass(time.Minute)
		w.wantDryRuns("good", 1)
		w.dies(exitOne)
		w.runs("good")
		w.wantDryRuns("good", 2)
	})
}

func TestConfigWithNewlyProtectedFieldsIsNotStartedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.assign("uid-open", conf{name: "open", readOnlyPort: 10255})
		w.runs("open")
		w.promoted("uid-open")
		w.stop()
		w.options = func(o *Options) { o.Protected = payload.DefaultProtection() }
		w.start()
		w.runs("")
		w.wantConfigOK("False | using (init): refused current (UID: uid-open): protected field readOnlyPort would be 10255, but is 0 locally (ProtectedFields)")
		assert.Equal(t, w.view().LastKnownGood.Revision, "uid-open", "last-known-good")
	})
}

func TestGuardRefusesAnotherAttemptToo(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.assign("uid-few", conf{name: "few", maxPods: 3, crashes: time.Second}, 1)
		w.pass(20 * time.Second)
		w.kubelet.set(func(s *kubeletState) { s.confs["few"] = conf{name: "few", maxPods: 3} })
		starts := len(w.kubelet.get().starts)
		w.pods("a", "b", "c", "d")
		w.assign("uid-few", conf{name: "few"}, 2)
		w.pass(20 * time.Second)
		got := w.kubelet.get().starts[starts:]
		assert.That(t, len(got) == 0, "started %q", got)
		c := w.status().Conditions[0]
		assert.That(t, c.Reason == "WouldEvictPods", "%+v", c)
		w.pods("a")
		w.runs("few")
	})
}

func TestContradictingManagerStateNeedsADrainedNode(t *testing.T) {
	t.Run("cordoned by a person", func(t *testing.T) {
		contradictingState(t, func(api *simAPI) { api.unschedulable = true })
	})
	t.Run("drained by a rollout", func(t *testing.T) {
		contradictingState(t, func(api *simAPI) {
			api.taints = []corev1.Taint{{Key: v1alpha1.TaintDraining, Value: "1.1.1.a", Effect: corev1.TaintEffectNoSchedule}}
		})
	})
	t.Run("a new node with the startup taint", func(t *testing.T) {
		contradictingState(t, func(api *simAPI) {
			api.taints = []corev1.Taint{{Key: startupTaint, Effect: corev1.TaintEffectNoSchedule}}
		})
	})
}

// contradictingState changes the CPU manager's policy on a node that is then
// cordoned in some way, and drained.
func contradictingState(t *testing.T, cordon func(*simAPI)) {
	const file = "/var/lib/kubelet/cpu_manager_state"
	inWorld(t, func(w *world) {
		w.kubelet.set(func(s *kubeletState) { s.cpuState = "none" })
		w.start()
		w.runs("")
		w.pods("a")
		w.assign("uid-static", conf{name: "static", policy: "static"})
		w.pass(10 * time.Second)
		refused := "False | using last-known-good (init): refused current (UID: uid-static): cpuManagerPolicy is \"static\" but cpu_manager_state was written by \"none\"; cordon and drain the node first (NeedsDrain)"
		w.wantConfigOK(refused)
		w.api.set(cordon)
		w.pass(5 * time.Second)
		w.wantConfigOK(refused)
		w.wantStarts("")
		w.api.set(func(api *simAPI) {
			api.pods = []source.Pod{{UID: "pod-ds", Name: "ds", Phase: "Running", OwnerKind: "DaemonSet"}, {UID: "pod-st", Name: "st", Phase: "Running", Static: true}}
		})
		w.runs("static")
		w.wantStarts("", "static")
		got := w.kubelet.get().moved
		assert.That(t, slices.Equal(got, []string{file + ".evenkeel"}), "moved aside: %q", got)
		w.wantEvent("Warning StateMovedAside: the CPU or memory manager's state contradicted the configuration and was moved to " + file + ".evenkeel")
		w.wantDryRuns("static", 1)
	})
}

func TestRollbackMovesManagerStateAndACrashDoesNot(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.assign("uid-sick", sick)
		w.until("it runs", func() bool { return len(w.kubelet.get().starts) == 3 })
		w.kubelet.set(func(s *kubeletState) { s.cpuState = "static" })
		w.dies(exitOne)
		w.pass(5 * time.Second)
		got := w.kubelet.get().moved
		assert.That(t, len(got) == 0, "moved aside after a crash: %q", got)
		w.runs("good")
		got = w.kubelet.get().moved
		assert.That(t, len(got) == 1, "moved aside for the rollback: %q", got)
	})
}

func TestConfigWaitsWhilePodsCannotBeCounted(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.assign("uid-good", conf{name: "good", hangs: true})
		w.pass(time.Second)
		w.kubelet.set(func(s *kubeletState) { s.confs["good"] = good })
		w.nodes.api = &simAPI{w: w, uid: "nc-1"} // the node's view fails, the source does not
		w.assign("uid-other", good)
		w.pass(unansweredLimit + guardInterval)
		w.wantStarts("")
		w.wantConfigOK("Unknown | using last-known-good (init): could not validate current (UID: uid-other): cannot count the pods of this node: the API server does not answer (CouldNotValidate)")
		w.nodes.api = w.api
		w.nodes.look()
		w.runs("good")
		w.wantDryRuns("good", 2)
	})
}

func TestHarmToTheNodeFailsATrial(t *testing.T) {
	for _, tt := range []struct {
		name   string
		c      conf
		happen func(w *world)
		reason string
		words  string
	}{
		{"never healthy", sick, func(*world) {}, "NotHealthy", "was not healthy for 20s"},
		{"the node is not Ready", good, func(w *world) { w.api.set(func(api *simAPI) { api.ready = false }) }, "NotReady", "left the node not ready for 20s"},
		{"its Lease is never renewed", conf{name: "good", loses: true}, func(*world) {}, "NotReady", "left the node not ready for 20s"},
		{"pressure", good, func(w *world) { w.api.set(func(api *simAPI) { api.pressure = []string{"MemoryPressure"} }) },
			"WorkloadHarmed", "harmed the workload: MemoryPressure turned True"},
		{"a pod is evicted", good, func(w *world) {
			w.api.set(func(api *simAPI) {
				api.pods = []source.Pod{{UID: "pod-a", Namespace: "default", Name: "a", Phase: "Failed", Reason: "Evicted", Message: "The node was low on resource: memory. "}}
			})
		}, "WorkloadHarmed", "harmed the workload: pod default/a: Evicted"},
		{"a pod is rejected", good, func(w *world) {
			w.api.set(func(api *simAPI) {
				api.pods = []source.Pod{{UID: "pod-a", Namespace: "default", Name: "a", Phase: "Failed", Reason: "OutOfpods", Message: "Pod was rejected: too many"}}
			})
		}, "WorkloadHarmed", "harmed the workload: pod default/a: OutOfpods"},
		{"a pod is rejected and its containers end well", good, func(w *world) {
			w.api.set(func(api *simAPI) {
				api.pods = []source.Pod{{UID: "pod-a", Namespace: "default", Name: "a", Phase: "Succeeded", RestartsAlways: true}}
			})
		}, "WorkloadHarmed", "harmed the workload: pod default/a: ended, and it is not known why"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.pods("a")
				w.start()
				w.runs("")
				w.assign("uid-it", tt.c)
				w.until("it runs", func() bool { return len(w.kubelet.get().starts) == 2 })
				w.pass(3 * time.Second)
				tt.happen(w)
				w.until("it is rolled back", func() bool { return len(w.kubelet.get().starts) == 3 })
				w.pass(time.Second)
				w.wantStarts("", tt.c.name, "")
				s := w.status()
				c := s.Conditions[0]
				assert.That(t, c.Reason == tt.reason && strings.Contains(c.Message, "current (UID: uid-it) "+tt.words),
					"%+v, want %s: %s", c, tt.reason, tt.words)
			})
		})
	}
}

func TestLeaseCountsOnlyIfRenewedSinceTheStart(t *testing.T) {
	inWorld(t, func(w *world) {
		at := func(renewed string) source.NodeState { return source.NodeState{Reachable: true, LeaseRenewed: renewed} }
		l := &leaseObserver{since: time.Now()}
		assert.That(t, !l.renewed(at("10:00")), "renewed, although its base is not known")
		l.readBase(t.Context(), w.nodesOf("10:00"))
		assert.That(t, !l.renewed(at("10:00")), "renewed, although the time is the same")
		assert.That(t, l.renewed(at("10:01")), "not renewed, although the time has changed")
		assert.That(t, !l.renewed(source.NodeState{LeaseRenewed: "10:02"}), "renewed, although the API is not reachable")
		late := &leaseObserver{since: time.Now()}
		w.api.up = false
		late.readBase(t.Context(), &simNodes{api: w.api})
		<-time.After(leaseGrace + time.Millisecond)
		late.update(at("10:05"))
		assert.That(t, !late.renewed(at("10:05")) && late.renewed(at("10:15")), "after the grace period the present time must become the base")
	})
}

// nodesOf returns the state of a node with that renew time of its Lease.
func (w *world) nodesOf(renewed string) Nodes { return fixedNodes{renewed: renewed} }

type fixedNodes struct {
	Nodes
	renewed string
}

func (n fixedNodes) Snapshot(context.Context) source.NodeState {
	return source.NodeState{Reachable: true, Complete: true, LeaseRenewed: n.renewed}
}

// The Lease may have been renewed before its base was read; the watch has seen
// that renewal, and then polls once a minute.
func TestOverdueLeaseRestartsTheWatchOnce(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.assign("r1", conf{name: "late", loses: true})
		w.runs("late")
		before := w.nodes.starts
		w.pass(leaseGrace - time.Second)
		assert.Equal(t, w.nodes.starts-before, 0, "requests within the time that it has")
		w.pass(2 * leaseGrace)
		assert.Equal(t, w.nodes.starts-before, 1, "requests")
	})
}
