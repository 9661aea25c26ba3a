// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// TestFrequentAgentRestartsDoNotPreventAVerdict: monitoring may stop the unit
// because its kubelet is not healthy, and the stop also ends the count of
// unhealthy time.
func TestFrequentAgentRestartsDoNotPreventAVerdict(t *testing.T) {
	for name, c := range map[string]struct{ happens, stop, want string }{
		"never healthy, stopped":                                  {"unhealthy 45s", "sigterm", v1alpha1.ReasonNotHealthy},
		"never healthy, killed":                                   {"unhealthy 45s", "kill", v1alpha1.ReasonNotHealthy},
		"never Ready, stopped":                                    {"notready 45s", "sigterm", v1alpha1.ReasonNotReady},
		"never Ready, killed":                                     {"notready 45s", "kill", v1alpha1.ReasonNotReady},
		"the agent dies before its kubelet can be healthy":        {"unhealthy 8s", "kill", ""},
		"the agent is upgraded before its kubelet can be healthy": {"unhealthy 25s", "sigterm", ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNodeSim(t)
			n.do("node", "assign uid=u payload=p1")
			for range 20 {
				if n.do(c.happens); len(n.state.Bad) > 0 {
					break
				}

				n.do(c.stop, "start")
			}

			if c.want == "" && len(n.state.Bad) > 0 || c.want != "" && (len(n.state.Bad) != 1 || n.state.Bad[0].Failure != c.want) {
				t.Errorf("bad are %+v, want %q", n.state.Bad, c.want)
			}
		})
	}
}

func TestHealthResetsTheSavedUnhealthyTime(t *testing.T) {
	n := newNodeSim(t)
	n.do("node", "assign uid=u payload=p1")
	for range 5 {
		n.do("unhealthy 100s", "healthy 400s", "kill", "start")
		n.must(n.state.Run.Unhealthy == 0 && len(n.state.Bad) == 0, "it is remembered: %+v", n.state.Trial)
	}
}
