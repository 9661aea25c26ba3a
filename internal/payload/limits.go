package payload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"

	yamlv2 "go.yaml.in/yaml/v2"
)

// Limits of text that somebody else wrote, wherever it is decoded or written anew: a node's agent, the controller, the
// command line. Without them 1 MiB takes gigabytes.
const (
	// maxDepth is how deep mappings and lists may be nested. The kubelet's own configuration needs fewer than ten levels.
	maxDepth = 50
	// maxMarks is how many characters of a text may separate values: commas, colons, opening brackets and dashes. A
	// decoder needs some hundred bytes for each value, however short it is. A kubelet's configuration has some hundred.
	maxMarks = 100_000
	// maxRendered bounds what a text grows to if each value is written with its path, or on an indented line, in bytes.
	maxRendered = 16 << 20
)

// Limits returns what is wrong with the size of data, JSON or YAML of any kind and of any number of documents: nested too
// deep, too many values, aliases that may take all memory, or keys so long that a list of all fields would. It returns nil
// for text that is neither JSON nor YAML: that is for its decoder to refuse. Finding out takes some MiB.
func Limits(data []byte) *Error {
	if refused := tooManyValues(data); refused != nil {
		return refused
	}
	if json.Valid(data) {
		if depth, _ := jsonShape(data); depth > maxDepth {
			return nestedTooDeep()
		}
		var value any
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber()
		if err := dec.Decode(&value); err != nil {
			return nil
		}
		return tooMuch(value)
	}
	if words := tooManyAliases(data); words != "" {
		return &Error{Problem: ProblemTooLarge, Words: words}
	}
	for dec := yamlv2.NewDecoder(bytes.NewReader(data)); ; {
		var doc any
		if err := dec.Decode(&doc); err != nil {
			return nil
		}
		if refused := tooMuch(doc); refused != nil {
			return refused
		}
	}
}

// Indentable reports whether JSON may be written with indentation, as JSON or as YAML: what is nested deep grows with the
// square of its depth.
func Indentable(text []byte) bool {
	_, indented := jsonShape(text)
	return indented <= maxRendered+8*len(text)
}

// tooManyValues refuses what takes a decoder much memory for little text. It looks at no more than single characters:
// strings and comments count as well.
func tooManyValues(data []byte) *Error {
	marks := 0
	for i, c := range data {
		switch c {
		case ',', ':', '[', '{':
			marks++
		case '-', '?': // of a list or a mapping, if no letter of a name follows
			if i+1 == len(data) || data[i+1] <= ' ' || data[i+1] >= 0x80 {
				marks++
			}
		}
	}
	if marks <= maxMarks {
		return nil
	}
	return &Error{Problem: ProblemTooLarge, Words: fmt.Sprintf("too many values: its text has more than %d commas, colons, brackets and dashes", maxMarks)}
}

// jsonShape returns how deep JSON is nested, and how many bytes it has on indented lines, two spaces for each level.
func jsonShape(text []byte) (deepest, indented int) {
	const indent = 2
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		c := text[i]
		indented++
		switch {
		case quoted && c == '\\':
			i++
			indented++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
			indented += 1 + indent*depth
		case c == '}' || c == ']':
			depth--
			indented += 1 + indent*max(depth, 0)
		case c == ',':
			indented += 1 + indent*max(depth, 0)
		}
	}
	return deepest, indented
}

// tooMuch refuses a decoded value that is nested too deep, or that would grow too much if all fields were listed with their
// paths.
func tooMuch(value any) *Error {
	m := measure{room: maxRendered}
	switch m.visit(value, 0, 0); {
	case m.deep:
		return nestedTooDeep()
	case m.room < 0:
		return &Error{Problem: ProblemTooLarge, Words: fmt.Sprintf("its fields, each with its path, are larger than %d MiB: "+
			"shorten the keys that others are nested in", maxRendered>>20)}
	}
	return nil
}

// measure is what a walk over a decoded value has found.
type measure struct {
	room int // of maxRendered, in bytes
	deep bool
}

// visit takes a value at a depth whose path has so many bytes.
func (m *measure) visit(value any, depth, path int) {
	m.room -= path + 1
	if m.deep || m.room < 0 {
		return
	}
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			m.below(inner, depth, path+1+len(key))
		}
	case map[any]any:
		for key, inner := range v {
			name, _ := key.(string)
			m.below(inner, depth, path+1+len(name))
		}
	case []any:
		for _, inner := range v {
			m.below(inner, depth, path)
		}
	case string:
		m.room -= len(v)
	case json.Number:
		m.room -= len(v)
	}
	if depth == maxDepth && isNest(value) {
		m.deep = true
	}
}

func (m *measure) below(value any, depth, path int) {
	if depth < maxDepth {
		m.visit(value, depth+1, path)
	}
}

func isNest(value any) bool {
	switch value.(type) {
	case map[string]any, map[any]any, []any:
		return true
	}
	return false
}

func nestedTooDeep() *Error {
	return &Error{Problem: ProblemTooDeep, Words: fmt.Sprintf("nested more than %d levels deep", maxDepth)}
}

var yamlName = regexp.MustCompile(`[&*][-0-9A-Z_a-z]+`)

// tooManyAliases says why data is not to be decoded as YAML: with its aliases written out it might be larger than
// MaxSize. "" if it may be. A decoder's own guard counts the aliases, but not how long a value it repeats.
//
// An alias stands for something before it, so that each at most doubles the whole. What only looks like an alias, in a
// string or a comment, counts as well: only a parser could tell, and that is what must not be asked.
func tooManyAliases(data []byte) string {
	data = bytes.ReplaceAll(data, []byte{0}, nil) // in UTF-16 there is one beside each letter of a name
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
	const most = 20 // doubled as often, one byte is MaxSize
	if aliases == 0 || aliases <= most && len(data)<<aliases <= MaxSize {
		return ""
	}
	return "its YAML aliases may expand to more than 1 MiB: write out what they stand for"
}
