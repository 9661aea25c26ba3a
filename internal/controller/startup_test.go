// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

const startupKey = v1alpha1.TaintUnconfigured

// startups has a controller remove the startup taint, with these times.
func startups(grace, deadline time.Duration) func(*Options) {
	return func(o *Options) {
		o.Startup = StartupTaint{Key: startupKey, Times: rollout.StartupTimes{Grace: grace, Deadline: deadline}}
	}
}

var theirs = corev1.Taint{Key: "example.com/theirs", Effect: corev1.TaintEffectNoSchedule}

// taint has Nodes that register with the startup taint, between two others.
func taint(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		n := nodeNamed(t, name)
		n.Spec.Taints = []corev1.Taint{
			theirs, {Key: startupKey, Value: "true", Effect: corev1.TaintEffectNoSchedule}, {Key: startupKey, Effect: corev1.TaintEffectPreferNoSchedule},
		}
		assert.NoError(t, admin.Update(t.Context(), n))
	}
}

func isTainted(t *testing.T, name string) bool {
	t.Helper()
	return fleet.HasStartupTaint(nodeNamed(t, name), startupKey)
}

// awaitOpen waits until nodes have lost the startup taint and nothing else, and
// their Events say why.
func awaitOpen(t *testing.T, event string, names ...string) {
	t.Helper()
	for _, name := range names {
		eventually(t, func() error {
			if isTainted(t, name) {
				return fmt.Errorf("%s has the taint", name)
			}

			return told(t, name, event)
		})
		left := nodeNamed(t, name).Spec.Taints
		assert.That(t, len(left) == 2 && left[0] == theirs && left[1].Effect == corev1.TaintEffectPreferNoSchedule,
			"%s has the taints %+v", name, left)
	}
}

func TestANewNodeKeepsItsStartupTaintUntilItRunsItsConfiguration(t *testing.T) {
	world(t)
	grant(t, "startup-taint")
	addNodes(t, "pool=startup", "old")
	agents(t, nil, "old")
	c := start(t, own(), startups(time.Hour, 2*time.Hour))
	roll(t, "startup")
	awaitRollout(t, "startup", completeAt(1))
	<-time.After(time.Second) // creation times have whole seconds: only a younger node joins
	addNodes(t, "pool=startup", "new")
	taint(t, "new")
	eventually(t, func() error { // its agent creates its NodeConfig, and does not run the revision yet
		nc := &v1alpha1.NodeConfig{}
		if err := admin.Get(t.Context(), types.NamespacedName{Name: "new"}, nc); err != nil {
			return err
		}
		if nc.Spec.ConfigSource != nil {
			return nil
		}

		return errors.Join(answer(t.Context(), nc, false), errors.New("it is not assigned a revision"))
	})
	assert.Must(t, isTainted(t, "new"), "the taint is gone before the node runs its revision")
	agents(t, nil, "new")
	awaitOpen(t, "the node runs the configuration of rollout startup", "new")
	assert.Equal(t, series(t, c.registry, `evenkeel_startup_taints_removed_total{cause="configured"}`), " 1\n", "the metric counts")
}

func TestTheReasonOfARemovalIsReported(t *testing.T) {
	for why, want := range map[rollout.StartupRelease]string{
		rollout.ReleasedNothing:     "Normal StartupTaintRemoved removed the taint k: rollout r has no configuration for the node now",
		rollout.ReleasedNotSelected: "Normal StartupTaintRemoved removed the taint k: no rollout has selected the node within 1m0s",
		rollout.ReleasedAtDeadline: "Warning StartupDeadlineExceeded removed the taint k after 10m0s, although the node has not run the " +
			"configuration of its rollout: run kubectl evenkeel node n",
	} {
		recorder := events.NewFakeRecorder(1)
		c := &Controller{recorder: recorder, log: slog.New(slog.DiscardHandler)}
		c.startupTaint = StartupTaint{Key: "k", Times: rollout.StartupTimes{Grace: time.Minute, Deadline: 10 * time.Minute}}
		c.reportStartup(&corev1.Node{}, startupDue{name: "n", why: why, holds: "r"})
		assert.Equal(t, <-recorder.Events, want)
	}
}

