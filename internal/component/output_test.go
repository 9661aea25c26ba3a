// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// outputOf returns what is read of a component's whole output.
func outputOf(text string, holdsDump func(value string) bool, marks ...string) *outputReader {
	out := &outputReader{overrunMarks: marks, onOverrun: func(string) {}, holdsDump: holdsDump}
	_, _ = out.Write([]byte(text))
	out.flush()

	return out
}

func TestOutputIsParsedInBothKlogFormats(t *testing.T) {
	const header = "1121 07:10:36.358684   21610 run.go:72] "
	for _, tt := range []struct {
		name, text                   string
		word, lenient, dump, strayed string
	}{
		{name: "an error", text: "E" + header + `"command failed" err="a \"b\" c"` + "\n", word: `a "b" c`},
		{name: "an error without a newline", text: "E" + header + `"command failed" err="a"`, word: "a"},
		{name: "an error over several lines", text: "E" + header + "\"command failed\" err=<\n\ta\n\tb\n >\nI" + header + "bye\n", word: "a\nb"},
		{name: "an error before logging is set up", text: "Error: unknown flag: --x\n", word: "unknown flag: --x"},
		{name: "an error in JSON", text: `{"ts":1.5,"caller":"cli/run.go:72","msg":"command failed","err":"a"}` + "\n", word: "a"},
		{name: "a panic", text: "panic: oh\n\ngoroutine 1 [running]:\nmain.main()\n", word: "panic: oh"},
		{name: "the last line, if nothing else", text: "hello\nI" + header + "good bye\n", word: "good bye"},
		{name: "the last line in JSON", text: `{"msg":"good bye"}` + "\n", word: "good bye"},
		{name: "a line that only looks like JSON", text: "{nothing\n", word: "{nothing"},
		{name: "words that quote the end", text: "I" + header + `"hello" err="command failed"` + "\n", word: `"hello" err="command failed"`},
		{name: "lenient decoding", text: "I" + header + `"Using lenient decoding as strict decoding failed" err="strict decoding error: unknown field \"x\""` + "\n",
			lenient: `strict decoding error: unknown field "x"`, word: `"Using lenient decoding as strict decoding failed" err="strict decoding error: unknown field \"x\""`},
		{name: "lenient decoding over several lines", text: "I" + header + "\"Using lenient decoding as strict decoding failed\" err=<\n\ta\n\tb\n >\n",
			lenient: "a\nb", word: "\"Using lenient decoding as strict decoding failed\" err=<"},
		{name: "a dump", text: "I" + header + "\"KubeletConfiguration\" configuration=<\n\t{\n\t  \"MaxPods\": 1\n\t}\n >\nbye\n",
			dump: "{\n  \"MaxPods\": 1\n}", word: "bye"},
		{name: "a dump that ends with the output", text: "I" + header + "\"KubeletConfiguration\" configuration=<\n\t{MaxPods}\n >",
			dump: "{MaxPods}", word: "\"KubeletConfiguration\" configuration=<"},
		{name: "a dump in JSON", text: `{"msg":"KubeletConfiguration","v":5,"configuration":{"MaxPods":1}}` + "\n",
			dump: `{"MaxPods":1}`, word: "KubeletConfiguration"},
		{name: "an overrun", text: "I" + header + `"Started kubelet"` + "\nbye\n", strayed: "Started kubelet", word: "bye"},
		{name: "a step too far in JSON", text: `{"msg":"Started kubelet"}` + "\n", strayed: "Started kubelet", word: "Started kubelet"},
	} {
		got := outputOf(tt.text, func(value string) bool { return strings.Contains(value, "MaxPods") }, "Started kubelet")
		assert.Equal(t, got.failureText(), tt.word, tt.name, "word")
		assert.Equal(t, got.strictError, tt.lenient, tt.name, "lenient")
		assert.Equal(t, strings.Join(got.dumps, "|"), tt.dump, tt.name, "dump")
		assert.Equal(t, got.overrun, tt.strayed, tt.name, "strayed")
	}
}

func TestAnEndlessLineIsNotKept(t *testing.T) {
	got := &outputReader{}
	piece := []byte(strings.Repeat("x", 1<<20))
	for range 20 {
		_, _ = got.Write(piece)
	}

	assert.That(t, len(got.partial) <= maxEntry, "%d bytes of one line are kept", len(got.partial))
	_, _ = got.Write([]byte("\nbye\n"))
	assert.That(t, got.failureText() == "bye" && cap(got.partial) <= 64<<10,
		"last word %q, %d bytes kept", got.failureText(), cap(got.partial))
}
