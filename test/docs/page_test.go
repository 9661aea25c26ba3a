// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

const fences = "```"

func page(text string) string { return strings.ReplaceAll(text, "~~~", fences) }

func TestTheCommandsOfAPageAreThoseOfItsConsoleBlocks(t *testing.T) {
	got := assert.Value(Parse(page(`# A page
Text.

~~~text
not a command
~~~

~~~console
$ cat > f <<'EOF'
$ this is in the file
EOF
$ kubectl patch a -p '[{"op": "add",
    "path": "/"}]'
$ one \
    --more
it prints this
  and this

$ last   # exit code 4: it waits
~~~

1. A list:

   <!-- test: skip: needs a booted systemd -->

   ~~~console
   $ install
     indented
   ~~~

<!-- test: skip ` + "`ssh node-1`" + `: needs another machine or vendor -->
<!-- test: keeps running ` + "`bin/controller`" + ` -->
~~~console
$ ssh node-1 cat
$ bin/controller --flag
$ after
~~~
`)))(t)
	want := []Command{
		{Line: 9, Text: "cat > f <<'EOF'\n$ this is in the file\nEOF"},
		{Line: 12, Text: "kubectl patch a -p '[{\"op\": \"add\",\n    \"path\": \"/\"}]'"},
		{Line: 14, Text: "one \\\n    --more", Output: []string{"it prints this", "  and this"}},
		{Line: 19, Text: "last   # exit code 4: it waits", Exit: 4},
		{Line: 27, Text: "install", Output: []string{"  indented"}, Skip: "needs a booted systemd"},
		{Line: 34, Text: "ssh node-1 cat", Skip: "needs another machine or vendor"},
		{Line: 35, Text: "bin/controller --flag", Keeps: true},
		{Line: 36, Text: "after"},
	}
	assert.NoDiff(t, cmp.Diff(want, got))
}

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
