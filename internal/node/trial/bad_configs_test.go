// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// rejectable returns a configuration that the kubelet rejects.
func (n *nodeSim) rejectable(i int) Config {
	c := Config{Revision: fmt.Sprintf("rejected-%d", i), ConfigRevision: v1alpha1.ConfigRevision{UID: "rejected", SHA256: fmt.Sprintf("sha-rejected-%d", i)}}
	n.dryRuns[c.Revision] = Verdict{Outcome: Rejected, Message: "no"}
	return c
}

// assign assigns a configuration.
func (n *nodeSim) assign(c Config) {
	n.intent = Intent{Kind: Assigned, Config: c}
	n.converge()
}

// fails makes the configuration that runs bad for good.
func (n *nodeSim) fails() {
	c := n.state.Run.Config
	n.exit("exit status 1", true)
	n.pass(2 * time.Minute)
	b, bad := n.state.BadEntry(c)
	n.must(bad && !b.Provisional, "%s is not bad: %+v", c.Revision, n.state.Bad)
}

// TestBadEntryOfCurrentSurvivesManyRejections: current and last-known-good must
// not run again because the list of bad configurations is limited.
func TestBadEntryOfCurrentSurvivesManyRejections(t *testing.T) {
	n := newNodeSim(t)
	n.do("node threshold=0")
	n.assign(randomConfig(1, 0))
	n.fails()
	for i := range 3 * maxBad {
		n.assign(n.rejectable(i))
		n.must(n.state.Run.Config.IsLocal(), "after %d rejections it runs again: %+v", i+1, n.state.Run.Config)
	}

	newest, oldest := fmt.Sprintf("rejected-%d", 3*maxBad-1), fmt.Sprintf("rejected-%d", 2*maxBad+1)
	if bad := n.state.Bad; len(bad) != maxBad || bad[0].Revision != newest || !slices.ContainsFunc(bad, func(b BadConfig) bool { return b.Revision == oldest }) {
		t.Errorf("%d entries from %s on", len(bad), bad[0].Revision)
	}

	n.do("kill", "start")
	n.must(n.state.Run.Config.IsLocal(), "the next agent runs it again: %+v", n.state.Run.Config)
}

// TestBadEntryOfTheAssignedConfigSurvives: a verdict on what runs must not make
// room by forgetting the one on what is assigned.
func TestBadEntryOfTheAssignedConfigSurvives(t *testing.T) {
	n := newNodeSim(t)
	n.do("node threshold=0")
	n.assign(randomConfig(1, 0))
	n.fails()
	for i := range maxBad - 1 {
		n.assign(n.rejectable(i))
	}

	n.assign(randomConfig(2, 0))
	n.assign(randomConfig(1, 1)) // the same content as the first one
	n.fails()
	n.must(n.state.Run.Config.IsLocal() && !n.state.Current.Same(randomConfig(1, 1)), "the first one runs again: %+v", n.state.Run.Config)
	n.must(len(n.state.Bad) == maxBad, "%d entries", len(n.state.Bad))
}
