// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// specOf returns the spec that a move writes. A move back to no source sets takenBack: a node that accepted the assignment
// meanwhile must not mistake the empty source for a person's request.
func specOf(planned *rollout.Node, m rollout.Move) v1alpha1.NodeConfigSpec {
	out := v1alpha1.NodeConfigSpec{ConfigSource: m.Source, Revoked: m.Revoked}
	if was := planned.Source.By(); m.Source == nil && was.Name != "" {
		out.TakenBack = &v1alpha1.TakenBackAssignment{Rollout: was.Name, Revision: was.Revision, Attempt: was.Attempt, AssignedAt: was.AssignedAt}
	}
	return out
}
