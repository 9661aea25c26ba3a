package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// StopReason returns why the revision of an outcome was stopped, one of v1alpha1.HaltReasons; empty if it was not stopped.
func StopReason(o v1alpha1.RolloutOutcome) string {
	if o.Outcome != v1alpha1.OutcomeHalted && o.Outcome != v1alpha1.OutcomeRolledBack {
		return ""
	}
	return cmp.Or(o.Reason, reasonInMessage(o.Message))
}

// reasonInMessage returns the reason at the start of an outcome's message; empty if there is none. It is used only for an
// entry without a reason, from a controller of an earlier version or with an older CRD. Such entries stay in the history.
func reasonInMessage(message string) string {
	i := slices.IndexFunc(v1alpha1.HaltReasons, func(r string) bool { return strings.HasPrefix(message, StopMessage(r, "")) })
	if i < 0 {
		return ""
	}
	return v1alpha1.HaltReasons[i]
}

// StopMessage returns the message of the outcome of a stopped revision. It begins with the reason, for people and for
// controllers of earlier versions, which read the reason there.
func StopMessage(reason, message string) string { return reason + ": " + message }

// stoppedAsBad reports whether a revision failed or was aborted. An inconclusive stop does not blame the revision.
func stoppedAsBad(o v1alpha1.RolloutOutcome) bool {
	stopped := o.Outcome == v1alpha1.OutcomeHalted || o.Outcome == v1alpha1.OutcomeRolledBack
	return stopped && StopReason(o) != v1alpha1.HaltInconclusive
}
