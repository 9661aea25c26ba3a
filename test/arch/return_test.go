// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// The agent and the controller share only the API, so they cannot share this
// number.
func TestTheControllerWaitsForAgentsThatComeBackAfterAnOutage(t *testing.T) {
	agent := fleet.DefaultSettings.AgentTimeout.Duration
	assert.That(t, source.LongestReturn <= agent && agent < source.LongestReturn+30*time.Second,
		"an agent takes up to %s to come back, and the controller gives it %s", source.LongestReturn, agent)
}
