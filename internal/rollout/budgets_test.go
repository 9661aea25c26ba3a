// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// unreadyFor is how long a start of the kubelet makes pods unready.
const unreadyFor = 20 * time.Second

// setPods puts pods with probes on a node.
func (w *world) setPods(node, budget string, pods int) {
	if w.pods[node] == nil {
		w.pods[node] = map[string]int{}
	}

	w.pods[node][budget] = pods
	w.node(node).Disrupts = true
}

// unready counts the pods of a PodDisruptionBudget that are not Ready now: on
// nodes that are NotReady, or whose kubelet has just been started.
func (w *world) unready(budget string) (n int) {
	for i := range w.nodes {
		if w.podsUnready(&w.nodes[i]) {
			n += w.pods[w.nodes[i].Name][budget]
		}
	}

	return n
}

func (w *world) podsUnready(n *Node) bool {
	a := w.agents[n.Name]
	return !n.Ready || !a.started.IsZero() && w.now.Before(a.started.Add(unreadyFor))
}

// decide plans, and reads what the plan asks for until it asks for nothing
// more.
func (w *world) decide() Result {
	w.settlePlanes()
	for {
		r := Plan(w.in, w.nodes)
		w.readStatic(r.ReadStatic)
		if !r.ReadBudgets && len(r.ReadStatic) == 0 {
			return r
		}
		if !r.ReadBudgets {
			continue
		}
		if w.inspections++; len(r.Inspect) > maxInspected {
			panic("it reads the pods of too many nodes")
		}

		if w.unserved {
			w.in.Budgets = Budgets{Time: w.now, Error: "not served"}
			continue
		}

		w.in.Budgets = Budgets{Time: w.now, Allowed: map[string]int{}}
		for budget, most := range w.disruptable {
			w.in.Budgets.Allowed[budget] = max(0, most-w.unready(budget))
		}

		for _, i := range r.Inspect {
			n := &w.nodes[i]
			n.Disruptions = &Disruptions{Time: w.now}
			if w.forbidden {
				n.Disruptions.Error = "forbidden"
				continue
			}

			n.Disruptions.Pods = maps.Clone(w.pods[n.Name])
		}
	}
}

// randomBudgets gives some worlds PodDisruptionBudgets and pods.
func (w *world) randomBudgets(t *rapid.T) {
	if w.in.Spec.Strategy.Drain == v1alpha1.DrainAlways {
		return // its pods are evicted before
	}
	if w.in.RespectBudgets = rapid.Bool().Draw(t, "respect budgets"); !w.in.RespectBudgets {
		return
	}

	for _, budget := range []string{"web", "db"} {
		w.disruptable[budget] = rapid.IntRange(0, 4).Draw(t, "allowed")
		for i := range w.nodes {
			if rapid.Bool().Draw(t, "runs it") {
				w.setPods(w.nodes[i].Name, budget, rapid.IntRange(1, 3).Draw(t, "pods"))
			}
		}
	}
}

// keepsBudgets counts the pods that can be unready at a time after nodes were
// assigned the target: on nodes that are NotReady, that have just restarted, or
// that may restart because they have not proven it.
func (w *world) keepsBudgets(t *rapid.T, r Result, old []Node) {
	p := &w.in
	if !p.RespectBudgets {
		return
	}

	for _, m := range r.Moves {
		if n := &old[m.Node]; m.Kind != Assign || n.Drain.Rollout != "" || n.Source.Content().SHA256 == m.Source.Content().SHA256 && n.Source.By().Name == p.Name {
			continue
		}

		for budget := range w.pods[w.nodes[m.Node].Name] {
			pods := 0
			for _, n := range each(w.nodes) {
				of := !foreign(n) && w.hasTarget(n)
				failed := n.Observed == n.Generation && n.OK == "False" && n.Reason != "WouldEvictPods" || n.Ready && !w.now.Before(n.Source.By().AssignedAt.Time.Add(seconds(p.Spec.NodeTimeoutSeconds)+n.TrialLength))
				read := p.Budgets.Time // later, only what the rollout does can be known
				down := !n.Ready && !n.WentNotReady.After(read) || n.Ready && w.podsUnready(n) && !w.agents[n.Name].started.After(read)
				if down || of && !w.provenTarget(n) && !failed && n.Disrupts {
					pods += w.pods[n.Name][budget]
				}
			}

			assert.Must(t, pods <= w.disruptable[budget], "%s gets the target: %d pods of %s may be unready then, %d are allowed",
				w.nodes[m.Node].Name, pods, budget, w.disruptable[budget])
		}
	}
}

func TestOnlyAFewNodesAreReadAtATime(t *testing.T) {
	w := fleet(200)
	w.in.RespectBudgets = true
	w.disruptable["web"], w.disruptable["db"] = 0, 1
	for i := range w.nodes {
		w.setPods(w.nodes[i].Name, "web", 1)
	}

	last := w.nodes[199].Name
	delete(w.pods[last], "web")
	w.pods[last]["db"] = 1
	r := w.plan()
	assert.That(t, len(r.Moves) == 1 && w.nodes[r.Moves[0].Node].Name == last, "it assigns %d nodes, want %s", len(r.Moves), last)
	read := w.inspections
	for range 30 { // the others are known to wait: only the budgets are read
		w.now = w.now.Add(budgetsValid)
		w.act()
		w.in.Now = w.now
		r := Plan(w.in, w.nodes)
		assert.Must(t, len(r.Inspect) == 0, "it reads the pods of %d nodes", len(r.Inspect))
		w.plan()
	}

	assert.That(t, read <= 20 && w.inspections-read <= 30, "it read %d times, then %d times in 5 minutes", read, w.inspections-read)
}
