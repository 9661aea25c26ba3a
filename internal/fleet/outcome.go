// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Succeeded reports whether a content was rolled out completely, as far as the status knows. An undo to it passes the pauses of the steps.
func Succeeded(st *v1alpha1.NodeConfigRolloutStatus, sha256 string) bool {
	return st.CurrentRevision != nil && st.CurrentRevision.ConfigMapRef.SHA256 == sha256 ||
		slices.ContainsFunc(st.History, func(o v1alpha1.RolloutOutcome) bool {
			return o.SHA256 == sha256 && o.Outcome == v1alpha1.OutcomeSucceeded
		})
}

// stoppedAsBad reports whether a revision failed or was aborted. An inconclusive stop does not blame the revision.
func stoppedAsBad(o v1alpha1.RolloutOutcome) bool {
	stopped := o.Outcome == v1alpha1.OutcomeHalted || o.Outcome == v1alpha1.OutcomeRolledBack
	return stopped && o.Reason != v1alpha1.HaltInconclusive
}

// PreviousRevision returns the revision to which an undo returns by default; 0 if there is none.
func PreviousRevision(st *v1alpha1.NodeConfigRolloutStatus) int64 {
	target, current := st.UpdateRevision, st.CurrentRevision
	failed := func(sha256 string) bool { return FailureOf(st, nil, 0, sha256) != "" }
	if target == nil {
		return 0
	}
	if current != nil && current.Number != target.Number && !failed(current.ConfigMapRef.SHA256) {
		return current.Number
	}
	var newest int64
	for _, o := range st.History {
		if o.Revision < target.Number && o.Outcome == v1alpha1.OutcomeSucceeded && o.ConfigMap != target.ConfigMapRef.Name && !failed(o.SHA256) {
			newest = max(newest, o.Revision)
		}
	}
	return newest
}
