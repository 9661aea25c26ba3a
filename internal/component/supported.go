// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

// The oldest and the newest supported minor version of the kubelet: what the automated tests run. The documentation and the chart
// have the same, see test/arch. Other versions are not refused: every binary is probed before it is used.
const (
	OldestMinor = 33
	NewestMinor = 37
)
