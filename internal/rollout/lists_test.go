// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// Lists of names are cut at their limit, and a complete one does not look cut.
func TestListsAreCutAtTheirLimit(t *testing.T) {
	for name, c := range map[string]struct {
		limit int
		list  func(n int) (all, cut string) // how both would look
	}{
		"names": {5, func(n int) (string, string) {
			var names []string
			for i := range n {
				names = append(names, fmt.Sprint(i))
			}

			return joinNames(names), "0, 1, 2, 3, 4, ..."
		}},
		"failed nodes of a result": {v1alpha1.MaxFailedNodes, func(n int) (string, string) {
			w := fleet(20)
			for i := range n {
				w.assigned(w.nodes[i].Name)
				w.judge("False", v1alpha1.ReasonCrashLooped, w.nodes[i].Name)
			}

			return fmt.Sprint(len(w.plan().Next.FailedNodes)), "10"
		}},
		"nodes that are drained": {v1alpha1.MaxFailedNodes, func(n int) (string, string) {
			w := fleet(20)
			w.in.Spec.Strategy.Drain = v1alpha1.DrainAlways
			w.assigned()
			for i := range n {
				w.drains(w.nodes[i].Name, 1)
				w.nodes[i].DrainReport = nil
			}

			w.in.Spec.Strategy.MaxUnavailable = number(0) // no other drain begins

			return fmt.Sprint(len(w.plan().Next.DrainingNodes)), "10"
		}},
		"nodes whose drain begins": {v1alpha1.MaxFailedNodes, func(n int) (string, string) {
			w := fleet(n)
			w.in.Spec.Strategy.Drain = v1alpha1.DrainAlways
			return fmt.Sprint(len(w.plan().Next.DrainingNodes)), "10"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			all, _ := c.list(c.limit)
			assert.That(t, !strings.Contains(all, "..."),
				"%d look cut: %s", c.limit, all)
			if all, cut := c.list(c.limit + 1); all != cut {
				t.Errorf("%d are %s, want %s", c.limit+1, all, cut)
			}
		})
	}
}

func TestAComparisonHoldsAsItsOperatorSays(t *testing.T) {
	for operator, want := range map[string][3]bool{ // below, at, and above the number
		"<": {true, false, false}, "<=": {true, true, false}, ">": {false, false, true}, ">=": {false, true, true},
		"==": {false, true, false}, "!=": {true, false, true},
	} {
		c := Comparison{operator, 2}
		assert.Equal(t, [3]bool{c.Holds(1), c.Holds(2), c.Holds(3)}, want, "1, 2 and 3", c)
		if !c.Holds(c.example()) {
			t.Errorf("%v is no example of %s", c.example(), c)
		}
	}
}
