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

func TestLongLinesContinueInTheNext(t *testing.T) {
	got := draw("$ a <b>\n\n" + strings.Repeat("x", columns-2) + " yy\n")
	for _, line := range []string{
		`class="command" x="7.8" y="20.4" style="animation-delay: 0.00s">$ a &lt;b&gt;</text>`,
		`y="54.4" style="animation-delay: 0.24s">` + strings.Repeat("x", columns-2) + "</text>", `y="71.4" style="animation-delay: 0.36s">  yy</text>`,
	} {
		assert.That(t, strings.Contains(got, line), "no %s in %s", line, got)
	}
}
