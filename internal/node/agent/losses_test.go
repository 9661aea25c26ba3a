// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// The reasons and messages are all that kubelets from 1.33 to 1.37 write to the
// status of a pod that they end: of the packages eviction, preemption,
// lifecycle, sysctl, nodeshutdown, volumemanager, cm/admission, cm/cpumanager
// and cm/topologymanager.
func TestAPodIsLostForTheKubeletsReasons(t *testing.T) {
	const (
		pressure = "The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi, available: 512Mi. "
		byPod    = `Usage of EmptyDir volume "scratch" exceeds the limit "1Mi". `
	)
	byKubelet := func(message string) source.Pod {
		return source.Pod{Phase: "Succeeded", RestartsAlways: true, Disruption: "TerminationByKubelet", DisruptionMessage: message}
	}
	type test struct {
		name     string
		pod      source.Pod
		admitted bool
		want     ending
	}
	tests := []test{
		{"it runs", source.Pod{Phase: "Running", RestartsAlways: true}, true, notLost},
		{"it waits", source.Pod{Phase: "Pending", RestartsAlways: true}, false, notLost},
		{"a job's is done", source.Pod{Phase: "Succeeded"}, false, notLost},
		{"a job's has failed", source.Pod{Phase: "Failed"}, false, notLost},
		{"a job's is evicted and ends well", source.Pod{Phase: "Succeeded", Disruption: "TerminationByKubelet", DisruptionMessage: pressure}, false, isLost},

		{"pressure", source.Pod{Phase: "Failed", Reason: "Evicted", Message: pressure}, true, isLost},
		{"pressure, and it is deleted since", source.Pod{Phase: "Failed", Reason: "Evicted", Message: pressure, Deleting: true}, true, isLost},
		{"pressure, and its reason is gone", byKubelet(pressure), true, isLost},
		{"a condition of the node", source.Pod{Phase: "Failed", Reason: "Evicted", Message: "Pod was rejected: The node had condition: [DiskPressure]. "}, true, isLost},
		{"its emptyDir", source.Pod{Phase: "Failed", Reason: "Evicted", Message: byPod}, false, notLost},
		{"its limit of storage", source.Pod{Phase: "Failed", Reason: "Evicted",
			Message: "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. "}, false, notLost},
		{"a container's limit of storage", source.Pod{Phase: "Failed", Reason: "Evicted",
			Message: `Container app exceeded its local ephemeral storage limit "1Mi". `}, false, notLost},
		{"an eviction of another kind", source.Pod{Phase: "Failed", Reason: "Evicted", Message: "Pod was using too much of something. "}, false, mayBeLost},

		{"a critical pod", source.Pod{Phase: "Failed", Reason: "Preempting", Message: "Preempted in order to admit critical pod"}, true, mayBeLost},
		{"a critical pod, and its reason is gone", byKubelet("Pod was preempted by Kubelet to accommodate a critical pod."), true, mayBeLost},
		{"its deadline", source.Pod{Phase: "Failed", Reason: "DeadlineExceeded", Message: "Pod was active on the node longer than the specified deadline", RestartsAlways: true}, false, notLost},
		{"a shutdown", source.Pod{Phase: "Failed", Reason: "Terminated", Message: shutDown, RestartsAlways: true}, false, notLost},
		{"a shutdown, and its reason is gone", byKubelet(shutDown), false, notLost},
		{"another's reason", source.Pod{Phase: "Failed", Reason: "NodeLost", RestartsAlways: true}, false, notLost},

		{"deleted", source.Pod{Phase: "Succeeded", RestartsAlways: true, Deleting: true}, false, notLost},
		{"no reason", source.Pod{Phase: "Succeeded", RestartsAlways: true}, true, mayBeLost},
		{"no reason, and it did not end well", source.Pod{Phase: "Failed", RestartsAlways: true}, false, mayBeLost},
		{"no reason, with a limit, and it may have been rejected", source.Pod{Phase: "Succeeded", RestartsAlways: true, LimitsStorage: true}, false, mayBeLost},
		{"no reason, with a limit, long after the start", source.Pod{Phase: "Succeeded", RestartsAlways: true, LimitsStorage: true}, true, notLost},
	}
	for _, by := range []string{"PreemptionByScheduler", "DeletionByTaintManager", "EvictionByEvictionAPI", "DeletionByPodGC"} {
		tests = append(tests, test{by, source.Pod{Phase: "Failed", RestartsAlways: true, Disruption: by}, false, notLost})
	}

	for reason, want := range map[string]ending{
		"OutOfcpu": isLost, "OutOfmemory": isLost, "OutOfephemeral-storage": isLost, "OutOfpods": isLost, "OutOfexample.com/gpu": isLost, "OutOfhugepages-2Mi": isLost,
		"NodeAffinity": isLost, "NodeName": isLost, "NodePorts": isLost, "UnexpectedAdmissionError": isLost, "TopologyAffinityError": isLost, "SMTAlignmentError": isLost,
		"EmptyPodSharedPoolError": isLost, "AppArmor": isLost, "SysctlForbidden": isLost, "PodFeatureUnsupported": isLost, "PodLevelResourcesNotSupported": isLost,
		"InitContainerRestartPolicyForbidden": isLost, "SupplementalGroupsPolicyNotSupported": isLost, "PodOSSelectorNodeLabelDoesNotMatch": isLost, "PodOSNotSupported": isLost,
		"TaintToleration": notLost, "NodeShutdown": notLost,
		"InvalidNodeInfo": mayBeLost, "UnknownReason": mayBeLost, "UnexpectedPredicateFailureType": mayBeLost, "VolumeAttachmentLimitExceeded": mayBeLost,
		"OfANewerKubelet": mayBeLost,
	} {
		tests = append(tests, test{reason, source.Pod{Phase: "Failed", Reason: reason, Message: "Pod was rejected: for a reason"}, false, want})
	}

	for _, tt := range tests {
		assert.Equal(t, endingOf(tt.pod, tt.admitted), tt.want, tt.name)
	}
}

