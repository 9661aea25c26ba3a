// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestOnlyNodesAssignedWaitsForTheMoves(t *testing.T) {
	w := fleet(3)
	r := w.plan()
	var given []string
	for _, m := range r.Moves {
		given = append(given, w.nodes[m.Node].Name)
	}

	about := slices.DeleteFunc(slices.Clone(r.Events), func(e Event) bool { return len(e.Assigned) == 0 })
	assert.Must(t, len(about) == 1 && len(given) == 3 && slices.Equal(about[0].Assigned, given) && len(r.Events) >= 2,
		"given to %v, and the events are %+v", given, r.Events)
	// A batch that took several plans is told as one.
	all := w.in.NodesAssigned(r.Next.Step, append(given, "n4"))
	want := "revision 1 was assigned to 4 nodes (step 0/1): n2, n3, n1, n4"
	assert.That(t, all.Reason == about[0].Reason && all.Message == want, "got %s: %s, want %s", all.Reason, all.Message, want)
}
