// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAnOddTimeOfANodeIsPrintedAsOneThatCanBeParsed(t *testing.T) {
	nc := &v1alpha1.NodeConfig{}
	assert.NoError(t, json.Unmarshal([]byte(`{"status":{"agentVersion":"v1","conditions":[{"type":"ConfigOK","status":"True","lastTransitionTime":"9999-12-31T23:59:59-23:59"}]}}`), nc))
	text := assert.Value(json.Marshal(RowOf(fleet.Pair{Config: nc}, nil, time.Minute, time.Now())))(t)
	var row struct {
		ConfigOK struct{ Since metav1.Time } `json:"configOK"`
	}
	assert.NoError(t, json.Unmarshal(text, &row))
	assert.That(t, !row.ConfigOK.Since.IsZero(), "%s", text)
}
