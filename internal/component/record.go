// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// record is a log record of a component, in klog's text format or in JSON. Its
// values, such as err, can quote anything from a configuration. Its message
// cannot, so only the message says what the component did.
type record struct {
	message string // unquoted; of a record that is not structured, the whole text
	text    string // the record without its header; in JSON the message
	pairs   []pair
	open    string // the key of a value that is on the following lines: `"message" key=<`
}

type pair struct{ key, value string }

// value returns the first value with a key; empty: there is none.
func (r record) value(key string) string {
	for _, p := range r.pairs {
		if p.key == key {
			return p.value
		}
	}

	return ""
}

var klogHeader = regexp.MustCompile(`^[IWEF][0-9]{4} [0-9:.]{15} +[0-9]+ [^ \]]+:[0-9]+\] `)

// parseRecord parses the first line of a record. ok is false if the line is not
// one.
func parseRecord(line string) (r record, ok bool) {
	header := klogHeader.FindString(line)
	if header == "" {
		return parseJSON(line)
	}

	r.text = line[len(header):]
	r.message = r.text
	if quoted, err := strconv.QuotedPrefix(r.text); err == nil && quoted[0] == '"' {
		r.message, _ = strconv.Unquote(quoted)
		r.pairs, r.open = parsePairs(r.text[len(quoted):])
	}

	return r, true
}

// parsePairs parses the values of a record in the text format: ` key="value"
// key=value`.
func parsePairs(rest string) (pairs []pair, open string) {
	for {
		key, after, ok := strings.Cut(strings.TrimLeft(rest, " "), "=")
		switch {
		case !ok:
			return pairs, ""
		case after == "<":
			return pairs, key
		}

		var value string
		value, rest = firstValue(after)
		pairs = append(pairs, pair{key, value})
	}
}

// firstValue splits the text after `key=` into the first value (a quoted
// string, JSON, or a word) and the rest.
func firstValue(text string) (value, rest string) {
	if quoted, err := strconv.QuotedPrefix(text); err == nil {
		value, _ = strconv.Unquote(quoted)
		return value, text[len(quoted):]
	}

	if strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[") {
		var raw json.RawMessage
		dec := json.NewDecoder(strings.NewReader(text))
		if err := dec.Decode(&raw); err == nil {
			return string(raw), text[dec.InputOffset():]
		}
	}

	value, rest, _ = strings.Cut(text, " ")

	return value, rest
}

// parseJSON parses a record in the JSON format. The logger writes its own
// fields first, so the first "msg" is the message.
func parseJSON(line string) (r record, ok bool) {
	if !strings.HasPrefix(line, "{") || !json.Valid([]byte(line)) {
		return record{}, false
	}

	dec := json.NewDecoder(strings.NewReader(line))
	_, _ = dec.Token() // no call fails, because the line is valid
	for dec.More() {
		var raw json.RawMessage
		key, _ := dec.Token()
		_ = dec.Decode(&raw)
		value := string(raw)
		_ = json.Unmarshal(raw, &value) // what is not a string keeps its text
		switch {
		case key == "msg" && !ok:
			r.message, r.text, ok = value, value, true
		default:
			r.pairs = append(r.pairs, pair{key.(string), value})
		}
	}

	return r, ok
}
