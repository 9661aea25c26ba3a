// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestWhatIsPrintedIsComparedButForWhatDiffersEachTime(t *testing.T) {
	for _, tt := range []struct {
		name, page, printed string
		same                bool
	}{
		{"nothing is said", "", "anything", true},
		{"the same", "a\nb", "a\nb\n", true},
		{"another word", "a b", "a c", false},
		{"a line more", "a", "a\nb", false},
		{"a line less", "a\nb", "a", false},
		{"any lines", "a\n...\nd", "a\nb\nc\nd", true},
		{"no lines", "a\n...\nd", "a\nd", true},
		{"any lines, and another end", "a\n...\nd", "a\nb\ne", false},
		{"any rest", "a b: ...", "a b: c d", true},
		{"another beginning", "a b: ...", "a c: c d", false},
		{"columns and ages", "NAME   AGE\nnode-1   9s", "NAME     AGE\nnode-1   10m12s", true},
		{"another number", "maxPods: 120", "maxPods: 110", false},
		{"an age is no number", "3m", "3", false},
		{"hashes", "cm workers-7f9c4d1a2b", "cm workers-0123456789", true},
		{"UIDs", "(UID: eacf36f0-...)", "(UID: 0a1b2c3d-0000-1111-2222-0123456789ab)", true},
		{"no UID", "(UID: eacf36f0-...)", "(UID: none)", false},
		{"a question", "Do it? [y/N] y\ndone", "Do it? [y/N] done\n", true},
		{"tokens", "open http://127.0.0.1:8085/#K7S3FZ2VJ4QNTE6MWL5XHPA3DC", "open http://127.0.0.1:8085/#AAAAAAAAAAAAAAAAAAAAAAAAAA", true},
		{"another port", "open http://127.0.0.1:8085/#K7S3FZ2VJ4QNTE6MWL5XHPA3DC", "open http://127.0.0.1:8086/#K7S3FZ2VJ4QNTE6MWL5XHPA3DC", false},
		{"Go's version", "built with go1.26.8 for linux", "built with go1.27.1 for linux", true},
		{"no question", "Do it? [y/N] y\ndone", "done\n", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var lines []string
			if tt.page != "" {
				lines = strings.Split(tt.page, "\n")
			}

			err := Compare(lines, tt.printed)
			assert.That(t, (err == nil) == tt.same, "%q is compared with %q: %v", tt.page, tt.printed, err)
		})
	}
}
