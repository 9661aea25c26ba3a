// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

var changed = time.Unix(1_000_000, 0)

// some are nodes of a zone that received a revision of workers at the same
// time; 0: they run a local configuration.
func some(n int, zone string, revision int64, with ...func(*NodeHealth)) (out []NodeHealth) {
	for range n {
		h := NodeHealth{Zone: zone}
		if revision > 0 {
			h.Rollout, h.Revision, h.Assigned = "workers", revision, changed
		}

		for _, f := range with {
			f(&h)
		}

		out = append(out, h)
	}

	return out
}

// pool is the rollout of these nodes.
var pool = v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "workers", CreationTimestamp: metav1.NewTime(changed.Add(-time.Hour))},
	Spec: v1alpha1.NodeConfigRolloutSpec{NodeSelection: v1alpha1.NodeSelection{NodeSelector: v1alpha1.Selector{MatchLabels: map[string]string{"pool": "workers"}}}}}

// outside makes it a node of another pool, that another rollout configured long
// ago.
func outside(h *NodeHealth) {
	h.Rollout, h.Revision, h.Assigned, h.Node = "others", 3, changed.Add(-100*time.Hour), &corev1.Node{}
}

// born makes it a node that was created so long after the change, and that
// received the revision when it joined.
func born(after time.Duration) func(*NodeHealth) {
	return func(h *NodeHealth) {
		h.First, h.Assigned, h.Node = true, changed.Add(after+time.Minute), &corev1.Node{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(changed.Add(after))}}
	}
}

// waits makes it a node of the pool that no rollout has configured yet.
func waits(h *NodeHealth) {
	h.Node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": "workers"}}}
}

// down makes a node not Ready, so long after the change.
func down(after time.Duration) func(*NodeHealth) {
	return func(h *NodeHealth) { h.Symptom, h.Since = "not Ready", changed.Add(after) }
}

