// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// label sets the label zone of the Node.
func (n *node) label(zone string) {
	n.t.Helper()
	n.patchNode(`{"metadata":{"labels":{"zone":%q}}}`, zone)
}

// runsOnlyInZoneA is for RunPodsWith: the pod selects nodes of the zone a.
func runsOnlyInZoneA(spec *corev1.PodSpec) { spec.NodeSelector = map[string]string{"zone": "a"} }

func TestAPodThatIsNotAdmittedAgainFailsTheTrial(t *testing.T) {
	t.Parallel()
	n := newNode(t, "rejects", "--config-trial-duration=10m")
	n.Up()
	n.label("a")
	n.RunPodsWith(runsOnlyInZoneA, "picky")
	before := n.Containers()

	// Any restart would cost the pod: nothing restarts.
	n.label("b")
	kubelet := n.Steady()
	cm := n.assignNew("harmless", map[string]any{"containerLogMaxFiles": 4})
	nc := n.Says("False", "RestartWouldEvictPods", "using last-known-good (init)")
	assert.That(t, len(nc.Status.BadConfigs) == 0, "badConfigs are %+v", nc.Status.BadConfigs)
	n.Event("Warning", "ConfigRefused", "the configuration is not the cause: default/rejects-picky: NodeAffinity")
	kubelet.End(t)
	n.label("a")
	n.is(allChecksPassed(cm))
	n.healthyWith(cm)
	n.SameContainers(before)

	n.label("b")
	n.kill(n.RunningPID())
	// The final state of its containers may replace the reason NodeAffinity.
	n.Says("False", "WorkloadHarmed",
		fmt.Sprintf("using last-known-good (init): current (UID: %s) harmed the workload: pod default/rejects-picky: ", cm.UID))
}

func TestARollbackThatCostsPodsIsNotDelayedAndItsCostIsReported(t *testing.T) {
	t.Parallel()
	n := newNode(t, "costly", "--config-trial-duration=10m", "--crash-loop-threshold=0")
	n.Up()
	n.label("a")
	n.RunPods("any")
	n.RunPodsWith(runsOnlyInZoneA, "picky")
	cm := n.assignNew("bad", map[string]any{"containerLogMaxFiles": 4})
	n.is(allChecksPassed(cm))
	n.healthyWith(cm)
	n.label("b")
	n.kill(n.RunningPID())
	n.is(rolledBack(cm, "CrashLooped", "(init)", "crash-looped: 1 start in its trial, last: signal: killed"))
	n.healthyWith(nil) // a guard would wait for the label
	// It is NodeAffinity, or the kubelet ended the pod.
	n.Event("Warning", "PodsLost", "the restart of the kubelet (rollback) ended 1 of 2 pods: pod default/costly-picky: ")
}

func TestPressureThatNoGuardPredictsFailsTheTrial(t *testing.T) {
	t.Parallel()
	n := newNode(t, "evicts", "--config-trial-duration=10m")
	root := filepath.Join(n.Node.Dir(), "kubelet")
	assert.NoError(t, os.MkdirAll(root, 0o755))
	assert.NoError(t, unix.Mount("tmpfs", root, "tmpfs", 0, "size=64m,mode=0755")) // stopping the node unmounts it
	n.Up()
	n.RunPods("1", "2")
	cm := n.assignNew("strict", map[string]any{"evictionHard": map[string]string{"memory.available": "50Mi", "nodefs.available": "16Mi"}})
	n.is(allChecksPassed(cm))
	n.healthyWith(cm)
	assert.NoError(t, os.WriteFile(filepath.Join(root, "ballast"), make([]byte, 52<<20), 0o644))
	n.Says("False", "WorkloadHarmed", fmt.Sprintf("using last-known-good (init): current (UID: %s) harmed the workload: ", cm.UID))
	n.healthyWith(nil)
}

