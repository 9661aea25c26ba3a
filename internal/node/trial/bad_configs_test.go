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

// TestBadEntryOfCurrentSurvivesManyRejections: current and last-known-good must
// not run again because the list of bad configurations is limited.
func TestBadEntryOfCurrentSurvivesManyRejections(t *testing.T) {
	n := newNodeSim(t)
	n.healthy, n.limits.CrashLoopThreshold = true, 0
	n.start()
	n.intent = Intent{Kind: Assigned, Config: randomConfig(1, 0)}
	n.converge()
	n.exit("exit status 1", true)
	n.pass(2 * time.Minute)
	if b, bad := n.state.BadEntry(randomConfig(1, 0)); !bad || b.Provisional {
		t.Fatalf("it is not bad: %+v", n.state.Bad)
	}

	for i := range 3 * maxBad {
		c := Config{Revision: fmt.Sprintf("rejected-%d", i), ConfigRevision: v1alpha1.ConfigRevision{UID: "rejected", SHA256: fmt.Sprintf("sha-rejected-%d", i)}}
		n.dryRuns[c.Revision] = Verdict{Outcome: Rejected, Message: "no"}
		n.intent = Intent{Kind: Assigned, Config: c}
		n.converge()
		if !n.state.Run.Config.IsLocal() {
			t.Fatalf("after %d rejections it runs again: %+v", i+1, n.state.Run.Config)
		}
	}

	newest, oldest := fmt.Sprintf("rejected-%d", 3*maxBad-1), fmt.Sprintf("rejected-%d", 2*maxBad+1)
	if bad := n.state.Bad; len(bad) != maxBad || bad[0].Revision != newest || !slices.ContainsFunc(bad, func(b BadConfig) bool { return b.Revision == oldest }) {
		t.Errorf("%d entries from %s on", len(bad), bad[0].Revision)
	}

	n.kill()
	n.start()
	if !n.state.Run.Config.IsLocal() {
		t.Errorf("the next agent runs it again: %+v", n.state.Run.Config)
	}
}

// TestBadEntryOfTheAssignedConfigSurvives: a verdict on what runs must not make
// room by forgetting the one on what is assigned.
func TestBadEntryOfTheAssignedConfigSurvives(t *testing.T) {
	n := newNodeSim(t)
	n.healthy, n.limits.CrashLoopThreshold = true, 0
	n.start()
	fails := func(c Config) {
		t.Helper()
		n.exit("exit status 1", true)
		n.pass(2 * time.Minute)
		if b, bad := n.state.BadEntry(c); !bad || b.Provisional {
			t.Fatalf("%s is not bad: %+v", c.Revision, n.state.Bad)
		}
	}
	n.intent = Intent{Kind: Assigned, Config: randomConfig(1, 0)}
	n.converge()
	fails(randomConfig(1, 0))
	for i := range maxBad - 1 {
		c := Config{Revision: fmt.Sprintf("rejected-%d", i), ConfigRevision: v1alpha1.ConfigRevision{UID: "rejected", SHA256: fmt.Sprintf("sha-rejected-%d", i)}}
		n.dryRuns[c.Revision] = Verdict{Outcome: Rejected, Message: "no"}
		n.intent = Intent{Kind: Assigned, Config: c}
		n.converge()
	}

	n.intent = Intent{Kind: Assigned, Config: randomConfig(2, 0)}
	n.converge()
	n.intent = Intent{Kind: Assigned, Config: randomConfig(1, 1)} // the same content as the first one
	n.converge()
	fails(randomConfig(2, 0))
	if !n.state.Run.Config.IsLocal() || n.state.Current.Same(randomConfig(1, 1)) {
		t.Errorf("the first one runs again: %+v", n.state.Run.Config)
	}
	if len(n.state.Bad) != maxBad {
		t.Errorf("%d entries", len(n.state.Bad))
	}
}
