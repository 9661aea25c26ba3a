// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package promises

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/nodetest"
)

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
	nc := assert.Value(n.Get(n.T.Context()))(n.T)
	if nc.Spec.ConfigSource == nil {
		return v1alpha1.NodeConfigSource{}
	}

	return *nc.Spec.ConfigSource
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
			if s := source(canary); s.ConfigMapRef == nil || s.ConfigMapRef.UID != good || s.RolloutRef.Revision != 3 {
				return fmt.Errorf("it is assigned %+v", s)
			}

			return nil
		})
		canary.Says("True", "AllChecksPassed", string(good))
		f.has(t, 125)
		steady.End(t)
	})
}