// status returns a pod as the API server shows it after a kubelet has ended it:
// if all containers end well, the phase Succeeded replaces the reason, and the
// condition DisruptionTarget remains.
func status(r *rapid.T, p source.Pod, reason, message string) source.Pod {
	p.Phase, p.Reason, p.Message = "Failed", reason, message
	if rapid.Bool().Draw(r, "ends well") {
		p.Phase, p.Reason, p.Message = rapid.SampledFrom([]string{"Succeeded", "Failed"}).Draw(r, "phase"), "", ""
	}

	return p
}

// Pods with random policies and limits end, as the kubelet's code would have
// it.
func TestNoConfigurationIsBlamedForTheEndOfAPodOfItsOwn(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := source.Pod{RestartsAlways: rapid.Bool().Draw(r, "restarts always"), LimitsStorage: rapid.Bool().Draw(r, "limits storage")}
		admitted := rapid.Bool().Draw(r, "admitted")
		byKubelet := func(message string) source.Pod {
			p.Disruption, p.DisruptionMessage = "TerminationByKubelet", message
			return p
		}
		const low = "The node was low on resource: memory. Threshold quantity: 1Gi, available: 9Mi. Container c was using 9Mi, request is 0, has larger consumption of memory. "
		switch rapid.IntRange(0, 6).Draw(r, "end") {
		case 0: // by itself, where it may
			if p.RestartsAlways = false; endingOf(status(r, p, "", ""), admitted) != notLost {
				r.Errorf("%+v ended by itself", p)
			}
		case 1: // at its own limit
			p.LimitsStorage = true
			message := rapid.SampledFrom([]string{`Usage of EmptyDir volume "v" exceeds the limit "1Mi". `, `Container c exceeded its local ephemeral storage limit "1Mi". `}).Draw(r, "limit")
			ended := status(r, p, "Evicted", message)
			got := endingOf(ended, admitted)
			if got == isLost || got == mayBeLost && (admitted || ended.Reason != "") {
				r.Errorf("%+v, admitted %t: %d", ended, admitted, got)
			}
		case 2: // on request
			p.Deleting = rapid.Bool().Draw(r, "deleting")
			if !p.Deleting {
				p.Disruption = rapid.SampledFrom([]string{"PreemptionByScheduler", "EvictionByEvictionAPI", "DeletionByTaintManager", "DeletionByPodGC"}).Draw(r, "by")
			}
			ended := status(r, p, "", "")
			assert.That(r, endingOf(ended, admitted) == notLost, "%+v was deleted", ended)
		case 3: // with the node
			ended := status(r, byKubelet(shutDown), "Terminated", shutDown)
			assert.That(r, endingOf(ended, admitted) == notLost, "%+v ended with the node", ended)
		case 4:
			ended := status(r, byKubelet(low), "Evicted", low)
			assert.That(r, endingOf(ended, admitted) == isLost, "%+v was evicted", ended)
		case 5:
			ended := status(r, byKubelet("Pod was preempted by Kubelet to accommodate a critical pod."), "Preempting", "Preempted in order to admit critical pod")
			assert.That(r, endingOf(ended, admitted) == mayBeLost, "%+v was preempted", ended)
		default: // rejected, which is at a start
			ended := status(r, p, "OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu, requested: 2, used: 3, capacity: 4")
			if got := endingOf(ended, false); ended.Reason != "" && got != isLost || p.RestartsAlways && got == notLost {
				r.Errorf("%+v was rejected: %d", ended, got)
			}
		}
	})
}

