// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// refused is ConfigOK for a configuration that a guard refuses.
func refused(cm *corev1.ConfigMap, guard, using, words string) want {
	cause := fmt.Sprintf("refused current (UID: %s): %s", cm.UID, words)
	return want{"False", guard, using, cause, cause}
}

// static is a configuration with static CPU and memory managers: they need
// something that is reserved, for memory all that is, the eviction threshold
// included.
func static() map[string]any {
	return map[string]any{
		"cpuManagerPolicy":    "static",
		"memoryManagerPolicy": "Static",
		"systemReserved":      map[string]string{"cpu": "500m", "memory": "100Mi"},
		"reservedMemory":      []map[string]any{{"numaNode": 0, "limits": map[string]string{"memory": "150Mi"}}},
	}
}

// managers are the kubelet's state files, each with the policy that local has
// and the one that static has.
var managers = []struct{ file, field, none, static string }{
	{"cpu_manager_state", "cpuManagerPolicy", "none", "static"},
	{"memory_manager_state", "memoryManagerPolicy", "None", "Static"},
}

func (n *node) cordon(on bool) {
	n.t.Helper()
	n.patchNode(`{"spec":{"unschedulable":%t}}`, on)
}

// policies waits until the state files say that static, or local, wrote them,
// and returns those that were moved aside, of which there must be as many for
// each.
func (n *node) policies(static bool, aside int) []string {
	n.t.Helper()
	var moved []string
	for _, m := range managers {
		policy := m.none
		if static {
			policy = m.static
		}

		n.policyOf(m.file, policy)
		found, err := filepath.Glob(filepath.Join(n.Node.Dir(), "kubelet", m.file+".evenkeel-*"))
		assert.That(n.t, err == nil && len(found) == aside, "%s was set aside %d times, not %d: %q, %v", m.file, len(found), aside, found, err)
		moved = append(moved, found...)
	}

	return moved
}

// policyOf waits until a state file says that this policy wrote it.
func (n *node) policyOf(file, policy string) {
	n.t.Helper()
	n.Eventually(file+" is of policy "+policy, func(context.Context) error {
		raw, err := os.ReadFile(filepath.Join(n.Node.Dir(), "kubelet", file))
		if err == nil && !strings.Contains(string(raw), fmt.Sprintf(`"policyName":%q`, policy)) {
			err = errors.New(string(raw))
		}

		return err
	})
}

func TestAManagersStateNeedsADrainAndPressureIsPredicted(t *testing.T) {
	t.Parallel()
	n := newNode(t, "pods", "--config-trial-duration=1s")
	n.Up()
	n.RunPods("3", "4", "5")
	n.needsDrain()
	n.putsUnderPressure()
}

// needsDrain changes the policies of the CPU and memory managers, on a node
// with pods.
func (n *node) needsDrain() {
	n.t.Helper()
	n.policies(false, 0)
	kubelet := n.Steady()
	cm := n.assignNew("static", static())
	var words []string
	for _, m := range managers {
		words = append(words, fmt.Sprintf("%s is %q but %s was written by %q", m.field, m.static, m.file, m.none))
	}

	w := refused(cm, "NeedsDrain", "using last-known-good (init)", strings.Join(words, "; ")+"; cordon and drain the node first")
	n.is(w)
	n.cordon(true)
	n.DeletePods("3", "4")
	n.is(w)
	n.policies(false, 0)
	kubelet.End(n.t)
	n.DeletePods("5")
	n.is(allChecksPassed(cm))
	n.LastKnownGood(cm)
	for _, file := range n.policies(true, 1) {
		n.Event("Warning", "StateMovedAside", "the CPU or memory manager's state contradicted the configuration and was moved to "+file)
	}

	n.AssignMap(nil)
	n.is(localInit)
	n.policies(false, 2)
	n.Eventually("the kubelet is healthy with its old policies", n.Healthy)
	n.cordon(false)
}

// putsUnderPressure assigns a threshold that the usage of the machine's memory
// crosses already.
func (n *node) putsUnderPressure() {
	n.t.Helper()
	n.RunPods("victim")
	before := n.Containers()
	kubelet := n.Steady()
	cm := n.assignNew("pressure", map[string]any{"evictionHard": map[string]string{"memory.available": "99%"}})
	n.Says("False", "WouldEvictPods", fmt.Sprintf("refused current (UID: %s): the kubelet would end 1 of the node's 1 pod: "+
		"default/pods-victim: Evicted (the usage crosses, or nearly crosses, evictionHard memory.available (99%%, ", cm.UID))
	kubelet.End(n.t)
	n.SameContainers(before)
}
