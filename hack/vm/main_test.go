// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAnUnknownStepIsRefusedBeforeAnythingStarts(t *testing.T) {
	l := &lab{}
	err := l.runSteps(t.Context(), "boot,fly")
	assert.That(t, err != nil && err.Error() == `unknown step "fly": see -list` && l.dir == "", "the error is %v, the directory %q", err, l.dir)
}
