// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// TestFrequentAgentRestartsDoNotPreventAVerdict: monitoring may stop the unit
// because its kubelet is not healthy, and the stop also ends the count of
// unhealthy time.
func TestFrequentAgentRestartsDoNotPreventAVerdict(t *testing.T) {
	for _, c := range []struct {
		name      string
		unhealthy func(n *nodeSim)
		stop      func(n *nodeSim)
		every     time.Duration
		want      string
	}{
		{"never healthy, stopped", func(n *nodeSim) { n.healthy = false }, (*nodeSim).sigterm, 45 * time.Second, v1alpha1.ReasonNotHealthy},
		{"never healthy, killed", func(n *nodeSim) { n.healthy = false }, (*nodeSim).kill, 45 * time.Second, v1alpha1.ReasonNotHealthy},
		{"never Ready, stopped", func(n *nodeSim) { n.node.Ready = false }, (*nodeSim).sigterm, 45 * time.Second, v1alpha1.ReasonNotReady},
		{"never Ready, killed", func(n *nodeSim) { n.node.Ready = false }, (*nodeSim).kill, 45 * time.Second, v1alpha1.ReasonNotReady},
		{"the agent dies before its kubelet can be healthy", func(n *nodeSim) { n.healthy = false }, (*nodeSim).kill, 8 * time.Second, ""},
		{"the agent is upgraded before its kubelet can be healthy", func(n *nodeSim) { n.healthy = false }, (*nodeSim).sigterm, 25 * time.Second, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNodeSim(t)
			n.healthy = true
			n.start()
			n.intent = Intent{Kind: Assigned, Config: randomConfig(1, 0)}
			n.converge()
			c.unhealthy(n)
			for range 20 {
				n.pass(c.every)
				if len(n.state.Bad) > 0 {
					break
				}

				c.stop(n)
				n.start()
			}

			if c.want == "" && len(n.state.Bad) > 0 || c.want != "" && (len(n.state.Bad) != 1 || n.state.Bad[0].Failure != c.want) {
				t.Errorf("bad are %+v, want %q", n.state.Bad, c.want)
			}
		})
	}
}

func TestHealthResetsTheSavedUnhealthyTime(t *testing.T) {
	n := newNodeSim(t)
	n.healthy = true
	n.start()
	n.intent = Intent{Kind: Assigned, Config: randomConfig(1, 0)}
	n.converge()
	for range 5 {
		n.healthy = false
		n.pass(100 * time.Second)
		n.healthy = true
		n.pass(400 * time.Second)
		n.kill()
		n.healthy = false
		n.start()
		n.must(n.state.Run.Unhealthy == 0 && len(n.state.Bad) == 0, "it is remembered: %+v", n.state.Trial)
	}
}
