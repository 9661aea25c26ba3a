// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestARequestFromTheFutureDelaysNoPreflight(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	n := Node{Name: "n", Ready: true, HasConfig: true, Reported: true, Preflight: Preflight{Asked: "u", AskedAt: now.AddDate(174, 0, 0)}}
	q := Inquiry{
		UID: "u", Now: now, Outages: seenSince(now.Add(-time.Hour)), Timeout: 5 * time.Minute, Room: 10,
		TakesPart: func(*Node) bool { return true }, Runs: func(*Node) bool { return false }, Busy: func(*Node) bool { return false },
	}
	r, ask, _ := q.Evaluate(now.Add(-time.Hour), []Node{n})
	assert.That(t, TimeOf(r.EndTime).Equal(now) && r.Unanswered == 1 && len(ask) == 0, "%+v, asks %v", r, ask)
	assert.That(t, !n.PreflightWaits(now, 5*time.Minute), "the request uses up the room of others")
}
