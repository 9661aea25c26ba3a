// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// `make recording` writes the picture again; look at it then.
func TestTheRecordingIsOfThePresentCommand(t *testing.T) {
	t.Chdir("../..")
	want := assert.Value(record())(t)
	got := assert.Value(os.ReadFile(file))(t)
	assert.NoDiff(t, cmp.Diff(want, string(got)))
	readme := string(assert.Value(os.ReadFile("README.md"))(t))
	for _, words := range []string{"](" + file + ")", "kubectl-evenkeel " + command} {
		assert.That(t, strings.Contains(readme, words), "the README lacks %s", words)
	}
}
