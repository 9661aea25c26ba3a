// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

// Reasons of events. docs/operating.md lists them.
const (
	eventForgotten           = "Forgotten"
	eventConfigChanged       = "ConfigChanged"
	eventConfigRejected      = "ConfigRejected"
	eventConfigOnTrial       = "ConfigOnTrial"
	eventConfigRolledBack    = "ConfigRolledBack"
	eventConfigLastKnownGood = "ConfigLastKnownGood"
	eventPodsCannotStart     = "PodsCannotStart"
	eventInconclusive        = "Inconclusive"
	eventTrialResumed        = "TrialResumed"
	eventAPILost             = "APILost"
	eventDeadEnd             = "DeadEnd"
	eventAssignmentEnded     = "AssignmentEnded"
)
