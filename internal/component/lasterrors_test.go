// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestLastErrorsAreOneLine(t *testing.T) {
	const header = "1122 07:10:36.358684   21610 run.go:72] "
	const token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"
	for name, tt := range map[string]struct{ log, want string }{
		"nothing":                {"", ""},
		"the error of the end":   {"E" + header + `"command failed" err="failed to run Kubelet: \"x\" does not exist"` + "\n", `failed to run Kubelet: "x" does not exist`},
		"an error":               {"E" + header + `"Failed to start ContainerManager" err="no cgroup" pod="x"` + "\n", "Failed to start ContainerManager: no cgroup"},
		"no err":                 {"E" + header + `"Pods are lost" pod="x"` + "\n", `"Pods are lost" pod="x"`},
		"a repeated one":         {"E" + header + `"a" err="b"` + "\nE" + header + `"c" err="d"` + "\nE" + header + `"a" err="b"` + "\n", "a: b; c: d"},
		"noise after the end":    {"E" + header + `"a" err="b"` + "\nF" + header + "cannot go on\nE" + header + `"c" err="d"` + "\n", "cannot go on; c: d; a: b"},
		"an error of many lines": {"E" + header + "\"command failed\" err=<\n\ta:\n\t- b\n >\n", "a: - b"},
		"a value of many lines":  {"E" + header + "\"a\" x=<\n\tb\n\tc\n >\n", `"a" x=b c`},
		"a rest of an entry":     {"\tb\n >\nError: x\n", "x"},
		"before the log":         {"Error: unknown flag: --x\n", "unknown flag: --x"},
		"a panic":                {"panic: oh\n[signal SIGSEGV: x]\n", "panic: oh; [signal SIGSEGV: x]"},
		"an observed panic":      {"E" + header + `"Observed a panic" panic="runtime error" stacktrace=<` + "\n", "Observed a panic: runtime error"},
		"JSON":                   {`{"ts":1.5,"caller":"run.go:72","msg":"command failed","err":"a"}` + "\n" + `{"msg":"b","err":{"c":1}}` + "\n" + `{"msg":"d"}` + "\n", `a; d; b: {"c":1}`},
		"cut JSON":               {`{"msg":"a","err":"b`, `{"msg":"a","err":"b`},
		"control characters":     {"Error: a\x1b[2J\xff\x00b\u202e\n", `a\x1b[2J?\x00b\u202e`},
		"a token":                {"E" + header + `"a" err="Authorization: Bearer ` + token + ` refused"` + "\n", "a: Authorization: masked"},
	} {
		assert.Equal(t, LastErrors([]byte(tt.log), 1024), tt.want, name)
	}
}

func TestTheOldestErrorsAreLeftOut(t *testing.T) {
	for limit, want := range map[int]string{13: "ccc; bbb; aaa", 12: "ccc; bbb", 7: "ccc", 3: "ccc"} {
		assert.Equal(t, LastErrors([]byte("Error: aaa\nError: bbb\nError: ccc\n"), limit), want, "in", limit, "bytes")
	}

	assert.Equal(t, LastErrors([]byte("Error: old\nError: begin "+strings.Repeat("é", 100)+" end"), 20), "...é"+strings.Repeat("é", 5)+" end", "a long error became")
}

func TestAnyLogGivesABoundedLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := strings.Join(rapid.SliceOf(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
			"E1122 07:10:36.358684   21610 run.go:72] \"a\" err=", "<\n", "\t", "\n", " >", `"`, "{\"msg\":\"", "panic: ",
		}))).Draw(t, "log"), "")
		limit := rapid.IntRange(3, 100).Draw(t, "limit")
		got := LastErrors([]byte(log), limit)
		assert.Must(t, len(got) <= limit && utf8.ValidString(got) && !strings.ContainsAny(got, "\n\r\t\x1b"), "%q became %q", log, got)
	})
}
