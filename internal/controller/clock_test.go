// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheClockIsSetToTheAPIServersTime(t *testing.T) {
	for name, off := range map[string]time.Duration{"an hour behind": time.Hour, "an hour ahead": -time.Hour, "right": 0} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Date", time.Now().Add(off).UTC().Format(http.TimeFormat))
				w.WriteHeader(http.StatusForbidden) // a refusal has the time, too
			}))
			defer server.Close()
			at := assert.Value(serverTime(t.Context(), server.Client(), &rest.Config{Host: server.URL}))(t)
			c := newClock()
			got := c.set(at)
			assert.That(t, (got-off).Abs() <= clockTolerance, "it was off by %s, want %s", got, off)
			got = time.Until(c.now())
			assert.That(t, (got-off).Abs() <= 2*clockTolerance, "it is %s ahead of the machine's, want %s", got, off)
		})
	}
}

func TestAnAnswerWithoutADateIsAnError(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header()["Date"] = nil }))
	config := &rest.Config{Host: server.URL}
	assert.ErrorHas(t, assert.Err(serverTime(t.Context(), server.Client(), config)), "the API server's answer has no date")
	server.Close()
	assert.ErrorHas(t, assert.Err(serverTime(t.Context(), server.Client(), config)), "read the API server's time", "without an API server")
}

func TestARolloutsTimeNeverGoesBack(t *testing.T) {
	now := then
	f := cacheAt(&now)
	o := everywhere()
	f.setRollout(o)
	ahead := func() time.Duration { return f.offsetOf(f.rollouts["r"]) }
	assert.Equal(t, ahead(), 0, "without a record")
	o.Status.StepTime = new(metav1.NewTime(then.Add(-time.Hour)))
	assert.Equal(t, ahead(), 0, "after an older time")
	o.Status.StepTime = new(metav1.NewTime(then.Add(time.Hour)))
	assert.Equal(t, ahead(), time.Hour, "after a time in an hour")
	o.Status.StepTime = nil
	node, nc := proven("n", assignedBy(then.Add(fleet.MaxAhead)), "")
	f.setNode(node)
	f.setConfig(nc)
	assert.Equal(t, ahead(), fleet.MaxAhead, "after an assignment in a minute")
}

// assignedBy is what rollout r assigned at this time.
func assignedBy(at time.Time) *v1alpha1.NodeConfigSource {
	return &v1alpha1.NodeConfigSource{
		ConfigMapRef: &v1alpha1.ConfigMapReference{Namespace: "s", Name: "c", UID: "u1", SHA256: "s1"},
		RolloutRef:   &v1alpha1.RolloutReference{Name: "r", Revision: 1, Attempt: 1, AssignedAt: metav1.NewTime(at)},
	}
}

// proven is a node that has proven what assignedBy returns. mark is its
// observation.
func proven(name string, source *v1alpha1.NodeConfigSource, mark string) (*corev1.Node, *v1alpha1.NodeConfig) {
	runs := v1alpha1.ConfigRevision{UID: "u1", SHA256: "s1"}
	nc := &v1alpha1.NodeConfig{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), Generation: 1, Annotations: map[string]string{v1alpha1.AnnotationObserved: mark},
		},
		Spec: v1alpha1.NodeConfigSpec{ConfigSource: source},
		Status: v1alpha1.NodeConfigStatus{
			ObservedGeneration: 1, AgentVersion: "v1", Active: &runs, LastKnownGood: &v1alpha1.LastKnownGoodConfig{ConfigRevision: runs},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionTrue, Reason: "R"}},
		},
	}

	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(then.Add(-time.Hour))},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}, nc
}

