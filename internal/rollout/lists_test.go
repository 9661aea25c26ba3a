// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// Lists of names are cut at their limit, and a complete one does not look cut.
func TestListsAreCutAtTheirLimit(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f"}
	assert.Equal(t, joinNames(names[:5]), "a, b, c, d, e")
	assert.Equal(t, joinNames(names), "a, b, c, d, e, ...")
	for name, listed := range map[string]func(n int) int{
		"nodes that failed": func(n int) int {
			w := fleet(20)
			for i := range n {
				w.assigned(w.nodes[i].Name)
				w.judge("False", v1alpha1.ReasonCrashLooped, w.nodes[i].Name)
			}

			return len(w.plan().Next.FailedNodes)
		},
		"nodes that are drained": func(n int) int {
			w := fleet(20)
			w.assigned()
			w.in.Spec.Strategy.Drain, w.in.Spec.Strategy.MaxUnavailable = v1alpha1.DrainAlways, number(0) // no other drain begins
			for i := range n {
				w.drains(w.nodes[i].Name, 1)
				w.nodes[i].DrainReport = nil
			}

			return len(w.plan().Next.DrainingNodes)
		},
		"nodes whose drain begins": func(n int) int {
			w := fleet(n)
			w.in.Spec.Strategy.Drain = v1alpha1.DrainAlways
			return len(w.plan().Next.DrainingNodes)
		},
	} {
		assert.Equal(t, listed(v1alpha1.MaxFailedNodes), v1alpha1.MaxFailedNodes, name)
		assert.Equal(t, listed(v1alpha1.MaxFailedNodes+1), v1alpha1.MaxFailedNodes, name)
	}
}

func TestAComparisonHoldsAsItsOperatorSays(t *testing.T) {
	for operator, want := range map[string][3]bool{ // below, at, and above the number
		"<": {true, false, false}, "<=": {true, true, false}, ">": {false, false, true}, ">=": {false, true, true},
		"==": {false, true, false}, "!=": {true, false, true},
	} {
		c := Comparison{operator, 2}
		assert.Equal(t, [3]bool{c.Holds(1), c.Holds(2), c.Holds(3)}, want, "1, 2 and 3", c)
		assert.That(t, c.Holds(c.example()), "%v is no example of %s", c.example(), c)
	}
}
