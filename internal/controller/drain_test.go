// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// drains has a rollout drain every node.
func drains(s *v1alpha1.NodeConfigRolloutSpec) { s.Strategy.Drain = v1alpha1.DrainAlways }

// drainOf returns the drain that a Node records.
func drainOf(t *testing.T, node string) rollout.Drain {
	t.Helper()
	return fleet.DrainOf(nodeNamed(t, node))
}

// The controller can end at any write, and nobody but the status says why a
// Node has the taint.
func TestANodeHasTheTaintOfADrainOnlyWhileAStatusNamesIt(t *testing.T) {
	pool(t, "named", "named")
	grant(t, "drain")
	var writes atomic.Int64
	config := answering(func(r *http.Request, _ http.RoundTripper) (*http.Response, error) {
		if r.Method == http.MethodPatch && r.URL.Path == "/api/v1/nodes/named" {
			writes.Add(1)
			o := &v1alpha1.NodeConfigRollout{}
			if err := admin.Get(r.Context(), types.NamespacedName{Name: "named"}, o); err != nil {
				t.Errorf("read the status: %v", err) // not Fatal: this is not the test's goroutine
			}

			all := o.Status.DrainingNodes
			assert.That(t, len(all) == 1 && all[0].Name == "named", "at a write of the taint the status lists %+v", all)
		}

		return nil, nil
	})
	start(t, config)
	roll(t, "named", drains)
	awaitRollout(t, "named", completeAt(1), func(st status) error {
		d := drainOf(t, "named")
		return assert.Unless(len(st.DrainingNodes) == 0 && d == (rollout.Drain{}),
			"the status lists %+v, the Node records %+v", st.DrainingNodes, d)
	})
	assert.That(t, writes.Load() >= 2, "%d writes of the taint, want its begin and its end", writes.Load())
}

func TestALeaderHandsOverBeforeItsOwnNodeIsDrained(t *testing.T) {
	world(t)
	grant(t, "drain")
	addNodes(t, "pool=own", "own")
	agents(t, nil, "own")
	here := func(o *Options) { o.NodeName = "own" }
	first := run(t, newController(t, own(), leads, here))
	roll(t, "own", drains)
	select {
	case err := <-first:
		assert.That(t, errors.Is(err, errNotLeader) && strings.Contains(err.Error(), "node own, on which this controller runs, is being drained"),
			"it ended with: %v", err)
	case <-time.After(within):
		t.Fatal("it continues to lead")
	}

	d := drainOf(t, "own")
	assert.Must(t, d.HandedOver, "the Node records %+v", d)
	st := rolloutNamed(t, "own").Status
	assert.That(t, st.Nodes.Assigned+st.Nodes.Updated <= 0 && len(st.DrainingNodes) == 1, "the status is %+v", st)
	run(t, newController(t, own(), leads, here)) // on the same node: it does not hand over again
	awaitRollout(t, "own", completeAt(1))
	eventually(t, func() error {
		d := drainOf(t, "own")
		return assert.Unless(d == (rollout.Drain{}), "the node is drained: %+v", d)
	})
}

func TestTaintsOfDrainsThatNoRolloutEndsAreRemoved(t *testing.T) {
	world(t)
	grant(t, "drain")
	addNodes(t, "pool=orphans", "left", "unreadable")
	addNodes(t, "pool=others", "other")
	c := start(t, own())
	gone := rollout.Drain{Rollout: fleet.DrainID("gone"), Revision: 1, Attempt: 1, Since: time.Unix(1_800_000_000, 0)}
	for name, taint := range map[string]corev1.Taint{
		"left": fleet.DrainTaint(gone), "unreadable": {Key: v1alpha1.TaintDraining, Value: "by-hand", Effect: corev1.TaintEffectNoSchedule},
		"other": theirs,
	} {
		n := nodeNamed(t, name)
		n.Spec.Taints = append(n.Spec.Taints, taint)
		assert.NoError(t, admin.Update(t.Context(), n))
	}

	eventually(t, func() error {
		c.cleanUp(t.Context(), time.Now())
		for _, name := range []string{"left", "unreadable"} {
			if d := drainOf(t, name); d != (rollout.Drain{}) {
				return fmt.Errorf("%s records %+v", name, d)
			}
		}

		return nil
	})
	kept := slices.ContainsFunc(nodeNamed(t, "other").Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == theirs.Key })
	assert.That(t, kept, "the taint of somebody else is gone")
}

// TestTheNextPlanKnowsATaintBeforeTheWatch prevents that another node is
// drained in addition.
func TestTheNextPlanKnowsATaintBeforeTheWatch(t *testing.T) {
	world(t)
	grant(t, "drain")
	addNodes(t, "pool=late", "late")
	c := newController(t, own())
	stale := nodeNamed(t, "late")
	c.fleet.setNode(stale.DeepCopy())
	want := rollout.Drain{Rollout: fleet.DrainID("u"), Revision: 3, Attempt: 2, Since: time.Unix(1_800_000_000, 0).UTC()}
	assert.NoError(t, c.writeTaint(t.Context(), "late", want))
	for range 2 {
		assert.Equal(t, c.fleet.nodes["late"].observed.Drain, want, "the controller knows")
		c.fleet.setNode(stale.DeepCopy()) // a late watch
	}
}
