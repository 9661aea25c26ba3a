// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// series returns the series of a registry whose texts have a prefix, without
// that, one a line.
func series(t *testing.T, registry prometheus.Gatherer, prefix string) string {
	t.Helper()
	var all bytes.Buffer
	for _, family := range assert.Value(registry.Gather())(t) {
		assert.NoError(t, assert.Err(expfmt.MetricFamilyToText(&all, family)))
	}

	var out strings.Builder
	for line := range strings.Lines(all.String()) {
		if rest, is := strings.CutPrefix(line, prefix); is {
			out.WriteString(rest)
		}
	}

	return out.String()
}

func TestTheMetricSaysWhenTheNextWindowOpens(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := assert.Value(newMeters(registry, "v", "c"))(t)
	const name = "evenkeel_rollout_next_window_timestamp_seconds"
	opens := time.Date(2030, 1, 1, 21, 0, 0, 0, time.UTC)
	m.report("workers", &rollout.Result{Next: v1alpha1.NodeConfigRolloutStatus{NextWindowTime: new(metav1.NewTime(opens))}})
	assert.Equal(t, series(t, registry, name), fmt.Sprintf("{rollout=%q} %v\n", "workers", float64(opens.Unix())), "before the window")
	m.report("workers", &rollout.Result{})
	assert.Equal(t, series(t, registry, name), "{rollout=\"workers\"} 0\n", "in the window")
	m.forget("workers")
	assert.Equal(t, series(t, registry, name), "", "of a deleted rollout")
}

func TestTheCollectorCountsNodesByConfigOKAndDueRollouts(t *testing.T) {
	f := newCache("", time.Second)
	now := time.Now()
	f.now = func() time.Time { return now }
	for name, c := range map[string]*metav1.Condition{
		"fine-1": {Status: "True", Reason: v1alpha1.ReasonAllChecksPassed},
		"fine-2": {Status: "True", Reason: v1alpha1.ReasonAllChecksPassed},
		"back":   {Status: "False", Reason: v1alpha1.ReasonCrashLooped},
		"new":    {Status: "False", Reason: "OfALaterAgent"},
		"liar":   {Status: "False", Reason: "Made42Up"},
		"mute":   nil,
	} {
		f.setNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if c != nil {
			c.Type = v1alpha1.ConditionConfigOK
			nc.Status.Conditions = []metav1.Condition{*c}
		}

		f.setConfig(nc)
	}

	f.setNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare"}})
	f.setConfig(&v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "left"}}) // its Node has gone
	for name, due := range map[string]time.Duration{"late": -3 * time.Second, "later": -time.Second, "soon": time.Second} {
		f.rollouts[name] = &rolloutEntry{name: name, dueAt: now.Add(due)}
	}

	f.rollouts["idle"] = &rolloutEntry{name: "idle"}

	counts, due, overdue := f.countNodes()
	want := map[configOK]int{
		{"True", "AllChecksPassed"}: 2, {"False", "CrashLooped"}: 1, {"False", "other"}: 2, {"None", "NoAgent"}: 2,
	}
	assert.That(t, maps.Equal(counts, want), "counted %v, want %v", counts, want)
	assert.That(t, due == 2 && overdue == 3, "%d rollouts wait, the first for %gs, want 2 and 3s", due, overdue)
}

// What the metric counts has the words and numbers of doctor and the page.
func TestTheMetricCountsWhatNeedsAPerson(t *testing.T) {
	f, now := newCache("", 0), time.Unix(1_000_000, 0)
	f.now = func() time.Time { return now }
	changed := metav1.NewTime(now.Add(-time.Hour))
	assigned := v1alpha1.NodeConfigSource{ConfigMapRef: &v1alpha1.ConfigMapReference{UID: "uid"},
		RolloutRef: &v1alpha1.RolloutReference{Name: "workers", Revision: 7, AssignedAt: changed}}
	for i := range 20 {
		meta := metav1.ObjectMeta{Name: fmt.Sprint("n", i)}
		ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: changed}
		nc := &v1alpha1.NodeConfig{ObjectMeta: meta, Status: v1alpha1.NodeConfigStatus{AgentVersion: "v1",
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionTrue}}}}
		switch {
		case i < 5:
			ready.Status, ready.LastTransitionTime = corev1.ConditionUnknown, metav1.NewTime(now.Add(-time.Minute))
			nc.Spec.ConfigSource, nc.Status.Active = &assigned, &v1alpha1.ConfigRevision{UID: "uid"}
		case i == 9: // healthy, and too late
			nc.Spec.ConfigSource = &v1alpha1.NodeConfigSource{RolloutRef: assigned.RolloutRef}
		}

		f.setNode(&corev1.Node{ObjectMeta: meta, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready}}})
		f.setConfig(nc)
	}

	f.setConfig(&v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "gone"}})
	r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "workers"}}
	r.Spec.AllNodes, r.Spec.Frozen, r.Status.Phase = true, true, v1alpha1.RolloutRollingBack
	r.Status.UpdateRevision = &v1alpha1.RolloutRevision{Number: 7}
	r.Status.FailedNodes = []v1alpha1.FailedNode{{Name: "n1", Reason: "NotReady"}, {Name: "n9", Reason: "Timeout"}, {Name: "removed", Reason: "Timeout"}}
	f.setRollout(r)
	f.agent = time.Minute
	registry, none := prometheus.NewRegistry(), &problems{}
	assert.NoError(t, registry.Register(newCollector(f, 0, none, none)))
	want := `{level="problem",reason="NodesFailed",rollout=""} 1
{level="problem",reason="NodesNotReady",rollout=""} 5
{level="problem",reason="RevisionSuspected",rollout="workers"} 5
{level="problem",reason="RolloutsRollingBackFrozen",rollout=""} 1
`
	assert.Equal(t, series(t, registry, "evenkeel_attention"), want)
}
