package describe

import (
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// RequestWords describes a request in a rollout's status: what was requested, and why.
func RequestWords(r v1alpha1.RolloutRequest) string {
	words := "requested " + string(r.Kind)
	switch r.Kind {
	case v1alpha1.RequestApproval:
		words = "approved"
		if r.Step != nil {
			words = fmt.Sprintf("approved up to step %d", *r.Step)
		}
	case v1alpha1.RequestAbort:
		words = "aborted"
	case v1alpha1.RequestPause:
		words = "paused"
	case v1alpha1.RequestFreeze:
		words = "frozen"
	}
	if r.Reason != "" {
		words += ": " + r.Reason
	}
	return printable.Line(words)
}

// RequestAge describes a request and its age.
func RequestAge(r v1alpha1.RolloutRequest, now time.Time) string {
	return RequestWords(r) + " (" + Age(r.Time, now) + " ago)"
}
