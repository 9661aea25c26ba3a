// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import "github.com/evenkeel/evenkeel/internal/payload"

// Outcome is the result of validating a configuration with a component's binary. There is no "valid", because some
// errors appear only when the component runs with the configuration.
type Outcome int

// The outcomes. The zero value never leads to a change.
const (
	CouldNotTell Outcome = iota
	Accepted
	Rejected
)

func (o Outcome) String() string {
	switch o {
	case Accepted:
		return "accepted"
	case Rejected:
		return "rejected"
	default:
		return "could not tell"
	}
}

// Verdict is the result of a dry run.
type Verdict struct {
	Outcome Outcome
	// Stage is the last stage of the dry run: 0 none; 1 the configuration was decoded and validated; 2 the component
	// was initialized, up to before its start; 3 the agent compared the configuration with this machine, and rejected it.
	Stage int
	// Message is the component's error for Rejected, the reason for CouldNotTell, and why stage 2 did not run for
	// Accepted at stage 1. Its length is limited.
	Message string
	// Warnings are warnings of the component, and additional facts that could not be determined.
	Warnings []string
	// Effective is the effective configuration; nil unless stage 1 passed.
	Effective Effective
	// Local is the effective local configuration, printed by the same kind of dry run at the same time, to compare
	// with Effective; nil unless stage 1 passed, or if it was not printed (see Warnings).
	Local Effective
	// Origins are the sources of the fields of Effective, by path as in Overridden. Fields with their default are
	// missing. nil if unknown (see Warnings).
	Origins map[string]Origin
	// Hidden are fields that the component prints masked (static pod URL headers) and that differ, or may differ, from
	// the local configuration. They look equal in Effective and Local.
	Hidden []string
	// Assumed has the fields that the agent uses, according to files, flags and defaults; set if Effective is nil.
	Assumed Effective
	// CandidateOnly reports, for CouldNotTell, that the local configuration passed at the same time, so the candidate
	// may be the cause.
	CandidateOnly bool
	// Limits are the kubelet's limits found in this check.
	Limits []Limit
	// Overridden are the payload's fields that a flag of the node's command line overrides, as JSON paths (maxPods,
	// evictionHard[memory.available]).
	Overridden []string
	// Violations are protected fields that the files of a candidate change, found before any run.
	Violations []payload.Difference
}