// TestForgedRecordsMoveNoClock gives one of two nodes records that no
// controller can have written. The clock of the rollout stays, the other node
// still soaks, and the state of the first one says what was ignored.
func TestForgedRecordsMoveNoClock(t *testing.T) {
	future := metav1.NewTime(time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC))
	const observed = "the annotation evenkeel.dev/observed"
	mark := func(forged string) string { return `{"rollout":"r","revision":1,"attempt":1,` + forged + `}` }
	for name, tt := range map[string]struct {
		mark    string
		edit    func(*v1alpha1.RolloutReference)
		ignored string
	}{
		"soaked in 2200":        {mark(`"fineSince":"2200-01-01T00:00:00Z"`), nil, observed},
		"soaked in 2 minutes":   {mark(`"fineSince":"` + then.Add(2*time.Minute).UTC().Format(time.RFC3339) + `"`), nil, observed},
		"in an odd year":        {mark(`"fineSince":"9999-12-31T23:59:59-23:59"`), nil, observed},
		"blocked in 2200":       {mark(`"blockedAt":"2200-01-01T00:00:00Z"`), nil, observed},
		"maintained in 2200":    {mark(`"maintenance":{"ended":"2200-01-01T00:00:00Z"}`), nil, observed},
		"a negative time":       {mark(`"maintenance":{"total":-3600000000000}`), nil, observed},
		"failed in attempt max": {mark(`"failedInAttempt":9223372036854775807`), nil, observed},
		"no observation":        {`{`, nil, observed},
		"assigned in 2200":      {"", func(r *v1alpha1.RolloutReference) { r.AssignedAt = future }, "the time of its rolloutRef"},
		"revision max":          {"", func(r *v1alpha1.RolloutReference) { r.Revision = 1<<63 - 1 }, "its rolloutRef"},
		"attempt max":           {"", func(r *v1alpha1.RolloutReference) { r.Attempt = 1<<63 - 1 }, "its rolloutRef"},
		"term max":              {"", func(r *v1alpha1.RolloutReference) { r.Term = 1<<63 - 1 }, "its rolloutRef"},
	} {
		t.Run(name, func(t *testing.T) {
			f := cacheAt(&then)
			o := everywhere()
			o.Spec.SoakSeconds = 3600
			f.setRollout(o)
			forged := assignedBy(then.Add(-time.Hour))
			if tt.edit != nil {
				tt.edit(forged.RolloutRef)
			}

			see := func(node *corev1.Node, nc *v1alpha1.NodeConfig) { f.setNode(node); f.setConfig(nc) }
			see(proven("a", assignedBy(then.Add(-time.Hour)), mark(`"fineSince":"`+then.Add(-time.Minute).UTC().Format(time.RFC3339)+`"`)))
			see(proven("b", forged, tt.mark))
			f.endOutage(time.Time{})
			assert.Equal(t, f.offsetOf(f.rollouts["r"]), 0, "the clock is ahead")
			for _, number := range f.objectsOf(o).Assigned {
				assert.That(t, number == 1, "a node was assigned revision %d", number)
			}

			in := fleet.Build(fleet.Objects{Rollout: o, Settings: fleet.DefaultSettings, Now: then})
			in.Invalid, in.Target = "", v1alpha1.RolloutRevision{Number: 1, ConfigMapRef: *assignedBy(then).ConfigMapRef}
			in.Status = v1alpha1.NodeConfigRolloutStatus{UpdateRevision: &v1alpha1.RolloutRevision{Number: 1}, Attempt: 1}
			in.Outages = f.outages
			nodes, _ := f.planNodes(f.rollouts["r"], 0, nil)
			result := rollout.Plan(in, nodes)
			assert.Equal(t, result.States[0], rollout.Soaking, "the other node is")
			assert.That(t, result.States[1] == rollout.Soaking || result.States[1] == rollout.Manual, "the node is %s", result.States[1])
			said := result.NodeState(1).Message
			assert.That(t, strings.HasSuffix(said, "ignored, because the controller did not write it: "+tt.ignored), "the state says %q", said)
		})
	}
}

