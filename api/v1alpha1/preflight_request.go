// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Limits of a preflight request and its answer.
const (
	MaxPreflightUID     = 128
	MaxPreflightMessage = 1024 // in bytes, as an agent writes it
)

// PreflightRequest is the value of the annotation evenkeel.dev/preflight, as JSON.
type PreflightRequest struct {
	// uid identifies the request. The answer echoes it.
	// +required
	UID string `json:"uid"`
	// configMapRef is the configuration that the agent judges.
	// +required
	ConfigMapRef ConfigMapReference `json:"configMapRef"`
	// trial holds the settings for the trial that an assignment would have.
	// +optional
	Trial *TrialTerms `json:"trial,omitempty"`
	// attempt is the attempt that an assignment would have. A verdict of an earlier
	// attempt is no reason to refuse. 0 is the first attempt.
	// +optional
	Attempt int64 `json:"attempt,omitempty"`
	// time is when the controller wrote the request, on the controller's clock.
	// Agents do not use it.
	// +optional
	Time metav1.Time `json:"time,omitzero"`
}
