// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

const (
	info  = "I1122 07:10:36.358684   21610 server.go:72] "
	fault = "E1122 07:10:36.358684   21610 run.go:72] "
)

func TestLinesThatSayWhyAreKept(t *testing.T) {
	goroutines := "goroutine 1 [running]:\nmain.main()\n\t/src/main.go:7 +0x1d\n"
	for name, tt := range map[string]struct{ log, want string }{
		"errors of klog":             {info + "a\n" + fault + "b\nW1122 c\nF1122 d\n", fault + "b\nF1122 d\n"},
		"an error before the log":    {"Error: unknown flag: --x\nUsage:\n  kubelet [flags]\n", "Error: unknown flag: --x\n"},
		"a panic":                    {"panic: oh\n[signal SIGSEGV: x]\n\n" + goroutines + "exit status 2\n", "panic: oh\n[signal SIGSEGV: x]\n"},
		"a fatal error":              {"fatal error: all goroutines are asleep\n\n" + goroutines, "fatal error: all goroutines are asleep\n"},
		"a dump after a signal":      {"SIGQUIT: quit\nPC=0x1\n\n" + goroutines + "rax 0x0\n", "SIGQUIT: quit\n"},
		"goroutines of klog.Fatal":   {"F1122 d\n" + goroutines, "F1122 d\n"},
		"an error after the dump":    {goroutines + fault + "b\n", fault + "b\n"},
		"a loader":                   {"/usr/bin/kubelet: libc.so.6: not found\n", "/usr/bin/kubelet: libc.so.6: not found"},
		"the last of other lines":    {"a\nb\n" + info + "c\n", "b"},
		"a deprecated flag":          {"Flag --x has been deprecated, y\n" + info + "c\n", ""},
		"an error and other lines":   {fault + "a\nb\n", fault + "a\n"},
		"further lines":              {fault + `"a" err=<` + "\n\tb\n\tc\n >\n" + info + "d=<\n\te\n >\n", fault + `"a" err=<` + "\n\tb\n\tc\n >\n"},
		"the stack of a panic":       {fault + `"Observed a panic" panic="x" stacktrace=<` + "\n\tgoroutine 1\n >\n", fault + `"Observed a panic" panic="x" stacktrace=<` + "\n"},
		"JSON":                       {`{"ts":1,"msg":"a","v":0}` + "\n" + `{"ts":1,"msg":"b"}` + "\n" + `{"ts":1,"msg":"c","v":0,"err":"d"}` + "\n", `{"ts":1,"msg":"b"}` + "\n" + `{"ts":1,"msg":"c","v":0,"err":"d"}` + "\n"},
		"a line that is not over":    {fault + "a", fault + "a\n"},
		"lines of another system":    {fault + "a\r\n", fault + "a\n"},
		"a line that is like klog's": {"Everything is fine\nE112x a\n", "E112x a"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &selector{}
			for rest := []byte(tt.log); len(rest) > 0; { // in pieces, like a pipe
				n := min(7, len(rest))
				s.add(rest[:n])
				s.text()
				rest = rest[n:]
			}

			assert.Equal(t, string(s.text()), tt.want, "kept")
		})
	}
}

func TestTheLastErrorsAreKept(t *testing.T) {
	s := &selector{}
	for range 10_000 {
		s.add([]byte(fault + strings.Repeat("x", 100) + "\n"))
	}

	s.add([]byte(fault + "the last\n"))
	got := string(s.text())
	assert.That(t, len(got) <= maxText && len(got) >= maxText/2 && strings.HasPrefix(got, fault) && strings.HasSuffix(got, fault+"the last\n"),
		"%d bytes are kept, from %.80q to %q", len(got), got, got[max(0, len(got)-80):])
}

func TestAnEntryOfManyLinesIsCut(t *testing.T) {
	s := &selector{}
	s.add([]byte(fault + `"a" err=<` + "\n"))
	for range 10_000 {
		s.add([]byte("\t" + strings.Repeat("x", 100) + "\n"))
	}

	got := len(s.text())
	assert.That(t, got <= maxEntry+500, "%d bytes of an entry are kept, want about %d", got, maxEntry)
}

func TestAnyOutputIsBoundedAndCopied(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole, pieces := &selector{}, &selector{}
		log := rapid.SliceOf(rapid.OneOf(
			rapid.SliceOf(rapid.Byte()), rapid.Map(rapid.SampledFrom([]string{fault, info, "\n", "\t", " >\n", "=<\n", "panic: ", "{\"msg\":"}), func(s string) []byte { return []byte(s) }),
		)).Draw(t, "log")
		for _, p := range log {
			pieces.add(p)
			pieces.text()
		}

		var all []byte
		for _, p := range log {
			all = append(all, p...)
		}

		whole.add(all)
		got, want := string(pieces.text()), string(whole.text())
		assert.Must(t, got == want && len(got) <= maxText, "in pieces %q, at once %q", got, want)
	})
}
