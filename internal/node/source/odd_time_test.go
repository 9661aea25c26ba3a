package source

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// TestOddTimesDoNotSilenceAnAgent plants a time of the year 10000 in the conditions of the NodeConfig and the Node, which the API server
// stores and refuses when it is written in UTC. The agent reports the same status, and odd times of its own records.
func TestOddTimesDoNotSilenceAnAgent(t *testing.T) {
	const odd = "9999-12-31T23:59:59-23:59"
	node := newName("node")
	setSpec(t, node, map[string]any{})
	createNode(t, node)
	planted := []map[string]any{{"type": v1alpha1.ConditionConfigOK, "status": "True", "reason": "Planted", "message": "", "lastTransitionTime": odd}}
	asAdmin(t, request{verb: "PATCH", gv: v1alpha1.GroupVersion, resource: "nodeconfigs", name: node, subresource: "status",
		contentType: string(types.MergePatchType), body: map[string]any{"status": map[string]any{"conditions": planted}}})
	asAdmin(t, request{verb: "PATCH", gv: coreV1, resource: "nodes", name: node, subresource: "status",
		contentType: string(types.StrategicMergePatchType), body: map[string]any{"status": map[string]any{"conditions": planted}}})
	p := newProxy(t, node)
	r := NewReporter(newClient(t, p.Kubeconfig), node, "evenkeel-agent", quiet())
	background(t, r.Run)
	status := someStatus("after it")
	year := func(y int) *metav1.Time { return new(metav1.NewTime(time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC))) }
	status.Assigned = &v1alpha1.AssignedConfig{RolloutRef: &v1alpha1.RolloutReference{Name: "r", Revision: 1, Attempt: 1, AssignedAt: *year(10000)}}
	status.LastKnownGood = &v1alpha1.LastKnownGoodConfig{Since: year(10000)}
	status.Trial = &v1alpha1.Trial{StartTime: year(1900)}
	status.BadConfigs = []v1alpha1.BadConfig{{UID: "u", Time: year(10000)}}
	r.Report(Report{Status: status, Condition: NodeCondition{"True", "Planted", ""}, KubeletStart: year(10000).Time})
	got := awaitStatus(t, node, "after it")
	recent := func(what string, at metav1.Time) {
		assert.That(t, time.Since(at.Time).Abs() < time.Hour, "%s changed at %s", what, at.UTC())
	}
	recent("ConfigOK", got.Conditions[0].LastTransitionTime)
	assert.Equal(t, got.Assigned.RolloutRef.AssignedAt.UTC().Year(), 2999, "the assignment")
	assert.Equal(t, got.Trial.StartTime.UTC().Year(), 1970, "the trial")
	c := await(t, "the condition of the Node", func() nodeCondition { return conditionOf(t, node) }, func(c nodeCondition) bool { return !c.LastTransitionTime.IsZero() })
	recent("ConfigOK of the Node", c.LastTransitionTime)
}