func TestNoNodeIsHeldAfterTheDeadline(t *testing.T) {
	world(t)
	grant(t, "startup-taint")
	c := start(t, own(), startups(time.Second, 3*time.Second), func(o *Options) {
		o.AgentTimeout, o.NotReadyGrace = time.Second, time.Minute
	})
	roll(t, "silent", func(s *v1alpha1.NodeConfigRolloutSpec) { s.NewNodes = v1alpha1.NewNodesTarget })
	<-time.After(time.Second)            // creation times have whole seconds: only a younger node joins
	addNodes(t, "pool=silent", "silent") // without an agent
	taint(t, "silent")
	awaitOpen(t, "removed the taint "+startupKey+" after 3s, although the node has not run the configuration", "silent")
	assert.Equal(t, series(t, c.registry, `evenkeel_startup_taints_removed_total{cause="deadline"}`), " 1\n", "the metrics count")
}

func TestWithoutThePermissionTheControllerSaysSoOnce(t *testing.T) {
	world(t)
	addNodes(t, "pool=none", "held", "held-too")
	taint(t, "held", "held-too")
	var reviews atomic.Int64
	var granted atomic.Bool
	config := answering(func(r *http.Request, _ http.RoundTripper) (*http.Response, error) {
		if strings.Contains(r.URL.Path, "selfsubjectaccessreviews") {
			reviews.Add(1)
		}

		assert.That(t, r.Method != http.MethodPatch || !strings.Contains(r.URL.Path, "/nodes/") || granted.Load(),
			"it tried to patch %s", r.URL.Path)

		return nil, nil
	})
	c := newController(t, config, startups(0, time.Nanosecond))
	for _, name := range []string{"held", "held-too"} {
		c.fleet.setNode(nodeNamed(t, name))
	}

	for range 3 {
		next := c.releaseStartup(t.Context(), true)
		wait := next.Sub(c.fleet.now())
		assert.That(t, wait > 0 && wait <= permissionInterval, "it tries again after %s", wait)
	}

	assert.Equal(t, reviews.Load(), 1, "reviews of its permission")
	assert.That(t, strings.Contains(c.startupRights.said, "kubectl apply -k config/startup-taint"), "it said %q", c.startupRights.said)
	all, overdue := c.fleet.countStartup(0)
	assert.That(t, all == 2 && overdue == 2, "%d nodes have the taint, %d too long", all, overdue)
	granted.Store(true)
	grant(t, "startup-taint")
	eventually(t, func() error {
		c.startupRights.retry, c.startupRights.asked = time.Time{}, time.Time{}
		c.releaseStartup(t.Context(), true)
		if all, _ := c.fleet.countStartup(0); all != 0 {
			return errors.New(c.startupRights.said)
		}

		return nil
	})
	assert.Equal(t, c.startupRights.said, "", "it still")
}

func TestErrorsOfTheRemovalOfStartupTaints(t *testing.T) {
	world(t)
	grant(t, "startup-taint")
	addNodes(t, "pool=none", "torn")
	taint(t, "torn")
	var fail atomic.Value // of the requests, by their method
	fail.Store("")
	var patches atomic.Int64
	config := answering(func(r *http.Request, _ http.RoundTripper) (*http.Response, error) {
		what := fail.Load().(string)
		node, review := strings.HasSuffix(r.URL.Path, "/nodes/torn"), strings.Contains(r.URL.Path, "selfsubjectaccessreviews")
		if what == r.Method && node || what == "review" && review {
			return nil, errors.New("the connection was lost")
		}

		if r.Method == http.MethodPatch && node {
			if patches.Add(1); what == "moved" { // another taint is removed between read and write
				n := nodeNamed(t, "torn")
				n.Spec.Taints = append(n.Spec.Taints[1:], n.Spec.Taints[0])
				return nil, admin.Update(r.Context(), n)
			}
		}

		return nil, nil
	})
	c := newController(t, config, startups(0, time.Nanosecond))
	for _, tt := range []struct {
		what, want string
		patches    int64
	}{
		{"review", "ask whether this controller may patch nodes", 0},
		{http.MethodGet, "remove the taint " + startupKey + " of Node torn", 0},
		{http.MethodPatch, "remove the taint " + startupKey + " of Node torn", 0},
		{"moved", "", 5},
	} {
		c.fleet.setNode(nodeNamed(t, "torn"))
		patches.Store(0)
		fail.Store(tt.what)
		c.startupRights = startupRights{}
		c.releaseStartup(t.Context(), true)
		assert.That(t, strings.Contains(c.startupRights.said, tt.want) && c.startupRights.said != "",
			"%s: it said %q, want %q", tt.what, c.startupRights.said, tt.want)
		n := patches.Load()
		assert.That(t, tt.patches <= 0 || n == tt.patches, "%s: %d attempts, want %d", tt.what, n, tt.patches)
		assert.Must(t, isTainted(t, "torn"), "%s: the taint is gone", tt.what)
	}
}

