// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheRolloutWithPrecedenceHasTheNode(t *testing.T) {
	old, young := epoch, epoch.Add(time.Hour)
	flying := Node{Source: given("b", v1alpha1.RolloutRevision{}, time.Time{}), Generation: 2, Observed: 1}
	settled := flying
	settled.Observed = 2
	for _, tt := range []struct {
		name   string
		claims []Claim
		node   Node
		want   string
	}{
		{"nobody selects it", nil, Node{}, ""},
		{"the higher priority", []Claim{{"a", 0, old}, {"b", 1, young}}, Node{}, "b"},
		{"then the older", []Claim{{"a", 1, young}, {"b", 1, old}}, Node{}, "b"},
		{"then by name", []Claim{{"b", 1, old}, {"a", 1, old}}, Node{}, "a"},
		{"a node in flight is not taken away", []Claim{{"a", 9, old}, {"b", 0, young}}, flying, "b"},
		{"one that has landed is", []Claim{{"a", 9, old}, {"b", 0, young}}, settled, "a"},
		{"one in flight for who does not select it any more is", []Claim{{"a", 9, old}, {"c", 0, young}}, flying, "a"},
	} {
		assert.Equal(t, Holder(tt.claims, &tt.node), tt.want, tt.name)
	}
}

func TestANodeRejectsItsAssignmentOnlyInAnAnswerToIt(t *testing.T) {
	for name, c := range map[string]struct {
		change func(n *Node)
		want   bool
	}{
		"it rejects it":                {func(*Node) {}, true},
		"it has not answered yet":      {func(n *Node) { n.Observed-- }, false},
		"for another reason":           {func(n *Node) { n.Reason = v1alpha1.ReasonInconclusive }, false},
		"it accepts it":                {func(n *Node) { n.OK = "True" }, false},
		"no rollout assigned it":       {func(n *Node) { n.Source = &v1alpha1.NodeConfigSource{ConfigMapRef: n.Source.ConfigMapRef} }, false},
		"an older answer was the same": {func(n *Node) { n.Observed, n.OK = 1, "Unknown" }, false},
	} {
		w := fleet(1)
		w.assigned("n1")
		n := w.node("n1")
		n.OK, n.Reason, n.InTrial = "Unknown", v1alpha1.ReasonStaleAssignment, false
		c.change(n)
		assert.Equal(t, n.stale(), c.want, name)
		got := n.inFlight()
		assert.That(t, got == (n.Source.By().Name != "" && (c.want || n.Observed != n.Generation)), "%s: in flight: %t", name, got)
	}
}
