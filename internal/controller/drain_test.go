// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	n := &corev1.Node{}
	assert.NoError(t, admin.Get(t.Context(), types.NamespacedName{Name: node}, n))
	return fleet.DrainOf(n)
}

// crash is the crash of a controller at one of its writes.
type crash struct {
	at     int64 // the number of the write
	before bool  // the write does not reach the API server; otherwise its answer is lost
	writes atomic.Int64
	dead   chan struct{}
	is     atomic.Bool
}

var errCrashed = errors.New("the controller has crashed")

func (c *crash) wrap(next http.RoundTripper) http.RoundTripper {
	return tripper(func(r *http.Request) (*http.Response, error) {
		if c.is.Load() {
			return nil, errCrashed
		}

		write := r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events") && !strings.Contains(r.URL.Path, "/leases") &&
			!strings.Contains(r.URL.Path, "accessreviews")
		if !write || c.writes.Add(1) != c.at {
			return next.RoundTrip(r)
		}

		if !c.before {
			answer, err := next.RoundTrip(r)
			if err == nil {
				err = answer.Body.Close()
			}
			if err != nil {
				return nil, err
			}
		}

		c.is.Store(true)
		close(c.dead)

		return nil, errCrashed
	})
}

func TestAControllerThatEndsAtAnyWriteOfADrainLeavesNoTaintWithoutAStatus(t *testing.T) {
	world(t)
	grant(t, "drain")
	tainted := 0
	for at := int64(1); ; at++ {
		crashes := false
		for _, before := range []bool{true, false} {
			name := fmt.Sprintf("write-%d-%v", at, before)
			t.Run(name, func(t *testing.T) {
				addNodes(t, "pool="+name, name)
				agents(t, nil, name)
				roll(t, name, drains)
				k := &crash{at: at, before: before, dead: make(chan struct{})}
				config := own()
				config.WrapTransport = k.wrap
				c := start(t, config)
				done := func() error {
					st := rolloutNamed(t, name).Status
					if err := completeAt(1)(&st); err != nil {
						return err
					}
					if len(st.DrainingNodes) > 0 {
						return fmt.Errorf("the status lists %+v", st.DrainingNodes)
					}

					d := drainOf(t, name)

					return assert.Unless(d == (rollout.Drain{}), "the node is drained: %+v", d)
				}
				eventually(t, func() error {
					if k.is.Load() {
						return nil
					}

					return done()
				})
				crashes = crashes || k.is.Load()
				c.stop()
				if drainOf(t, name).Rollout != "" {
					tainted++
					if st := rolloutNamed(t, name).Status; len(st.DrainingNodes) != 1 || st.DrainingNodes[0].Name != name {
						t.Errorf("the node has the taint, and the status lists %+v", st.DrainingNodes)
					}
				}

				start(t, own())
				eventually(t, done)
			})
		}

		if t.Failed() || !crashes {
			break // there are no more writes
		}
	}

	if tainted < 4 { // at least before and after the assignment, and before the taint is removed
		t.Errorf("only %d controllers ended while the node had the taint", tainted)
	}
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
		"other": {Key: "example.com/theirs", Effect: corev1.TaintEffectNoSchedule},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		assert.NoError(t, admin.Get(t.Context(), client.ObjectKeyFromObject(n), n))
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
	n := &corev1.Node{}
	assert.NoError(t, admin.Get(t.Context(), types.NamespacedName{Name: "other"}, n))
	for _, taint := range n.Spec.Taints {
		if taint.Key == "example.com/theirs" {
			return
		}
	}

	t.Errorf("the taints of other are %+v", n.Spec.Taints)
}

// TestTheNextPlanKnowsATaintBeforeTheWatch prevents that another node is
// drained in addition.
func TestTheNextPlanKnowsATaintBeforeTheWatch(t *testing.T) {
	world(t)
	grant(t, "drain")
	addNodes(t, "pool=late", "late")
	c := newController(t, own())
	stale := &corev1.Node{}
	assert.NoError(t, admin.Get(t.Context(), types.NamespacedName{Name: "late"}, stale))
	c.fleet.setNode(stale.DeepCopy())
	want := rollout.Drain{Rollout: fleet.DrainID("u"), Revision: 3, Attempt: 2, Since: time.Unix(1_800_000_000, 0).UTC()}
	assert.NoError(t, c.writeTaint(t.Context(), "late", want))
	for range 2 {
		assert.Equal(t, c.fleet.nodes["late"].observed.Drain, want, "the controller knows")
		c.fleet.setNode(stale.DeepCopy()) // a late watch
	}
}
