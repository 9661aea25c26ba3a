// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// TestOddTimesDoNotSilenceAnAgent plants a time of the year 10000 in the
// conditions of the NodeConfig and the Node, which the API server stores and
// refuses when it is written in UTC. The agent reports the same status, and an
// assignment of that time.
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
	r.Report(Report{Status: status, Condition: metav1.Condition{Status: "True", Reason: "Planted", Message: ""}, KubeletStart: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)})
	got := awaitStatus(t, node, "after it")
	sane := func(what string, at metav1.Time) {
		year := at.UTC().Year()
		assert.That(t, year > 1970 && year < 3000, "%s changed at %s", what, at.UTC())
	}
	sane("ConfigOK", got.Conditions[0].LastTransitionTime)
	c := await(t, "the condition of the Node", func() nodeCondition { return conditionOf(t, node) }, func(c nodeCondition) bool { return !c.LastTransitionTime.IsZero() })
	sane("ConfigOK of the Node", c.LastTransitionTime)
}

func TestAnAssignmentOfAnOddTimeCanBeRecorded(t *testing.T) {
	odd := metav1.NewTime(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))
	c := configOf(&v1alpha1.NodeConfigSource{ConfigMapRef: &v1alpha1.ConfigMapReference{UID: "u"}, RolloutRef: &v1alpha1.RolloutReference{Name: "r", AssignedAt: odd}})
	_, err := json.Marshal(c.Rollout.AssignedAt)
	assert.NoError(t, err)
	assert.Equal(t, c.Rollout.AssignedAt.Year(), 1970, "the year of the assignment")
}