// TestTheStatusSaysHowManyPodsARestartMakesUnready compares the number with the
// pods that lose Ready in a real restart.
func TestTheStatusSaysHowManyPodsARestartMakesUnready(t *testing.T) {
	newest := assert.Value(askKubelet(tool("kubelet")))(t)
	for _, tt := range []struct {
		name    string
		kubelet kubeletProgram
		lose    []string // without the name of the node
	}{
		{"unready-old", olderKubelet(t, 0), []string{"probed", "static"}},
		{"unready-new", newest, []string{"static"}},
	} {
		t.Run(tt.kubelet.version, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, tt.name, "--config-trial-duration=1s")
			n.Kubelet[0] = tt.kubelet.path
			n.Up()
			n.runReadyPods()
			cm := n.ConfigMap("change", map[string]any{"maxPods": 120})
			lost := n.losesReady()
			n.AssignMap(cm)
			n.LastKnownGood(cm)
			nc := n.is(allChecksPassed(cm))
			unready := nc.Status.PodsUnreadyOnRestart
			assert.That(t, unready != nil && *unready == int64(len(tt.lose)), "the status has %d pods", ptr.Deref(unready, -1))
			got := lost()
			assert.That(t, slices.Equal(got, tt.lose), "the pods %q lost Ready, want %q", got, tt.lose)
		})
	}
}

// probePeriod is long enough for everybody to see a pod that is unready until
// its next probe.
const probePeriod = 5

// runReadyPods starts a pod with a readiness probe, one without, and a static
// pod with a probe, and waits until they are Ready, and so old that a kubelet
// of 1.35 or later leaves them Ready.
func (n *node) runReadyPods() {
	n.t.Helper()
	probed := func(spec *corev1.PodSpec) {
		healthz := &corev1.HTTPGetAction{Host: "127.0.0.1", Port: intstr.FromInt(n.Node.HealthzPort()), Path: "/healthz"} // of the kubelet
		spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: probePeriod, ProbeHandler: corev1.ProbeHandler{HTTPGet: healthz}}
	}
	n.RunPodsWith(probed, "probed")
	n.RunPods("plain")
	static := localcluster.SleepingPod("static")
	static.APIVersion, static.Kind, static.Namespace = "v1", "Pod", metav1.NamespaceDefault
	probed(&static.Spec)
	raw := assert.Value(json.Marshal(static))(n.t)
	assert.NoError(n.t, os.WriteFile(filepath.Join(n.Node.Dir(), "manifests", "static.json"), raw, 0o600))
	n.Eventually("the pods are Ready, and old enough", func(ctx context.Context) error {
		since, err := n.readySince(ctx)
		for name, at := range since {
			err = errors.Join(err, assert.Unless(at.Add(15*time.Second).Before(time.Now()), "%s is Ready since %s", name, at))
		}

		return err
	})
}

// readySince returns since when the pods of runReadyPods are Ready. The error
// says that not all are.
func (n *node) readySince(ctx context.Context) (map[string]time.Time, error) {
	pods, err := n.Pods(ctx)
	since := map[string]time.Time{}
	for _, pod := range pods {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				since[pod.Name] = c.LastTransitionTime.Time
			}
		}
	}

	return since, errors.Join(err, assert.Unless(len(since) == 3, "Ready are %v", since))
}

// losesReady watches the pods of runReadyPods. The function that it returns
// waits until they are Ready again after a restart, and returns the names of
// those that were not.
func (n *node) losesReady() func() []string {
	n.t.Helper()
	before := assert.Value(n.readySince(n.t.Context()))(n.t)
	return func() (lost []string) {
		n.t.Helper()
		time.Sleep((probePeriod + 2) * time.Second) // a pod may lose Ready late
		var now map[string]time.Time
		n.Eventually("the pods are Ready", func(ctx context.Context) (err error) {
			now, err = n.readySince(ctx)
			return err
		})
		for name, since := range now {
			if !since.Equal(before[name]) { // it was not Ready in between
				lost = append(lost, strings.Trim(strings.Replace(name, n.Node.Name(), "", 1), "-"))
			}
		}

		slices.Sort(lost)

		return lost
	}
}
