// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	yamlv2 "go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Limits of untrusted text, for all programs that decode or reformat it.
// Without them, 1 MiB of text can need gigabytes of memory.
const (
	// maxDepth limits the nesting of mappings and lists. A kubelet
	// configuration needs fewer than ten levels.
	maxDepth = 50
	// maxSeparators limits the characters that can separate values: commas,
	// colons, opening brackets and dashes. A decoder needs some hundred bytes
	// for each value, however short. A kubelet configuration has some hundred
	// separators.
	maxSeparators = 100_000
	// maxRendered limits the size of the text, in bytes, when each value is
	// written with its path or on an indented line.
	maxRendered = 16 << 20
)

// CheckLimits returns an error if data, JSON or YAML of any kind with any
// number of documents, is nested too deep, has too many values, too large
// aliases, or keys so long that a list of all fields would be too large. It
// returns nil for other text, which its decoder rejects. It needs some MiB of
// memory.
func CheckLimits(data []byte) error {
	if err := tooManyValues(data); err != nil {
		return err
	}

	if json.Valid(data) {
		value, _ := decodeJSON(data) // cannot fail: it is valid
		return tooMuch(value)
	}

	if err := tooManyAliases(data); err != nil {
		return err
	}

	for dec := yamlv2.NewDecoder(bytes.NewReader(data)); ; {
		var doc any
		if err := dec.Decode(&doc); err != nil {
			return nil
		}
		if err := tooMuch(doc); err != nil {
			return err
		}
	}
}

// Indentable reports whether JSON may be indented by two spaces for each level,
// as JSON or YAML: the size of nested text grows with the square of its depth.
func Indentable(text []byte) bool {
	const indent = 2
	size, depth, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		c := text[i]
		size++
		switch {
		case quoted && c == '\\':
			i++
			size++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			size += 1 + indent*depth
		case c == '}' || c == ']':
			depth--
			size += 1 + indent*max(depth, 0)
		case c == ',':
			size += 1 + indent*max(depth, 0)
		}
	}

	return size <= maxRendered+8*len(text)
}

// tooManyValues rejects text that needs much memory to decode. It counts single
// characters, including those in strings and comments.
func tooManyValues(data []byte) error {
	separators := 0
	for i, c := range data {
		switch c {
		case ',', ':', '[', '{':
			separators++
		case '-', '?': // a list item or mapping key, unless a name follows
			if i+1 == len(data) || data[i+1] <= ' ' || data[i+1] >= 0x80 {
				separators++
			}
		}
	}

	if separators <= maxSeparators {
		return nil
	}

	return newError(ProblemTooLarge, "too many values: its text has more than %d commas, colons, brackets and dashes", maxSeparators)
}

// tooMuch rejects a decoded value that is nested too deep, or whose fields
// would be too large if listed with their paths.
func tooMuch(value any) error {
	m := measure{left: maxRendered}
	switch m.visit(value, 0, 0); {
	case m.deep:
		return newError(ProblemTooDeep, "nested more than %d levels deep", maxDepth)
	case m.left < 0:
		return newError(ProblemTooLarge, "the fields with their full paths exceed %d MiB: shorten the keys of nested mappings", maxRendered>>20)
	}

	return nil
}

// measure is the state of a walk over a decoded value.
type measure struct {
	left int // bytes left of maxRendered
	deep bool
}

// visit handles a value at this depth, whose path has this length in bytes.
func (m *measure) visit(value any, depth, path int) {
	m.left -= path + 1
	switch value.(type) {
	case map[string]any, map[any]any, []any:
		m.deep = m.deep || depth >= maxDepth
	}

	if m.deep || m.left < 0 {
		return
	}

	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			m.visit(inner, depth+1, path+1+len(key))
		}
	case map[any]any:
		for key, inner := range v {
			name, _ := key.(string)
			m.visit(inner, depth+1, path+1+len(name))
		}
	case []any:
		for _, inner := range v {
			m.visit(inner, depth+1, path)
		}
	case string:
		m.left -= len(v)
	case json.Number:
		m.left -= len(v)
	}
}

var yamlName = regexp.MustCompile(`[&*][-0-9A-Z_a-z]+`)

// tooManyAliases returns an error if data must not be decoded as YAML: with
// expanded aliases it may exceed MaxSize. A decoder's own limit counts the
// aliases, but not the size of the values that they repeat.
//
// An alias repeats an earlier value, so each alias at most doubles the size.
// Text that only looks like an alias, in a string or a comment, counts too,
// because only a parser could tell.
func tooManyAliases(data []byte) error {
	data = bytes.ReplaceAll(data, []byte{0}, nil) // UTF-16 has a zero byte beside each letter
	anchors, uses := map[string]bool{}, map[string]int{}
	for _, found := range yamlName.FindAll(data, -1) {
		if name := string(found[1:]); found[0] == '&' {
			anchors[name] = true
		} else {
			uses[name]++
		}
	}

	aliases := 0
	for name := range anchors {
		aliases += uses[name]
	}

	const most = 20 // one byte, doubled 20 times, is MaxSize
	if aliases == 0 || aliases <= most && len(data)<<aliases <= MaxSize {
		return nil
	}

	return newError(ProblemTooLarge, "its YAML aliases may expand to more than 1 MiB: replace the aliases with their values")
}

// Limits of a quantity's text. The parser computes every digit that an exponent
// stands for: 1e999999999 takes it minutes.
const (
	maxQuantityLength = 64
	maxExponentDigits = 2
)

// ParseQuantity parses a quantity in text of other people. It refuses text that
// would take long.
func ParseQuantity(text string) (resource.Quantity, error) {
	if len(text) > maxQuantityLength {
		return resource.Quantity{}, fmt.Errorf("quantity of %d bytes", len(text))
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 && len(strings.TrimLeft(text[i+1:], "+-0")) > maxExponentDigits {
		return resource.Quantity{}, fmt.Errorf("quantity with the exponent %s", text[i+1:])
	}

	return resource.ParseQuantity(text)
}
