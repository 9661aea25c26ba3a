// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestControlCharactersAreEscaped(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"plain":                     {"maxPods: 110 # é 漢 😀", "maxPods: 110 # é 漢 😀"},
		"lines and tabs":            {"a:\n\tb\n", "a:\n\tb\n"},
		"lines of another system":   {"a\r\nb\r", "a\nb\\r"},
		"an escape":                 {"\x1b[2J", `\x1b[2J`},
		"a bell, a zero, a delete":  {"\a\x00\x7f", `\x07\x00\x7f`},
		"C1":                        {"\u009b2J\u0085", `\u009b2J\u0085`},
		"an 8-bit C1":               {"\x9b2J", `\x9b2J`},
		"overrides":                 {"\u202a\u202b\u202c\u202d\u202e", `\u202a\u202b\u202c\u202d\u202e`},
		"isolates":                  {"\u2066\u2067\u2068\u2069", `\u2066\u2067\u2068\u2069`},
		"marks of direction":        {"\u200e\u200f\u061c", `\u200e\u200f\u061c`},
		"of no width":               {"a\u200b\u200c\u200d\u2060\ufeffb\u00ad", `a\u200b\u200c\u200d\u2060\ufeffb\u00ad`},
		"separators":                {"\u2028\u2029", `\u2028\u2029`},
		"tags":                      {"\U000e0041\U000e007f", `\U000e0041\U000e007f`},
		"private and unassigned":    {"\ue000\U0010ffff", `\ue000\U0010ffff`},
		"other spaces":              {"a\u00a0b", `a\u00a0b`},
		"letters that look empty":   {"\u3164\u115f", `\u3164\u115f`},
		"what is no UTF-8":          {"a\xff\xc3", `a\xff\xc3`},
		"half of a surrogate":       {"\xed\xa0\x80", `\xed\xa0\x80`},
		"the replacement character": {"\ufffd", "\ufffd"},
	} {
		assert.Equal(t, Text(test.text), test.want, test.text, "is shown as", name)
		assert.That(t, Clean([]byte(test.text)) == (test.text == test.want), "%s: Clean says otherwise of %q", name, test.text)
	}

	assert.Equal(t, Line(" a\n\tb\u2028c\x1b[2J\r\n"), `a b c\x1b[2J`)
}

// printed fails for any character that must not be printed, without calling Is.
func printed(t assert.T, text string, also string) {
	assert.Must(t, utf8.ValidString(text), "%q is no UTF-8", text)
	for _, r := range text {
		assert.Must(t, strings.ContainsRune(also, r) || unicode.IsGraphic(r) && (r == ' ' || !unicode.IsSpace(r)) && !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp),
			"%q has %U", text, r)
	}
}

var anyText = rapid.OneOf(
	rapid.String(),
	rapid.StringOf(rapid.OneOf(rapid.Rune(), rapid.RuneFrom(nil, unicode.Cf, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Zs, unicode.Other_Default_Ignorable_Code_Point))),
	rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
)

func TestOnlyPrintableCharactersRemain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := anyText.Draw(t, "text")
		printed(t, Text(text), "\n\t")
		printed(t, Line(text), "")
		got := Text(Text(text))
		assert.Must(t, got == Text(text), "%q is escaped twice: %q", text, got)
	})
}

// meansTheSame requires that escaped JSON and YAML are printable, and mean what
// they meant before.
func meansTheSame(t assert.T, text string) {
	encoded := assert.Value(json.Marshal(map[string]any{"a" + text[:min(len(text), 100)]: []any{text}}))(t) // YAML has no keys of more than 1,024 characters
	var before, inJSON, inYAML map[string]any
	printed(t, string(JSON(encoded)), "")
	printed(t, string(YAML(encoded)), "")
	assert.That(t, Clean(JSON(encoded)) && Clean(YAML(encoded)), "%q is not clean: %q, %q", text, JSON(encoded), YAML(encoded))
	assert.NoError(t, json.Unmarshal(encoded, &before))
	assert.NoError(t, json.Unmarshal(JSON(encoded), &inJSON), string(JSON(encoded)))
	assert.NoError(t, yaml.Unmarshal(YAML(encoded), &inYAML), string(YAML(encoded)))
	assert.NoDiff(t, cmp.Diff(before, inJSON), "JSON")
	assert.NoDiff(t, cmp.Diff(before, inYAML), "YAML")
}

func TestEscapedJSONAndYAMLHaveTheSameValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { meansTheSame(t, anyText.Draw(t, "text")) })
}

// inPieces requires that a Writer escapes a text in pieces like Text.
func inPieces(t assert.T, pieces ...string) {
	var got bytes.Buffer
	w := NewWriter(&got)
	for _, piece := range pieces {
		written, err := w.Write([]byte(piece))
		assert.Must(t, written == len(piece) && err == nil, "wrote %d of %d: %v", written, len(piece), err)
	}

	text := strings.Join(pieces, "")
	assert.Equal(t, got.String(), Text(text), text, "in pieces became")
}

func TestAWriterEscapesLikeText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		text = strings.ReplaceAll(text, "\r", "") // the Writer does not wait for the newline after a carriage return
		var pieces []string
		for len(text) > 0 {
			n := rapid.IntRange(1, len(text)).Draw(t, "n")
			pieces, text = append(pieces, text[:n]), text[n:]
		}

		inPieces(t, pieces...)
	})
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken") }

func TestAWriterReturnsTheErrorOfItsDestination(t *testing.T) {
	n, err := NewWriter(broken{}).Write([]byte("a"))
	assert.That(t, n == 0 && err != nil && err.Error() == "broken", "%d, %v", n, err)
}

func TestAJSONWriterKeepsJSON(t *testing.T) {
	var got bytes.Buffer
	assert.NoError(t, assert.Err(NewJSONWriter(&got).Write([]byte("{\"msg\":\"\u202e\U000e0041\"}\n"))))
	want := `{"msg":"\u202e\udb40\udc41"}` + "\n"
	assert.That(t, got.String() == want, "got %q, want %q", got.String(), want)
}

func TestTheFirstWordsShowWhetherThereAreMore(t *testing.T) {
	words := []string{"a", "b", "c"}
	for most, want := range map[int]string{0: "...", 2: "a; b; ...", 3: "a; b; c", 9: "a; b; c"} {
		assert.Equal(t, First(words, most, "; "), want, "the first", most)
	}

	assert.Equal(t, words[2], "c", "the words are as before")
	assert.Equal(t, First(nil, 3, "; "), "", "of none")
}

func TestShellQuotesWhatAShellWouldChange(t *testing.T) {
	got := Shell("/usr/bin/kubelet", "--v=2", "", "--a=b c", "$x", "it's")
	assert.Equal(t, got, `/usr/bin/kubelet --v=2 '' '--a=b c' '$x' 'it'\''s'`)
}
