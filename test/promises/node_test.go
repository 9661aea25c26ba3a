// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package promises

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/nodetest"
)

// assign creates a ConfigMap with a drop-in, and assigns it. A comment makes it
// new to the node, which remembers the contents of other tests.
func assign(n *nodetest.Subject, fields map[string]any) *corev1.ConfigMap {
	n.T.Helper()
	return assignText(n, n.DropIn(fields)+fmt.Sprintf("# of %d\n", time.Now().UnixNano()))
}

func assignText(n *nodetest.Subject, dropIn string) *corev1.ConfigMap {
	n.T.Helper()
	cm := n.CreateMap(fmt.Sprintf("%x", time.Now().UnixNano()), map[string]string{"kubelet-dropin": dropIn})
	n.AssignMap(cm)
	return cm
}

// good assigns a configuration, and waits until it is last-known-good.
func good(n *nodetest.Subject, maxPods int) *corev1.ConfigMap {
	n.T.Helper()
	cm := assign(n, map[string]any{"maxPods": maxPods})
	n.LastKnownGood(cm)
	n.Arrived()

	return cm
}

func TestAGoodChangeIsTriedAndBecomesLastKnownGood(t *testing.T) {
	n := node(t, 0)
	n.Plugin(0, []string{"assign", n.Node.Name(), "-f", n.File(n.DropIn(map[string]any{"maxPods": 120})), "--drop-in", "--yes", "--timeout=" + nodetest.Patience.String()},
		"maxPods: unset -> 120", "which has passed its trial and is its last-known-good configuration")
	n.KubeletHas("maxPods", 120)
	n.Eventually("the Node has room for 120 pods", func(ctx context.Context) error {
		pods, err := n.MaxPods(ctx)
		return errors.Join(err, assert.Unless(pods == 120, "it has room for %d", pods))
	})
	nc := n.Says("True", "AllChecksPassed", "all checks passed")
	good := nc.Status.LastKnownGood
	active := nc.Status.Active
	assert.Must(t, nc.Status.ObservedGeneration == nc.Generation, "the status is of generation %d", nc.Status.ObservedGeneration)
	assert.Must(t, good != nil && active != nil && active.UID == good.UID && nc.Status.Trial == nil,
		"active is %+v, last-known-good %+v, trial %+v", active, good, nc.Status.Trial)
	n.Eventually("the Node has the condition ConfigOK", func(ctx context.Context) error {
		object, err := n.Object(ctx)
		return errors.Join(err, assert.Unless(slices.ContainsFunc(object.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == v1alpha1.ConditionConfigOK && c.Status == corev1.ConditionTrue && strings.Contains(c.Message, string(good.UID))
		}), "its conditions are %+v", object.Status.Conditions))
	})
	n.Event("Normal", "ConfigLastKnownGood", fmt.Sprintf("(UID: %s) became last-known-good after 2s of observed health", good.UID))
}

// doesNotStopTheKubelet assigns a configuration that the node must refuse while
// its kubelet runs on.
func doesNotStopTheKubelet(n *nodetest.Subject, fields map[string]any, reason, words string) *v1alpha1.NodeConfig {
	n.T.Helper()
	steady := n.Steady()
	cm := assign(n, fields)
	nc := n.Says("False", reason, string(cm.UID))
	assert.That(n.T, strings.Contains(nc.Status.Error, words) && nc.Status.Active == nil,
		"the error is %q, want %q; active is %+v", nc.Status.Error, words, nc.Status.Active)
	steady.End(n.T)

	return nc
}

func TestATypoDoesNotStopTheKubelet(t *testing.T) {
	doesNotStopTheKubelet(node(t, 0), map[string]any{"maxPodz": 130}, "ValidationFailed", `strict decoding error: unknown field "maxPodz"`)
}

func TestAValueThatWouldStopTheKubeletAtItsStartDoesNotStopIt(t *testing.T) {
	n := node(t, 0)
	nc := doesNotStopTheKubelet(n, map[string]any{"evictionHard": map[string]any{"memory.available": "banana"}},
		"ValidationFailed", "quantities must match the regular expression")
	bad := nc.Status.BadConfigs
	assert.That(t, len(bad) != 0 && bad[0].UID == nc.Status.Assigned.UID, "badConfigs are %+v", bad)
}

