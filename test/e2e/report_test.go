// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"

	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// page is all that the agent's /configz says.
func (n *node) page(query string) agent.Configz {
	n.t.Helper()
	var out agent.Configz
	assert.NoError(n.t, json.Unmarshal([]byte(n.get("/configz"+query)), &out))
	return out
}

// get asks the agent over HTTP.
func (n *node) get(path string) string {
	n.t.Helper()
	body := assert.Value(n.AskAgent(n.t.Context(), path))(n.t)
	return string(body)
}