func TestAChangeOfHealthIsConnectedWithTheRevisionThatTheNodesHaveInCommon(t *testing.T) {
	join := slices.Concat[[]NodeHealth]
	for _, tt := range []struct {
		name  string
		nodes []NodeHealth
		want  []string
	}{
		{"all is well", join(some(50, "a", 7), some(50, "a", 6)), nil},
		{"only nodes with the revision", join(some(50, "a", 7, down(3*time.Minute)), some(10, "a", 7), some(240, "a", 6)),
			[]string{"50 of 300 nodes are not Ready; all 50 run workers/7, received at most 3m earlier"}},
		{"two canaries of 300", join(some(2, "a", 7, down(time.Hour)), some(298, "a", 6)), []string{"2 of 300 nodes are not Ready; all 2 run workers/7, received at most 1h earlier"}},
		{"one canary says nothing", join(some(1, "a", 7, down(time.Hour)), some(299, "a", 6)), nil},
		{"two of 150 can be chance", join(some(2, "a", 7, down(time.Hour)), some(148, "a", 7), some(150, "a", 6)), nil},
		{"a zone outage hits both revisions", join(some(30, "a", 7, down(time.Hour)), some(20, "a", 6, down(time.Hour+time.Minute)), some(100, "b", 7), some(100, "b", 6)), nil},
		{"an outage of a zone beside a bad revision", join(some(30, "a", 7, down(time.Hour)), some(30, "a", 6, down(time.Hour)), some(20, "b", 7, down(time.Hour)), some(20, "b", 6)),
			[]string{"80 of 100 nodes are not Ready; for 20 of them the cause may be workers/7, received at most 1h earlier"}},
		{"a zone in which all nodes run the revision, while others with it are well", join(some(50, "a", 7, down(time.Hour)), some(50, "b", 7), some(50, "c", 7)), nil},
		{"all nodes of all zones run it: less is said", join(some(10, "a", 7, down(time.Hour)), some(40, "a", 7), some(9, "b", 7, down(2*time.Hour)), some(41, "b", 7)),
			[]string{"19 of 100 nodes became not Ready within 2h after they received workers/7; too few nodes run something else to compare"}},
		{"all nodes run it, and a few are down", join(some(4, "a", 7, down(time.Hour)), some(96, "a", 7), some(100, "b", 7)), nil},
		{"a cluster without zones in which all nodes run it", join(some(3, "", 7, down(time.Minute)), some(3, "", 7)),
			[]string{"3 of 6 nodes became not Ready within 1m after they received workers/7; too few nodes run something else to compare"}},
		{"two of three nodes", join(some(2, "", 7, down(time.Minute)), some(1, "", 7)), nil},
		{"unhealthy before the change", join(some(50, "a", 7, down(-time.Minute)), some(50, "a", 6)), nil},
		{"more than a day after the change", join(some(50, "a", 7, down(25*time.Hour)), some(50, "a", 6)), nil},
		{"nodes without the revision that went down long before say nothing", join(some(50, "a", 7, down(time.Hour)), some(50, "a", 6, down(-10*time.Hour)), some(50, "a", 6)),
			[]string{"100 of 150 nodes are not Ready; for 50 of them the cause may be workers/7, received at most 1h earlier"}},
		{"a local configuration is suspected of nothing", join(some(50, "a", 0, down(time.Hour)), some(50, "a", 6)), nil},
		{"two canaries of the first revision", join(some(2, "a", 7, down(time.Hour)), some(298, "a", 0, waits)), []string{"2 of 300 nodes are not Ready; all 2 run workers/7, received at most 1h earlier"}},
		{"a failure of one pool is not compared with another pool", join(some(10, "a", 7, down(time.Hour)), some(90, "a", 7), some(200, "a", 3, outside)),
			[]string{"10 of 300 nodes became not Ready within 1h after they received workers/7; too few nodes run something else to compare"}},
		{"two nodes of a pool beside another pool", join(some(2, "a", 7, down(time.Hour)), some(8, "a", 7), some(290, "a", 3, outside)), nil},
		{"an outage that hits two pools", join(some(50, "a", 7, down(time.Hour)), some(50, "a", 3, outside, down(time.Hour)), some(100, "b", 7)), nil},
		{"new nodes of a pool that never become Ready", join(some(20, "a", 7, born(time.Hour), down(2*time.Hour)), some(80, "a", 6)), nil},
		{"new nodes of a pool in which all run it", join(some(20, "a", 7, born(time.Hour), down(2*time.Hour)), some(80, "a", 7)), nil},
		{"a change of nodes that joined before", join(some(20, "a", 7, born(-time.Minute), func(h *NodeHealth) { h.First, h.Assigned = false, changed }, down(time.Hour)), some(80, "a", 6)),
			[]string{"20 of 100 nodes are not Ready; all 20 run workers/7, received at most 1h earlier"}},
		{"two symptoms", join(some(5, "a", 7, down(time.Hour)), some(5, "a", 7, func(h *NodeHealth) { h.Symptom, h.Since = "under memory pressure", changed.Add(time.Minute) }), some(90, "a", 6)), []string{
			"5 of 100 nodes are not Ready; all 5 run workers/7, received at most 1h earlier", "5 of 100 nodes are under memory pressure; all 5 run workers/7, received at most 1m earlier"}},
	} {
		var got []string
		for _, s := range suspicions(tt.nodes, []v1alpha1.NodeConfigRollout{pool}) {
			got = append(got, s.String())
		}

		assert.Equal(t, fmt.Sprintf("%q", got), fmt.Sprintf("%q", tt.want), tt.name)
	}
}

// In a fleet of any size in which nodes fail at random, a revision is suspected
// about as often as the threshold says.
func TestFailuresAtRandomSuspectNoRevision(t *testing.T) {
	wrong := 0
	const fleets = 300
	for seed := range fleets {
		var nodes []NodeHealth
		x := uint32(seed*7919 + 1)
		random := func(n uint32) uint32 { x = x*1664525 + 1013904223; return x >> 8 % n }
		for i := range 300 {
			n := some(1, fmt.Sprint("zone-", i%3), 6+int64(i%2))[0]
			if random(50) == 0 { // 2%
				down(time.Duration(random(86400)) * time.Second)(&n)
			}

			nodes = append(nodes, n)
		}

		wrong += len(suspicions(nodes, nil))
	}

	assert.That(t, wrong <= 3*fleets/100, "%d suspicions in %d fleets", wrong, fleets)
}

