package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// StopReason returns why the revision of an outcome was stopped, one of v1alpha1.HaltReasons; empty if the revision was not
// stopped.
func StopReason(o v1alpha1.RolloutOutcome) string {
	if o.Outcome != v1alpha1.OutcomeHalted && o.Outcome != v1alpha1.OutcomeRolledBack {
		return ""
	}
	return cmp.Or(o.Reason, reasonInMessage(o.Message))
}

// reasonInMessage returns the reason with which the message of an outcome begins, empty if there is none. Only an entry
// without a reason is read so: a controller of an earlier version wrote it, or the CRD had no such field then. These entries
// stay in the history, and nothing else there tells whether the revision was to blame.
func reasonInMessage(message string) string {
	i := slices.IndexFunc(v1alpha1.HaltReasons, func(r string) bool { return strings.HasPrefix(message, StopMessage(r, "")) })
	if i < 0 {
		return ""
	}
	return v1alpha1.HaltReasons[i]
}

// StopMessage returns the message of the outcome of a revision that was stopped. It begins with the reason for people, and
// for a controller of an earlier version, which knows the reason from there alone.
func StopMessage(reason, message string) string { return reason + ": " + message }

// stoppedAsBad reports whether a revision was stopped, and was to blame.
func stoppedAsBad(o v1alpha1.RolloutOutcome) bool {
	stopped := o.Outcome == v1alpha1.OutcomeHalted || o.Outcome == v1alpha1.OutcomeRolledBack
	return stopped && StopReason(o) != v1alpha1.HaltInconclusive
}
