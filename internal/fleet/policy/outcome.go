package policy

import "github.com/evenkeel/evenkeel/api/v1alpha1"

// StopMessage returns the message of the outcome of a stopped revision, which begins with the reason.
func StopMessage(reason, message string) string { return reason + ": " + message }

// stoppedAsBad reports whether a revision failed or was aborted. An inconclusive stop does not blame the revision.
func stoppedAsBad(o v1alpha1.RolloutOutcome) bool {
	stopped := o.Outcome == v1alpha1.OutcomeHalted || o.Outcome == v1alpha1.OutcomeRolledBack
	return stopped && o.Reason != v1alpha1.HaltInconclusive
}
