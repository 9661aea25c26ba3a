package v1alpha1

import "strconv"

const (
	// AnnotationTerm of a revision's ConfigMap is the newest term in which a controller could assign the revision: a leader
	// writes its own before it looks at the fleet, and again before each batch of assignments.
	AnnotationTerm = "evenkeel.dev/term"
	// AnnotationStopped of a revision's ConfigMap is why the revision was stopped; absent if it was not, or was retried.
	AnnotationStopped = "evenkeel.dev/stopped"
	// AnnotationStoppedAttempt of a revision's ConfigMap is the attempt that was stopped.
	AnnotationStoppedAttempt = "evenkeel.dev/stopped-attempt"
)

// mostTerm is the highest term that is believed: no cluster has had so many leaders.
const mostTerm = 1 << 50

// TermOf returns the term that annotations name, 0 if none.
func TermOf(annotations map[string]string) int64 {
	n, err := strconv.ParseInt(annotations[AnnotationTerm], 10, 64)
	if err != nil || n < 0 || n > mostTerm {
		return 0
	}
	return n
}
