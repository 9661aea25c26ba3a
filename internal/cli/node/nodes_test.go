// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// A watch reads all nodes again after an error of its first round.
func TestNodesThatAreReadAgainAreComparedOnce(t *testing.T) {
	api := newAPI(t)
	api.AddNode("a", "x", "z1")
	api.AddNodeConfig("a", nil, func(st *v1alpha1.NodeConfigStatus) { st.Conditions = nil })
	o := nodesOptions{drift: true, compared: &driftRows{}, seen: &describe.Situation{}}
	for range 2 {
		assert.NoError(t, assert.Err((&app{}).rows(t.Context(), api, o, labels.SelectorFromSet(labels.Set{"pool": "x"}))))
		got := o.compared
		assert.Must(t, got.agents == 1 && got.silent == 1, "counted %+v", got)
	}
}
