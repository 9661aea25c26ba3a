// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/testkit/assert"
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
