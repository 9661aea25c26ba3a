package rollout

import (
	"fmt"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// Lists of names in messages and results are cut at their limit, and a complete one does not look cut.
func TestListsAreCutAtTheirLimit(t *testing.T) {
	fail := func(w *world, number int) {
		for i := range number {
			w.assigned(w.nodes[i].Name)
			w.judge("False", agentCrashLooped, w.nodes[i].Name)
		}
	}
	for name, c := range map[string]struct {
		limit int
		list  func(number int) (all, cut string) // how both would look
	}{
		"names": {5, func(number int) (string, string) {
			var names []string
			for i := range number {
				names = append(names, fmt.Sprint(i))
			}
			return JoinNames(names), "0, 1, 2, 3, 4 and 1 more"
		}},
		"failed nodes of a stop": {3, func(number int) (string, string) {
			w := fleet(6)
			w.policy.MaxFailures = Amount{}
			fail(w, number)
			_, examples, _ := strings.Cut(w.plan().Next.Halt.Message, "): ")
			return examples, "n1 CrashLooped, n2 CrashLooped, n3 CrashLooped, ..."
		}},
		"blocked nodes": {3, func(number int) (string, string) {
			w := fleet(number)
			for i := range number {
				w.assigned(w.nodes[i].Name)
				w.judge("False", agentEvicts, w.nodes[i].Name)
			}
			_, names, _ := strings.Cut(w.plan().Message, "blocked by pods: ")
			names, _, _ = strings.Cut(names, ":")
			return names, "n1 WouldEvictPods, n2 WouldEvictPods, n3 WouldEvictPods, ..."
		}},
		"nodes that failed after they joined": {3, func(number int) (string, string) {
			w := newcomers(number)
			w.policy.MaxJoining, w.policy.MaxFailures = &Amount{Value: 9}, Amount{Value: 1}
			w.plan()
			for i := range number {
				n := &w.nodes[i+1]
				n.Observed, n.OK, n.Reason = n.Generation, "False", agentCrashLooped
			}
			_, names, _ := strings.Cut(w.plan().Message, "(limit 1): ")
			names, _, _ = strings.Cut(names, ";")
			return names, "n2 CrashLooped, n3 CrashLooped, n4 CrashLooped, ..."
		}},
		"failed nodes of a result": {MostFailed, func(number int) (string, string) {
			w := fleet(20)
			fail(w, number)
			return fmt.Sprint(w.plan().Failed), "[0 1 2 3 4 5 6 7 8 9]"
		}},
		"nodes that are drained": {MostFailed, func(number int) (string, string) {
			w := fleet(20)
			w.policy.Drain = DrainAlways
			w.assigned()
			for i := range number {
				w.drains(w.nodes[i].Name, 1)
				w.nodes[i].DrainReport = nil
			}
			w.policy.MaxUnavailable = Amount{} // no other drain begins
			return fmt.Sprint(w.plan().Draining), "[0 1 2 3 4 5 6 7 8 9]"
		}},
		"nodes whose drain begins": {MostFailed, func(number int) (string, string) {
			w := fleet(number)
			w.policy.Drain = DrainAlways
			return fmt.Sprint(len(w.plan().Draining)), "10"
		}},
		"a node's message": {300, func(number int) (string, string) {
			return truncate(strings.Repeat("é", number)), strings.Repeat("é", 300) + "…"
		}},
		"an error of a gate": {maxGateError, func(number int) (string, string) {
			return shortened(strings.Repeat("é", number), maxGateError), strings.Repeat("é", maxGateError) + "…"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			all, _ := c.list(c.limit)
			assert.That(t, !strings.Contains(all, "...") && !strings.Contains(all, "…") && !strings.Contains(all, "more"),
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