func TestNotReadyBeginsWhenTheControllerSeesIt(t *testing.T) {
	now := then
	f := cacheAt(&now)
	see := func(status corev1.ConditionStatus, at time.Time) time.Time {
		f.setNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(at)},
		}}})
		return f.nodes["n"].observed.WentNotReady
	}
	assert.Equal(t, see(corev1.ConditionTrue, then.Add(-time.Hour)), time.Time{}, "a node that is Ready went NotReady at")
	now = then.Add(time.Minute)
	for _, at := range []time.Time{then.AddDate(-10, 0, 0), then.AddDate(1000, 0, 0)} {
		assert.Equal(t, see(corev1.ConditionFalse, at), then.Add(time.Minute), "it went NotReady at")
		now = now.Add(time.Minute)
	}

	assert.Equal(t, see(corev1.ConditionUnknown, now), then.Add(time.Minute), "NotReady in another way it went so at")
	see(corev1.ConditionTrue, now)
	assert.Equal(t, see(corev1.ConditionFalse, then), now, "again, it went NotReady at")
	for status, want := range map[corev1.ConditionStatus]time.Time{corev1.ConditionFalse: now, corev1.ConditionUnknown: then} { // as it is first seen
		f.deleteNode("n")
		assert.Equal(t, see(status, then), want, status, "as it is first seen: it went NotReady at")
	}

	f.deleteNode("n")
	assert.Equal(t, see(corev1.ConditionUnknown, now.Add(time.Hour)), now, "Unknown in the future: it went NotReady at")
}

// TestNodeClocksDoNotChangePlans shows nodes to two controllers, each time with
// other times where a node writes them: from clocks that are hours off, go
// back, or are in another century. What is planned with is the same.
func TestNodeClocksDoNotChangePlans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawnFleet{T: t, now: then, settings: fleet.DefaultSettings, rollouts: make([]v1alpha1.NodeConfigRollout, 1)}
		o := &d.rollouts[0]
		o.Name, o.UID, o.Spec.AllNodes = "r", "rollout-r", true
		d.drawRevisions()
		d.drawStatus(&o.Status)
		lead := func() *cache {
			f := cacheAt(&d.now)
			f.setRollout(o.DeepCopy())
			return f
		}
		see := func(f *cache, clock func() metav1.Time) []rollout.Node {
			for _, n := range d.nodes {
				n = n.DeepCopy()
				for i := range n.Status.Conditions {
					if c := &n.Status.Conditions[i]; c.Status != corev1.ConditionUnknown { // which the control plane writes
						c.LastTransitionTime = clock()
					}
				}

				f.setNode(n)
			}

			for _, nc := range d.configs {
				nc = nc.DeepCopy()
				st := &nc.Status
				if st.LastKnownGood != nil {
					st.LastKnownGood.Since = new(clock())
				}
				if st.Trial != nil {
					st.Trial.StartTime = new(clock())
				}

				for i := range st.Conditions {
					st.Conditions[i].LastTransitionTime = clock()
				}

				for i := range st.BadConfigs {
					st.BadConfigs[i].Time = new(clock())
				}

				f.setConfig(nc)
			}

			nodes, _ := f.planNodes(f.rollouts["r"], 0, nil)

			return nodes
		}
		a, b := lead(), lead()
		for range d.number(5, 40, "passes") {
			if d.chance(10, "another leader") {
				a, b = lead(), lead()
			}

			d.nodes, d.configs = nil, nil
			d.drawNode(fmt.Sprint("node-", d.number(0, 3, "node")))
			if len(d.configs) == 1 && d.chance(2, "observed") {
				d.configs[0].Annotations = map[string]string{v1alpha1.AnnotationObserved: fmt.Sprintf(
					`{"rollout":"r","revision":%d,"attempt":1,"fineSince":%q}`, d.number(1, contents, "of"), d.ago("fine").UTC().Format(time.RFC3339))}
			}
			if d.chance(3, "NotReady") {
				d.nodes[0].Status.Conditions[0].Status = corev1.ConditionFalse
			}

			right := see(a, func() metav1.Time { return metav1.NewTime(d.now) })
			wrong := see(b, func() metav1.Time {
				return metav1.NewTime(rapid.SampledFrom([]time.Time{
					d.now.Add(time.Duration(d.number(-7200, 7200, "seconds off")) * time.Second), then.Add(then.Sub(d.now)),
					time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
				}).Draw(t, "clock"))
			})
			if diff := cmp.Diff(right, wrong); diff != "" {
				t.Fatalf("with right clocks (-), with wrong ones (+):\n%s", diff)
			}

			d.now = d.now.Add(time.Duration(d.number(1, 90, "seconds")) * time.Second)
		}
	})
}