func TestOnlyPodsOfBeforeAreLost(t *testing.T) {
	rejected := source.Pod{UID: "a", Namespace: "n", Name: "a", Phase: "Failed", Reason: "OutOfpods", Message: "Pod was rejected: too many"}
	ended, late := source.Pod{UID: "b", Namespace: "n", Name: "b", Phase: "Failed", RestartsAlways: true}, rejected
	late.UID = "c"
	pressed := source.Pod{UID: "a", Namespace: "n", Name: "a", Phase: "Succeeded", Disruption: "TerminationByKubelet", DisruptionMessage: "The node was low on resource: memory. "}
	for _, tt := range []struct {
		pods []source.Pod
		want string
	}{
		{nil, "[] false"},
		{[]source.Pod{late}, "[] false"},
		{[]source.Pod{rejected, late}, "[pod n/a: OutOfpods] false"},
		{[]source.Pod{pressed}, "[pod n/a: Evicted] false"},
		{[]source.Pod{ended}, "[pod n/b: ended, and it is not known why] true"},
		{[]source.Pod{rejected, ended}, "[pod n/a: OutOfpods pod n/b: ended, and it is not known why] false"},
		{[]source.Pod{ended, rejected}, "[pod n/b: ended, and it is not known why pod n/a: OutOfpods] false"},
	} {
		names, unexplained := lostPods(tt.pods, []string{"a", "b"}, nil)
		assert.Equal(t, fmt.Sprint(names, unexplained), tt.want, tt.pods)
	}
}

// ends ends the first pod of the API after the kubelet has been healthy for a
// while.
func (w *world) ends(after time.Duration, pod source.Pod) {
	w.t.Helper()
	w.runs("it")
	w.pass(after)
	w.api.set(func(api *simAPI) {
		pod.UID, pod.Namespace, pod.Name = api.pods[0].UID, api.pods[0].Namespace, api.pods[0].Name
		api.pods[0] = pod
	})
}

// untilAdmitted is how long pods are active until they cannot have been
// rejected at the start of the kubelet.
const untilAdmitted = lossDelay + 8*time.Second

// endsWell is a pod that may have been rejected, or have ended by itself.
var endsWell = source.Pod{Phase: "Succeeded", RestartsAlways: true, LimitsStorage: true}

func TestAPodThatEndsByItselfDoesNotFailATrial(t *testing.T) {
	type end struct {
		before   func(w *world)
		after    time.Duration
		pod      source.Pod
		then     func(w *world)
		restarts int
	}
	forEach(t, with(func(o *Options) { o.Limits.TrialDuration = 3 * time.Minute }), map[string]end{
		"it exceeds the limit of its emptyDir": {after: 3 * time.Second, pod: source.Pod{Phase: "Failed", Reason: "Evicted", RestartsAlways: true,
			Message: `Usage of EmptyDir volume "scratch" exceeds the limit "1Mi". `, LimitsStorage: true}},
		"the same, and its containers end well": {after: untilAdmitted, pod: endsWell},
		"its containers never restart":          {after: 3 * time.Second, pod: source.Pod{Phase: "Failed"}},
		"under a second kubelet": {before: func(w *world) {
			w.runs("it")
			w.pass(untilAdmitted)
			w.dies(exitOne)
		}, after: untilAdmitted, pod: endsWell, restarts: 1},
		"and then the kubelet is restarted": {after: untilAdmitted, pod: endsWell, then: func(w *world) { w.dies(exitOne) }, restarts: 1},
		"and then the agent is restarted":   {after: untilAdmitted, pod: endsWell, then: (*world).restart, restarts: 1},
		"and then both are restarted":       {after: untilAdmitted, pod: endsWell, then: func(w *world) { w.kill(); w.start() }, restarts: 1},
	}, func(w *world, _ string, tt end) {
		w.pods("a", "b")
		w.assign("uid-it", conf{name: "it"})
		if tt.before != nil {
			tt.before(w)
		}

		w.ends(tt.after, tt.pod)
		w.pass(100 * time.Millisecond)
		if tt.then != nil {
			tt.then(w)
		}

		w.promoted("uid-it")
		w.wantNoBad()
		w.wantStarts(append([]string{""}, slices.Repeat([]string{"it"}, 1+tt.restarts)...)...)
	})
}

func TestAPodThatEndsSoonAfterAStartMayHaveBeenRejected(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.pods("a", "b")
		w.adopts("uid-it", conf{name: "it"})
		w.pass(untilAdmitted)
		w.dies(exitOne)
		w.ends(time.Second, endsWell)
		w.runs("")
		w.wantStarts("", "it", "it", "")
		bad := w.status().BadConfigs
		assert.That(t, len(bad) == 1 && bad[0].Provisional, "bad are %+v", bad)
	})
}
