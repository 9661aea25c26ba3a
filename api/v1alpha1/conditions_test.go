// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheListOfReasonsHasEachThatIsDeclared(t *testing.T) {
	file := assert.Value(os.ReadFile("conditions.go"))(t)
	var declared []string
	for _, m := range regexp.MustCompile(`(?m)^\s+Reason\w+ += "(\w+)"`).FindAllStringSubmatch(string(file), -1) {
		declared = append(declared, m[1])
	}

	slices.Sort(declared)
	assert.NoDiff(t, cmp.Diff(declared, slices.Sorted(slices.Values(v1alpha1.ConfigOKReasons))))
	assert.That(t, len(declared) >= 19, "only %d reasons were found", len(declared))
}
