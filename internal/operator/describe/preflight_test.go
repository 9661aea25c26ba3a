// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAPreflightIsGroupedByReason(t *testing.T) {
	r := &v1alpha1.PreflightResult{
		Accepted: 4988, Refused: 9, Blocked: 1, Unknown: 1, Unanswered: 1200,
		Groups: []v1alpha1.PreflightGroup{
			{Verdict: "Refused", Reason: "ValidationFailed", Message: "maxPods\x1b is wrong", Nodes: 7, Examples: []string{"n1", "n2"}},
			{Verdict: "Refused", Reason: "ProtectedFields", Message: "port", Nodes: 2, Examples: []string{"n3", "n4"}},
			{Verdict: "Refused", Reason: "NeedsDrain", Message: "cpu_manager_state", Nodes: 1, Examples: []string{"n5"}},
			{Verdict: "Accepted", Message: "changes maxPods: 110 -> 120", Nodes: 4000, Examples: []string{"n0"}},
			{Verdict: "Unknown", Reason: "CouldNotValidate", Message: "the runtime is down", Nodes: 1, Examples: []string{"n6"}},
		},
		UnansweredNodes: []string{"n7", "n8", "n9"},
	}
	want := []string{
		"4,988 nodes accept",
		"  4,000 (n0, ...): changes maxPods: 110 -> 120",
		"9 nodes refuse",
		`  7 ValidationFailed (n1, n2, ...): maxPods\x1b is wrong`,
		"  2 ProtectedFields (n3, n4): port",
		"1 node refuses because of its pods",
		"  1 NeedsDrain (n5): cpu_manager_state",
		"1 node cannot tell",
		"  1 CouldNotValidate (n6): the runtime is down",
		"1,200 nodes did not answer: n7, n8, n9, ...",
	}
	assert.NoDiff(t, cmp.Diff(want, Preflight(r)))
	assert.Equal(t, PreflightLine(r), "4,988 accepted, 9 refused, 1 blocked by pods, 1 cannot tell, 1,200 unanswered")
}

func TestNodesOfGroupsThatAreNotListedAreCounted(t *testing.T) {
	r := &v1alpha1.PreflightResult{Accepted: 30}
	for range rollout.MaxPreflightGroups {
		r.Groups = append(r.Groups, v1alpha1.PreflightGroup{Verdict: v1alpha1.PreflightAccepted, Message: "changes maxPods", Nodes: 2, Examples: []string{"a", "b"}})
	}

	got := Preflight(r)
	assert.Equal(t, got[len(got)-1], "  and 10 more nodes, with other changes", "the last line")
}
