// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "strconv"

// What a source does not have. They are shared and never changed.
var (
	noReference RolloutReference
	noConfigMap ConfigMapReference
)

// By returns the assignment by a rollout; zero if there is no source, or a person wrote it. It is read only.
func (s *NodeConfigSource) By() *RolloutReference {
	if s == nil || s.RolloutRef == nil {
		return &noReference
	}
	return s.RolloutRef
}

// Content returns the ConfigMap; zero if there is no source, or it is local. It is read only.
func (s *NodeConfigSource) Content() *ConfigMapReference {
	if s == nil || s.ConfigMapRef == nil {
		return &noConfigMap
	}
	return s.ConfigMapRef
}

// Digest returns the sha256 of the payload; empty if r is nil, which means the local configuration.
func (r *ConfigRevision) Digest() string {
	if r == nil {
		return ""
	}
	return r.SHA256
}

const (
	// AnnotationTerm is the annotation of a revision's ConfigMap with the newest term in which a controller could assign
	// the revision. A leader writes its own term before it reads the fleet, and again before each batch of assignments.
	AnnotationTerm = "evenkeel.dev/term"
	// AnnotationStopped is the annotation of a revision's ConfigMap with the reason why the revision was stopped. Absent if
	// the revision was not stopped or was retried.
	AnnotationStopped = "evenkeel.dev/stopped"
	// AnnotationStoppedAttempt is the annotation of a revision's ConfigMap with the number of the stopped attempt.
	AnnotationStoppedAttempt = "evenkeel.dev/stopped-attempt"
)

// MaxTerm is the highest valid term. No cluster reaches this number of leaders.
const MaxTerm = 1 << 50

// TermOf returns the term in a ConfigMap's annotations, or 0 if they have no valid term.
func TermOf(annotations map[string]string) int64 {
	n, err := strconv.ParseInt(annotations[AnnotationTerm], 10, 64)
	if err != nil || n < 0 || n > MaxTerm {
		return 0
	}
	return n
}