func TestUndoIsOfferedOnlyIfItGoesBackFromThatRevision(t *testing.T) {
	before := v1alpha1.RolloutOutcome{Revision: 6, ConfigMap: "workers-6", SHA256: "6", Outcome: v1alpha1.OutcomeSucceeded}
	r := v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "workers"}}
	r.Status.UpdateRevision, r.Status.History = &v1alpha1.RolloutRevision{Number: 7}, []v1alpha1.RolloutOutcome{before}
	next := func(nodes []NodeHealth, r v1alpha1.NodeConfigRollout) string {
		return SummaryOf(Situation{Healths: nodes, Rollouts: []v1alpha1.NodeConfigRollout{r}})[0].Next
	}
	nodes := append(some(50, "a", 7, down(time.Minute)), some(50, "a", 6)...)
	assert.Equal(t, next(nodes, r), "kubectl evenkeel rollout undo workers", "compared")
	const look = "kubectl evenkeel nodes --rollout workers --problems"
	assert.Equal(t, next(nodes[:50], r), look, "not compared")
	failed := *r.DeepCopy() // after its success: undo refuses it
	failed.Status.History = append([]v1alpha1.RolloutOutcome{{Revision: 6, ConfigMap: "workers-6", SHA256: "6", Outcome: v1alpha1.OutcomeHalted}}, before)
	failed.Status.History[1].Revision = 5
	assert.Equal(t, next(nodes, failed), look, "it was stopped later")
	other := *r.DeepCopy()
	other.Status.UpdateRevision.Number = 8
	assert.Equal(t, next(nodes, other), look, "another target")
	first := *r.DeepCopy()
	first.Status.History = nil
	assert.Equal(t, next(nodes, first), look, "nothing to go back to")
}

func TestTheSymptomAndTheRevisionOfANode(t *testing.T) {
	at := func(minutes int) metav1.Time {
		return metav1.NewTime(changed.Add(time.Duration(minutes) * time.Minute))
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelTopologyZone: "a"}}}
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: at(1)}, {Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue, LastTransitionTime: at(2)},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionUnknown, LastTransitionTime: at(9)},
	}
	nc := &v1alpha1.NodeConfig{}
	ref := &v1alpha1.ConfigMapReference{Namespace: "ns", Name: "workers-7", UID: "uid"}
	nc.Spec.ConfigSource = &v1alpha1.NodeConfigSource{ConfigMapRef: ref, RolloutRef: &v1alpha1.RolloutReference{Name: "workers", Revision: 7, AssignedAt: at(0)}}
	nc.Status.Active = &v1alpha1.ConfigRevision{UID: "uid"}
	nc.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDeadEnd, LastTransitionTime: at(3)}}
	runs := NodeHealth{Suspect: Suspect{Rollout: "workers", Revision: 7}, Zone: "a", Assigned: at(0).Time, First: true}
	check := func(name, symptom string, minutes int) {
		t.Helper()
		stripped, config := node.DeepCopy(), nc.DeepCopy() // as the controller and the page keep them
		fleet.StripNode(stripped)
		fleet.StripNodeConfig(config)
		want := runs
		want.Symptom, want.Since = symptom, at(minutes).Time
		for _, p := range []fleet.Pair{{Node: node, Config: nc}, {Node: stripped, Config: config}} {
			got, ok := nodeHealthOf(p, nil, at(10).Time)
			want.Node = p.Node
			assert.That(t, ok && got == want, "%s: got %+v, want %+v", name, got, want)
		}
	}
	check("pressure", "under memory pressure", 2)
	node.Status.Conditions[1].Status = corev1.ConditionFalse
	check("a dead end", "in a crash loop of the kubelet", 3)
	node.Status.Conditions[0].Status = corev1.ConditionUnknown
	check("not Ready", "not Ready", 1)
	nc.Status.Active.UID = types.UID("another")
	got, ok := nodeHealthOf(fleet.Pair{Node: node, Config: nc}, nil, at(10).Time)
	assert.That(t, ok && got.Rollout == "", "a node that runs another configuration: %+v", got)
	counts := func(p fleet.Pair, when time.Time) bool {
		_, ok := nodeHealthOf(p, nil, when)
		return ok
	}
	assert.That(t, !counts(fleet.Pair{Node: node, Config: nc}, at(1).Add(59*time.Second)), "a symptom of 59 seconds counts")
	assert.That(t, !counts(fleet.Pair{Config: nc}, at(10).Time), "a NodeConfig without a Node counts")
	nc.Status.Trial = &v1alpha1.Trial{}
	assert.That(t, !counts(fleet.Pair{Node: node, Config: nc}, at(10).Time), "a node on trial counts")
	nc.Status.Trial, node.Spec.Unschedulable = nil, true
	assert.That(t, !counts(fleet.Pair{Node: node, Config: nc}, at(10).Time), "a cordoned node counts")
}