func TestATaintIsNotRemovedFromAnotherNodeOfThatName(t *testing.T) {
	world(t)
	grant(t, "startup-taint")
	addNodes(t, "pool=none", "again", "gone", "open")
	taint(t, "again", "gone", "open")
	c := newController(t, own(), startups(0, time.Nanosecond))
	old := nodeNamed(t, "again").UID
	for _, name := range []string{"again", "gone", "open"} {
		c.fleet.setNode(nodeNamed(t, name))
		if name == "open" { // by a person
			n := nodeNamed(t, name)
			n.Spec.Taints = nil
			assert.NoError(t, admin.Update(t.Context(), n))
			continue
		}

		assert.NoError(t, admin.Delete(t.Context(), nodeNamed(t, name), client.GracePeriodSeconds(0)))
	}

	addNodes(t, "pool=none", "again")
	taint(t, "again")
	for range 2 {
		c.releaseStartup(t.Context(), true)
		assert.That(t, isTainted(t, "again") && c.startupRights.said == "", "the new Node has lost its taint, or: %s", c.startupRights.said)
		known := c.fleet.pair("again").Node.UID // what is known of the old Node's configuration is not about the new one
		assert.That(t, known == old, "the controller knows the Node %s", known)
	}

	for _, want := range []int{2, 1} { // the watch tells of the deleted ones
		all, _ := c.fleet.countStartup(0)
		assert.Equal(t, all, want, "nodes that have the taint")
		c.fleet.deleteNode("gone")
	}
}

// startsUp is a cache with a node of this age that has the startup taint.
func startsUp(now *time.Time, age time.Duration) *cache {
	f := cacheAt(now)
	f.startupKey, f.agent = startupKey, time.Minute
	f.setNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", CreationTimestamp: metav1.NewTime(now.Add(-age))},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: startupKey, Effect: corev1.TaintEffectNoSchedule}}}})

	return f
}

var startupTimes = rollout.StartupTimes{Grace: time.Minute, Deadline: 10 * time.Minute}

func TestOnlyTheDeadlineCountsWhileTheControllerDoesNotSeeEverything(t *testing.T) {
	now := then
	f := startsUp(&now, 5*time.Minute)
	due, next := f.dueStartup(startupTimes, false)
	assert.That(t, len(due) == 0 && next.Equal(now.Add(5*time.Minute)), "due: %v, next: %s", due, next)
	due, _ = f.dueStartup(startupTimes, true)
	assert.That(t, len(due) == 1 && due[0].why == rollout.ReleasedNotSelected, "due: %v", due)
	now = now.Add(5 * time.Minute)
	due, _ = f.dueStartup(startupTimes, false)
	assert.That(t, len(due) == 1 && due[0].why == rollout.ReleasedAtDeadline, "due: %v", due)
}

func TestTheStartupTaintWaitsForAgentsAfterAnOutage(t *testing.T) {
	now := then
	f := startsUp(&now, time.Hour)
	f.startup["n"].claims = []rollout.Claim{{}}
	f.endOutage(now.Add(-55 * time.Minute))
	due, next := f.dueStartup(startupTimes, true)
	assert.That(t, len(due) == 0 && next.Equal(now.Add(time.Minute)), "due are %v, the next at %s", due, next)
	now = now.Add(time.Minute)
	due, _ = f.dueStartup(startupTimes, true)
	assert.That(t, len(due) == 1 && due[0].why == rollout.ReleasedAtDeadline, "due are %v", due)
}