// TestAMoveReplacesOnlyTheSpecOfItsPlan changes a spec between the plan and the
// write, as kubectl evenkeel assign does.
func TestAMoveReplacesOnlyTheSpecOfItsPlan(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	planned := fleet.NodeOf(node, config("10", 1, ""))
	c := &Controller{fleet: newCache("", time.Second)}
	c.fleet.setNode(node)
	c.fleet.setConfig(config("11", 2, ""))
	assert.Is(t, c.moveNode(t.Context(), &planned, rollout.Move{Kind: rollout.TakeBack}, nil), errConflict)
}

// seenNode is a Node as a watch has it. Its clock is wrong.
func seenNode(ready, cordoned bool, conditions ...corev1.NodeConditionType) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Unschedulable: cordoned}}
	status := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[ready]
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(then.AddDate(10, 0, 0))}}
	for _, c := range conditions {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(then.AddDate(-10, 0, 0))})
	}

	return n
}

func TestMaintenanceBeginsWhenTheControllerSeesIt(t *testing.T) {
	now := then
	f := cacheAt(&now)
	cordoned, notReady, later := then.Add(time.Minute), then.Add(time.Minute+300*time.Millisecond), then.Add(5*time.Minute)
	for _, tt := range []struct {
		what  string
		at    time.Duration
		node  *corev1.Node
		under string
		since time.Time // when maintenance began
		went  time.Time // NotReady
	}{
		{"at rest", 0, seenNode(true, false), "", time.Time{}, time.Time{}},
		{"cordoned", time.Minute, seenNode(true, true), rollout.Cordoned, cordoned, time.Time{}},
		{"drained", time.Minute + 300*time.Millisecond, seenNode(false, false, corev1.NodeDrained), "condition Drained", cordoned, notReady},
		{"at an end", 2 * time.Minute, seenNode(false, false), "", time.Time{}, notReady},
		{"cordoned again", 3 * time.Minute, seenNode(false, true), rollout.Cordoned, then.Add(3 * time.Minute), notReady},
		{"created again", 4 * time.Minute, seenNode(true, true), rollout.Cordoned, then.Add(4 * time.Minute), time.Time{}},
		// A leader that sees a node for the first time does not know what came
		// first, unless the node's observation says so.
		{"first seen", 5 * time.Minute, seenNode(false, true, corev1.NodeMaintenanceInProgress), rollout.Cordoned, later, later},
	} {
		if now = then.Add(tt.at); tt.at > 3*time.Minute { // the cache does not know the Node
			f.deleteNode("n")
		}

		f.setNode(tt.node)
		n := f.nodes["n"].observed
		assert.That(t, n.Maintenance == tt.under && n.MaintenanceSince.Equal(tt.since) && n.WentNotReady.Equal(tt.went),
			"%s: it is seen under maintenance %q since %s, and went NotReady at %s", tt.what, n.Maintenance, n.MaintenanceSince, n.WentNotReady)
	}
}

// Within one second, too, the order counts: a health check may cordon a node as
// soon as it is NotReady.
func TestACordonJustAfterNotReadyComesAfterIt(t *testing.T) {
	now := then
	f := cacheAt(&now)
	f.setRollout(everywhere())
	for _, n := range []*corev1.Node{seenNode(true, false), seenNode(false, false), seenNode(false, true)} {
		f.setNode(n)
		now = now.Add(200 * time.Millisecond)
	}

	nodes, _ := f.planNodes(f.rollouts["r"], 0, nil)
	assert.That(t, !nodes[0].MaintenanceSince.Before(nodes[0].WentNotReady),
		"maintenance began at %s, NotReady at %s", nodes[0].MaintenanceSince, nodes[0].WentNotReady)
}
