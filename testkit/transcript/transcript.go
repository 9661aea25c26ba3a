// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package transcript runs the transcripts of decision cores: files in testdata
// that contain commands, and below each command the output that it must have.
//
// The package must not know any command.
package transcript

import (
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// Command runs one command of a transcript and writes its output.
type Command func(t *testing.T, td *datadriven.TestData, out *strings.Builder) error

// Run runs every transcript in testdata. begin returns the commands of one
// transcript, on a new world. With the flag -rewrite, Run writes the present
// output into the files.
func Run(t *testing.T, begin func(t *testing.T) Command) {
	t.Helper()
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		run := begin(t)
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			var out strings.Builder
			if err := run(t, td, &out); err != nil {
				t.Fatalf("%s: %v", td.Pos, err)
			}

			return out.String()
		})
	})
}
