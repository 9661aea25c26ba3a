package policy

import (
	"slices"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// StopMessage returns the message of the outcome of a stopped revision, which begins with the reason.
func StopMessage(reason, message string) string { return reason + ": " + message }

// Succeeded reports whether a content was rolled out completely, as far as the status knows. An undo to it passes the pauses of the steps.
func Succeeded(st *v1alpha1.NodeConfigRolloutStatus, sha256 string) bool {
	return st.CurrentRevision != nil && st.CurrentRevision.ConfigMapRef.SHA256 == sha256 || slices.ContainsFunc(st.History, func(o v1alpha1.RolloutOutcome) bool {
		return o.SHA256 == sha256 && o.Outcome == v1alpha1.OutcomeSucceeded
	})
}

// stoppedAsBad reports whether a revision failed or was aborted. An inconclusive stop does not blame the revision.
func stoppedAsBad(o v1alpha1.RolloutOutcome) bool {
	stopped := o.Outcome == v1alpha1.OutcomeHalted || o.Outcome == v1alpha1.OutcomeRolledBack
	return stopped && o.Reason != v1alpha1.HaltInconclusive
}
