// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

// Limit is a restriction of what evenkeel can do with a node's kubelet.
type Limit struct {
	Reason  string `json:"reason"` // one of the reasons below
	Message string `json:"message"`
}

// Reasons of limits.
const (
	// LimitNotComparable: the kubelet does not print its configuration in a
	// known form.
	LimitNotComparable = "NotComparable"
	// LimitValidationOnly: stage 2 of the dry run is unavailable.
	LimitValidationOnly = "ValidationOnly"
)

// noDump is the limit of a kubelet whose effective configuration is never
// known.
var noDump = Limit{LimitNotComparable, "the kubelet does not print its configuration in a known form: every configuration is refused"}
