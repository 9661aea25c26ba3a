// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// holdByGate adds a gate that fails, and stops nothing yet.
func (w *world) holdByGate() {
	g := gate("errors", "< 1", time.Minute)
	g.Every, g.Failures = v1alpha1.GateAlways, 5
	w.in.Spec.Strategy.Gates = []v1alpha1.RolloutGate{g}
	w.in.Status.Gates = []v1alpha1.GateStatus{{Name: "errors", State: v1alpha1.GateFailing, Value: "2", Time: apiTime(epoch), Failures: 1}}
}

// drains has a node be drained for revision 1 since the beginning, and its pods
// be gone.
func (w *world) drains(name string, attempt int64) {
	n := w.node(name)
	n.Drain, n.DrainReport = Drain{Rollout: w.in.DrainID, Revision: 1, Attempt: attempt, Since: epoch}, &DrainReport{Time: epoch}
}

func TestWhichMeasurementsCount(t *testing.T) {
	for name, c := range map[string]struct {
		always bool
		since  time.Duration // when the step was done; 0: it is not
		at     time.Duration
		change func(m *Measurement)
		want   bool
	}{
		"always":                      {true, 0, time.Minute, nil, true},
		"always, not later":           {true, 0, 10 * time.Second, nil, false},
		"always, before the attempt":  {true, 0, -time.Second, nil, false},
		"before the step is done":     {false, 0, time.Minute, nil, false},
		"when the step was done":      {false, time.Minute, time.Minute, nil, true},
		"just before that":            {false, time.Minute, time.Minute - time.Second, nil, false},
		"of another gate":             {true, 0, time.Minute, func(m *Measurement) { m.Gate = "alerts" }, false},
		"of another server":           {true, 0, time.Minute, func(m *Measurement) { m.Server = "other" }, false},
		"of the query before an edit": {true, 0, time.Minute, func(m *Measurement) { m.Query = "other" }, false},
	} {
		g := gate("errors", "< 1", time.Minute)
		if c.always {
			g.Every = v1alpha1.GateAlways
		}

		is := v1alpha1.GateStatus{Name: "errors", Time: apiTime(epoch.Add(10 * time.Second))}
		d := newPlanner(Input{Status: v1alpha1.NodeConfigRolloutStatus{AttemptTime: apiTime(epoch)}}, nil)
		if c.since > 0 {
			d.GatesSince = epoch.Add(c.since)
		}

		m := Measurement{Gate: "errors", Server: "main", Query: "errors", Time: epoch.Add(c.at)}
		if c.change != nil {
			c.change(&m)
		}

		assert.Equal(t, d.applies(&g, &is, &m), c.want, name)
	}
}

// Nodes that joined with another rollout, or do not use their NodeConfig any
// more, take no place of those that join with this one.
func TestOnlyNodesOfTheRolloutUseUpMaxJoining(t *testing.T) {
	for name, c := range map[string]struct {
		change func(n *Node)
		want   int
	}{
		"it joins with this rollout":      {func(*Node) {}, 1},
		"another rollout has it":          {func(n *Node) { n.Owner = "zone" }, 2},
		"it has its own ConfigMap":        {func(n *Node) { n.OtherSource = "ConfigMap" }, 2},
		"another rollout assigned it":     {func(n *Node) { n.Source.By().Name, n.Observation.Rollout = "zone", "zone" }, 2},
		"it went back to local":           {func(n *Node) { n.Source.ConfigMapRef, n.Source.Local = nil, &v1alpha1.LocalSource{} }, 2},
		"it did not join":                 {func(n *Node) { n.Observation.Joined = false }, 2},
		"it has proven the configuration": {func(n *Node) { n.LastKnownGood = n.Active; n.InTrial = false }, 2},
	} {
		w := newcomers(4)
		for i := range w.nodes {
			w.nodes[i].Idle = false
		}

		w.assigned("n2")
		n := w.node("n2")
		w.succeed()
		n.Source.By().AssignedAt.Time = w.now
		n.Observation = Observation{Rollout: "workers", Revision: 1, Attempt: 1, Joined: true}
		c.change(n)
		joins := slices.DeleteFunc(w.plan().Moves, func(m Move) bool { return m.Kind != Join })
		assert.Equal(t, len(joins), c.want, name, "nodes join")
	}
}