func TestAProtectedFieldIsNotChanged(t *testing.T) {
	doesNotStopTheKubelet(node(t, 0), map[string]any{"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}}},
		"ProtectedFields", "protected field authentication.anonymous.enabled would be true, but is false locally")
}

func TestAConfigurationThatCannotBeFoundChangesNothing(t *testing.T) {
	n := node(t, 0)
	steady := n.Steady()
	ref := v1alpha1.ConfigMapReference{Namespace: v1alpha1.SystemNamespace, Name: "nowhere", UID: "no-uid"}
	assert.NoError(t, n.Assign(t.Context(), &v1alpha1.NodeConfigSource{ConfigMapRef: &ref}))
	n.Says("Unknown", "SyncFailed", "referenced ConfigMap evenkeel-system/nowhere not found")
	steady.End(t)
}

// crashing passes every dry run, and the kubelet ends with it as soon as it has
// compared it with the node's storage.
var crashing = map[string]any{"kubeReserved": map[string]any{"ephemeral-storage": "100Ti"}}

func TestACrashLoopIsRolledBackAfterFourStartsAndRemembered(t *testing.T) {
	n := node(t, 0)
	before := good(n, 121)
	cm := assign(n, crashing)
	words := fmt.Sprintf("using last-known-good (UID: %s): current (UID: %s) crash-looped: 4 starts in its trial, last: exit status 1", before.UID, cm.UID)
	nc := n.Says("False", "CrashLooped", words)
	bad := nc.Status.BadConfigs
	assert.That(t, len(bad) > 0 && bad[0].UID == cm.UID && strings.Contains(bad[0].Reason, "Failed to start ContainerManager"),
		"badConfigs are %+v, want the kubelet's own reason", bad)
	n.Arrived()
	n.KubeletHas("maxPods", 121)
	n.Event("Warning", "ConfigRolledBack", fmt.Sprintf("going back to last-known-good (UID: %s)", before.UID))

	// It is not run again: not after a restart of the agent, and not under
	// another name.
	n.AssignMap(before)
	n.Says("True", "AllChecksPassed", string(before.UID))
	assert.NoError(t, n.Stop(nodetest.Patience))
	n.Up()
	steady := n.Steady()
	again := assignText(n, cm.Data["kubelet-dropin"])
	n.Says("False", "CrashLooped", fmt.Sprintf("refused current (UID: %s): it has the same content as (UID: %s), which is bad", again.UID, cm.UID))
	steady.End(t)
}

func TestABadConfigurationIsRolledBackWithoutTheAPI(t *testing.T) {
	n := node(t, 0)
	before := good(n, 122)
	cm := assignText(n, `apiVersion: evenkeel.dev/v1alpha1
kind: KubeletConfiguration
trial: {configTrialDuration: 10m, crashLoopThreshold: 0}
resources: {maxPods: 123}
`)
	n.Says("True", "AllChecksPassed", string(cm.UID))
	steady := n.Steady()

	// The outage is no failure of the configuration.
	assert.NoError(t, n.Cluster.StopAPIServer())
	n.AgentSays("Unknown", "SyncFailed", fmt.Sprintf("using current (UID: %s)", cm.UID))
	steady.End(t)
	assert.NoError(t, syscall.Kill(n.RunningPID(), syscall.SIGKILL))
	n.Eventually("the kubelet is healthy with last-known-good", func(ctx context.Context) error {
		if revision, _, err := n.Running(); err != nil || revision != string(before.UID) {
			return fmt.Errorf("it runs %q, want %s: %w", revision, before.UID, err)
		}

		return n.Healthy(ctx)
	})
	n.AgentSays("Unknown", "SyncFailed", fmt.Sprintf("using last-known-good (UID: %s)", before.UID))
	assert.NoError(t, n.Cluster.StartAPIServer(t.Context()))
	n.Says("False", "CrashLooped", fmt.Sprintf("current (UID: %s) crash-looped: 1 start in its trial, last: signal: killed", cm.UID))
	n.KubeletHas("maxPods", 122)
	n.Eventually("the node is Ready", n.Ready)
}

func TestAChangeThatWouldCostPodsWaitsUntilTheyHaveMoved(t *testing.T) {
	n := node(t, 0)
	n.RunPods("1", "2", "3")
	before := n.Containers()

	// A change that has room for them leaves them alone.
	good(n, 119)
	n.SameContainers(before)

	steady := n.Steady()
	cm := assign(n, map[string]any{"maxPods": 2})
	nc := n.Says("False", "WouldEvictPods", "the kubelet would end 3 of the node's 3 pods: default/worker-0-1, default/worker-0-2, default/worker-0-3")
	for _, bad := range nc.Status.BadConfigs {
		assert.That(t, bad.UID != cm.UID, "it is held to be bad: %+v", bad)
	}

	steady.End(t)
	n.SameContainers(before)
	n.DeletePods("3")
	n.LastKnownGood(cm)
	n.Arrived()
	delete(before, "worker-0-3")
	n.SameContainers(before)
	n.KubeletHas("maxPods", 2)
}
