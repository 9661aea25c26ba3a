package controller

import (
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheCollectorCountsNodesByConfigOKAndDueRollouts(t *testing.T) {
	f := newFleet("", time.Second)
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
