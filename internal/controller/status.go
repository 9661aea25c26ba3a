// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// changesOf reports whether a status has changed, and whether a decision has, which must be written before nodes are moved.
// Other changes, such as counts, may be written later.
func changesOf(was, is *v1alpha1.NodeConfigRolloutStatus) (changed, decided bool) {
	if equality.Semantic.DeepEqual(was, is) {
		return false, false
	}
	return true, !equality.Semantic.DeepEqual(decisionsOf(was), decisionsOf(is))
}

// decisionsOf returns a status without observations.
func decisionsOf(st *v1alpha1.NodeConfigRolloutStatus) *v1alpha1.NodeConfigRolloutStatus {
	out := st.DeepCopy()
	out.Controller = nil     // for other programs
	out.NextWindowTime = nil // for people
	out.Message, out.Nodes, out.ProgressTime, out.FailedNodes = "", v1alpha1.RolloutCounts{}, nil, nil
	for i := range out.Conditions {
		out.Conditions[i].Message = ""
	}
	for i := range out.DrainingNodes {
		out.DrainingNodes[i].Message = ""
	}
	if p := out.Preflight; p != nil && p.EndTime == nil {
		out.Preflight = &v1alpha1.PreflightResult{StartTime: p.StartTime}
	}
	for i := range out.Gates { // a failed evaluation changes Failures, and is written with its time
		out.Gates[i].Value, out.Gates[i].Time, out.Gates[i].Message = "", nil, ""
	}
	return out
}
