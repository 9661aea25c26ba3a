// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// hasSmallVolume is for runPodsWith: the pod has an emptyDir of 1 MiB.
func hasSmallVolume(spec *corev1.PodSpec) {
	spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(1<<20, resource.BinarySI)},
	}}}
	spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}
}

// endsByItself is for runPodsWith: a probe ends the only container, which has
// its own restart policy, after 45 s.
func endsByItself(spec *corev1.PodSpec) {
	c := &spec.Containers[0]
	c.RestartPolicy = new(corev1.ContainerRestartPolicyNever)
	c.LivenessProbe = &corev1.Probe{InitialDelaySeconds: 45, PeriodSeconds: 1, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{
		TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(1)},
	}}
}

func TestPodsThatEndByThemselvesDoNotFailATrial(t *testing.T) {
	t.Parallel()
	n := newNode(t, "ends", "--config-trial-duration=80s")
	n.Up()
	n.RunPods("stays")
	n.RunPodsWith(hasSmallVolume, "grows")
	n.RunPodsWith(endsByItself, "once")
	before := n.Containers()
	cm := n.assignNew("harmless", map[string]any{"containerLogMaxFiles": 7, "volumeStatsAggPeriod": "1s"})
	n.Eventually("the configuration has been on trial for a while", func(ctx context.Context) error {
		nc, err := n.Get(ctx)
		if err == nil && (nc.Status.Trial == nil || nc.Status.Trial.HealthySeconds < 40) {
			err = fmt.Errorf("trial: %+v", nc.Status.Trial)
		}

		return err
	})
	pod, err := n.Kube.CoreV1().Pods(metav1.NamespaceDefault).Get(n.t.Context(), n.Node.Name()+"-grows", getOptions)
	assert.NoError(t, err)
	volume := filepath.Join(n.Node.Dir(), "kubelet", "pods", string(pod.UID), "volumes", "kubernetes.io~empty-dir", "scratch")
	assert.NoError(t, os.WriteFile(filepath.Join(volume, "data"), make([]byte, 2<<20), 0o644))
	left := 1
	if strings.HasPrefix(underTest.version, "v1.33.") || strings.HasPrefix(underTest.version, "v1.34.") {
		left = 2 // without the containers' own policies
	}

	n.podsLeft(left, before)
	if nc := n.is(allChecksPassed(cm)); nc.Status.Trial == nil {
		t.Error("the trial was over before")
	}

	n.LastKnownGood(cm)
	if nc := n.is(allChecksPassed(cm)); len(nc.Status.BadConfigs) != 0 {
		t.Errorf("badConfigs are %+v", nc.Status.BadConfigs)
	}
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

// podsLeft waits until this number of the node's pods run, without a restart,
// and the others have ended.
func (n *node) podsLeft(want int, before map[string]string) {
	n.t.Helper()
	n.Eventually(printable.Count(want, "pod")+" left", func(ctx context.Context) error {
		now := n.Containers()
		left := 0
		for pod, state := range now {
			if before[pod] == state {
				left++
			}
		}

		running, err := n.Kube.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Running,spec.nodeName=" + n.Node.Name()})
		if err != nil {
			return err
		}
		if left != want || len(running.Items) != want {
			return fmt.Errorf("containers are %v, were %v; the API server has %d running pods", now, before, len(running.Items))
		}

		return nil
	})
}
