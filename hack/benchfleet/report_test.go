// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestOnlyTheValuesOfAMetricWithTheLabelsAreAdded(t *testing.T) {
	text := []byte("# TYPE a gauge\na{x=\"1\",y=\"2\"} 3\na{x=\"1\",y=\"3\"} 1.5e+02\na{x=\"2\"} 7\na_b{x=\"1\"} 100\nb 4\n")
	assert.Equal(t, sum(text, "a", `x="1"`), 153.0)
	assert.Equal(t, sum(text, "a"), 160.0)
	assert.Equal(t, sum(text, "b"), 4.0)
	assert.Equal(t, sum(text, "c"), 0.0)
}
