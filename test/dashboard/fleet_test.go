// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

// seeded is one node as it is created.
type seeded struct {
	name, zone string
	ready      bool
	report     func(*v1alpha1.NodeConfigStatus) // nil: there is no agent
}

// seed creates nodes in the API, up to 24 at a time.
func seed(t *testing.T, nodes []seeded) {
	t.Helper()
	api := fakeapi.Of(t, admin)
	var all sync.WaitGroup
	for part := range slices.Chunk(nodes, len(nodes)/24+1) {
		all.Go(func() {
			for _, n := range part {
				plant(api, n)
			}
		})
	}

	all.Wait()
	assert.Must(t, !t.Failed(), "nodes were not created")
}

func plant(api *fakeapi.API, n seeded) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: map[string]string{corev1.LabelTopologyZone: n.zone, "pool": "seeded"}}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.Now()}}
	if n.ready {
		node.Status.Conditions[0].Status = corev1.ConditionTrue
	}

	fakeapi.Add(api, node)
	if n.report != nil {
		api.AddNodeConfig(n.name, nil, n.report)
	}
}

func fine(*v1alpha1.NodeConfigStatus) {}

func crashed(st *v1alpha1.NodeConfigStatus) {
	fakeapi.Failing(st, v1alpha1.ReasonCrashLooped, "current (UID: 1234) crash-looped: 4 starts in its trial, last: exit status 1")
}

func recovered(st *v1alpha1.NodeConfigStatus) {
	st.Conditions[0].Status, st.Conditions[0].Reason, st.Error = metav1.ConditionTrue, v1alpha1.ReasonAllChecksPassed, ""
}

func inTrial(st *v1alpha1.NodeConfigStatus) {
	began := metav1.Now()
	st.Trial = &v1alpha1.Trial{StartTime: &began, HealthySeconds: 90, DurationSeconds: 600, CrashLoopThreshold: 3}
}

// push pushes a revision of a rollout with these steps and flags.
func push(t *testing.T, name string, pods int, steps string, flags ...string) {
	t.Helper()
	file := fakeapi.File(t, fakeapi.Header+fmt.Sprintf("maxPods: %d\npodPidsLimit: 4096\n", pods))
	args := append([]string{"push", name, "-f", file, "--drop-in", "--selector=pool=" + name, "--steps=" + steps, "--max-unavailable=50%",
		"--yes", "--kubeconfig=" + cluster.AdminKubeconfig()}, flags...)
	c := spawn(t, "kubectl-evenkeel", args...)
	<-c.Done
	assert.Must(t, c.Cmd.ProcessState.ExitCode() == 0, "%v", c.Said())
}

// stored reads an object as it is stored now.
func stored[T client.Object](t *testing.T, o T, name string) T {
	t.Helper()
	o.SetName(name)
	fakeapi.Of(t, admin).Read(o)

	return o
}

func rolloutNow(t *testing.T, name string) *v1alpha1.NodeConfigRollout {
	t.Helper()
	return stored(t, &v1alpha1.NodeConfigRollout{}, name)
}

func nodeConfig(t *testing.T, name string) *v1alpha1.NodeConfig {
	t.Helper()
	return stored(t, &v1alpha1.NodeConfig{}, name)
}

// cleared removes all nodes and rollouts when the test ends. Without a browser
// the test is skipped.
func cleared(t *testing.T) {
	t.Helper()
	if chromium == "" {
		t.Skip("there is no chromium")
	}

	t.Cleanup(func() {
		ctx := context.Background()
		for _, o := range []client.Object{&v1alpha1.NodeConfigRollout{}, &v1alpha1.NodeConfig{}, &corev1.Node{}} {
			assert.OK(t, admin.DeleteAllOf(ctx, o))
		}
	})
}

// some is a small fleet with nodes that are fine, failed, in trial, without an
// agent, and not Ready.
func some(prefix string, n int) []seeded {
	var nodes []seeded
	for i := range n {
		s := seeded{fmt.Sprintf("%s-%03d", prefix, i), "zone-" + string(rune('a'+i%3)), i != 11, fine}
		switch i {
		case 4, 17:
			s.report = crashed
		case 7:
			s.report = inTrial
		case 9:
			s.report = nil
		}

		nodes = append(nodes, s)
	}

	return nodes
}

// givenRollout creates a rollout that waits at its pause, as a controller would
// have left it.
func givenRollout(t *testing.T, name, pool string) {
	t.Helper()
	fakeapi.Of(t, admin).AddRollout(name, pool, fakeapi.Pods(99), func(r *v1alpha1.NodeConfigRollout) {
		one, all, now := intstr.FromInt32(1), intstr.FromString("100%"), metav1.Now()
		r.Spec.Strategy.Steps = []v1alpha1.RolloutStep{{Nodes: &one}, {Pause: &v1alpha1.RolloutPause{}}, {Nodes: &all}}
		r.Status = v1alpha1.NodeConfigRolloutStatus{
			ObservedGeneration: 1, Phase: v1alpha1.RolloutAwaitingApproval, Step: 1, Attempt: 1, StartTime: &now,
			Message:        "revision 1: 1/3 steps done; waiting for approval",
			UpdateRevision: &v1alpha1.RolloutRevision{Number: 1, ConfigMapRef: v1alpha1.ConfigMapReference{Namespace: v1alpha1.SystemNamespace, Name: name + "-1234567890", UID: "u1"}},
			Nodes:          v1alpha1.RolloutCounts{Selected: 12, Members: 12, Updated: 1, Pending: 10, Failed: 1},
			FailedNodes:    []v1alpha1.FailedNode{{Name: "seen-004", Reason: "CrashLooped", Message: "exit status 1"}},
		}
	})
}

// flip lets a node fail, or be healthy again. Nodes without an agent stay as
// they are.
func flip(ctx context.Context, name string) error {
	nc := &v1alpha1.NodeConfig{}
	if err := admin.Get(ctx, client.ObjectKey{Name: name}, nc); err != nil {
		return client.IgnoreNotFound(err)
	}

	if nc.Status.Conditions[0].Status == metav1.ConditionTrue {
		crashed(&nc.Status)
	} else {
		recovered(&nc.Status)
	}

	return admin.Status().Update(ctx, nc)
}
