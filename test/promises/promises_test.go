// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package promises proves each promise of the README with a real API server,
// containerd and a stock kubelet. The tests share two nodes, one after the
// other; each begins with nodes that run their local configuration.
package promises

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/nodetest"
)

var kubelet = flag.String("kubelet", "", "the `path` of the kubelet of every node; empty: the newest")

// shared is the cluster of all tests. Its nodes are started by the first test
// that needs them.
var shared struct {
	*localcluster.Cluster
	nodes [2]*nodetest.Subject
}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(localcluster.RunTests(localcluster.Options{Kubelet: *kubelet}, func(_ context.Context, c *localcluster.Cluster) (int, error) {
		shared.Cluster = c
		code, errs := m.Run(), []error{}
		for _, n := range shared.nodes {
			if n != nil {
				errs = append(errs, n.StopNode())
			}
		}

		return code, errors.Join(errs...)
	}))
}

// node returns a node that runs its local configuration, and that nobody has
// assigned another one.
func node(t *testing.T, i int) *nodetest.Subject {
	t.Helper()
	if shared.nodes[i] == nil {
		n := nodetest.New(t, shared.Cluster, fmt.Sprintf("worker-%d", i), "--config-trial-duration=2s")
		n.Kubelet = append(n.Kubelet, "--node-labels=pool=workers")
		shared.nodes[i] = n
		n.Up()
	}

	n := shared.nodes[i].In(t)
	t.Cleanup(func() {
		if t.Failed() {
			n.ShowLog()
		}
	})
	for _, pod := range assert.Value(n.Pods(t.Context()))(t) { // of another test
		n.DeletePods(strings.TrimPrefix(pod.Name, n.Node.Name()+"-"))
	}

	assert.NoError(t, n.SetSpec(t.Context(), v1alpha1.NodeConfigSpec{}))
	n.Says("True", "LocalInit", "using current (init)")
	n.Arrived()

	return n
}

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
		revision, _, err := n.Running()
		return errors.Join(err, assert.Unless(revision == string(before.UID), "it runs %q, want %s", revision, before.UID), n.Healthy(ctx))
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

// fleet is the nodes of a rollout that a person steers with `kubectl evenkeel`.
type fleet [2]*nodetest.Subject

// has waits until all nodes run a number of maxPods.
func (f fleet) has(t *testing.T, maxPods int) {
	t.Helper()
	for _, n := range f {
		n.In(t).KubeletHas("maxPods", maxPods)
	}
}

// canary returns the node that has a revision, and the other one.
func (f fleet) canary(t *testing.T, revision int64) (canary, other *nodetest.Subject) {
	t.Helper()
	has := func(n *nodetest.Subject) bool {
		r := source(n.In(t)).RolloutRef
		return r != nil && r.Revision == revision
	}
	first := has(f[0])
	assert.Must(t, first != has(f[1]), "not exactly one node has revision %d", revision)
	if first {
		return f[0].In(t), f[1].In(t)
	}

	return f[1].In(t), f[0].In(t)
}

// source is what a node is assigned.
func source(n *nodetest.Subject) v1alpha1.NodeConfigSource {
	n.T.Helper()
	return ptr.Deref(assert.Value(n.Get(n.T.Context()))(n.T).Spec.ConfigSource, v1alpha1.NodeConfigSource{})
}

func TestARolloutHaltsAtABadConfigurationAndIsUndone(t *testing.T) {
	f := fleet{node(t, 0), node(t, 1)}
	f[0].Controlled()
	t.Cleanup(func() {
		rollout := f[0].Kube.CoreV1().RESTClient().Delete().AbsPath("/apis/evenkeel.dev/v1alpha1/nodeconfigrollouts/workers")
		assert.OK(t, rollout.Do(context.Background()).Error())
	})
	var good types.UID
	step := func(name string, do func(t *testing.T)) {
		if !t.Failed() {
			t.Run(name, do)
		}
	}
	step("a rollout changes several nodes, one after another", func(t *testing.T) {
		n := f[0].In(t)
		n.Push("workers", map[string]any{"maxPods": 125}, "--selector=pool=workers", "--steps=1,pause,100%", "--max-unavailable=1")
		n.RolloutEnds("workers", 4) // it needs approval
		f.canary(t, 1)
		n.Plugin(0, []string{"rollout", "approve", "workers"})
		n.RolloutEnds("workers", 0, "2 of 2 nodes updated")
		f.has(t, 125)
		good = source(n).ConfigMapRef.UID
		for _, n := range f {
			is := assert.Value(n.Get(t.Context()))(t).Status.LastKnownGood
			assert.That(t, is != nil && is.UID == good, "%s: last-known-good is %+v", n.Node.Name(), is)
		}
	})
	step("a bad configuration halts it at the first node, which rolls back by itself", func(t *testing.T) {
		n := f[0].In(t)
		undisturbed := map[*nodetest.Subject]*nodetest.Steady{f[0]: f[0].In(t).Steady(), f[1]: f[1].In(t).Steady()}
		n.Push("workers", crashing)
		n.RolloutEnds("workers", 2, "Halted", v1alpha1.ReasonCrashLooped)
		canary, other := f.canary(t, 2)
		n.Plugin(2, []string{"rollout", "status", "workers"}, "Halted", canary.Node.Name()+" "+v1alpha1.ReasonCrashLooped)
		n.Plugin(0, []string{"node", canary.Node.Name()}, v1alpha1.ReasonCrashLooped)
		for subject, steady := range undisturbed {
			if subject.Node == other.Node {
				steady.End(t)
			}
		}

		assert.That(t, source(other).ConfigMapRef.UID == good, "%s is assigned %+v", other.Node.Name(), source(other))
		canary.Arrived()
		f.has(t, 125)
	})
	step("undo returns to the last revision that succeeded", func(t *testing.T) {
		n := f[0].In(t)
		canary, other := f.canary(t, 2)
		steady := other.Steady()
		n.Plugin(0, []string{"rollout", "undo", "workers"}, "the configuration of revision 1 is the target")
		n.RolloutEnds("workers", 0, "Complete") // without an approval: the revision has succeeded before
		canary.Eventually("the first node is assigned what was good", func(context.Context) error {
			s := source(canary)
			return assert.Unless(s.ConfigMapRef != nil && s.ConfigMapRef.UID == good && s.RolloutRef.Revision == 3, "it is assigned %+v", s)
		})
		canary.Says("True", "AllChecksPassed", string(good))
		f.has(t, 125)
		steady.End(t)
	})
}
