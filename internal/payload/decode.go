// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	yamlv2 "go.yaml.in/yaml/v2"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/internal/printable"
)

// DecodeMapping decodes one JSON or YAML document within the limits of CheckLimits, without duplicate keys. Numbers are
// json.Number. The error is an *Error.
func DecodeMapping(data []byte) (map[string]any, error) {
	fields, refused := decodeFields(data)
	if refused != nil {
		return nil, refused
	}
	return fields, nil
}

// decodeFields decodes JSON or YAML like the kubelet (text that starts with "{" is JSON first, and YAML if that
// fails), but rejects duplicate keys and further documents, which the kubelet ignores or only warns about. Numbers are
// json.Number.
func decodeFields(data []byte) (map[string]any, *Error) {
	text, refused := toJSON(data)
	if refused != nil {
		return nil, refused
	}
	var value any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&value); err != nil {
		return nil, syntaxError(err)
	}
	if refused := tooMuch(value); refused != nil {
		return nil, refused
	}
	switch v := value.(type) {
	case map[string]any:
		return v, nil
	case nil:
		return nil, &Error{Problem: ProblemEmpty, Message: "empty"}
	default:
		return nil, &Error{Problem: ProblemSyntax, Message: "must be a mapping of fields, not " + describe(v)}
	}
}

func toJSON(data []byte) ([]byte, *Error) {
	if refused := tooManyValues(data); refused != nil {
		return nil, refused
	}
	if bytes.HasPrefix(bytes.TrimLeftFunc(data, unicode.IsSpace), []byte("{")) {
		var fields map[string]any
		if strict, err := kjson.UnmarshalStrict(data, &fields); err == nil {
			if len(strict) > 0 {
				return nil, &Error{Problem: ProblemDuplicate, Message: singleLine(strict[0].Error())}
			}
			return data, nil
		}
	}
	if refused := CheckOneDocument(data); refused != nil {
		return nil, refused
	}
	text, err := yaml.YAMLToJSONStrict(data)
	switch {
	case err == nil:
		return text, nil
	// CheckOneDocument parsed the text, so the error is a duplicate key or a key that JSON does not support.
	case strings.Contains(err.Error(), "already set in map"):
		return nil, &Error{Problem: ProblemDuplicate, Message: "duplicate key: " + singleLine(err.Error())}
	default:
		return nil, syntaxError(err)
	}
}

func syntaxError(err error) *Error {
	return &Error{Problem: ProblemSyntax, Message: "neither JSON nor YAML: " + singleLine(err.Error())}
}

// CheckOneDocument returns an error unless data is exactly one YAML document within the limits of CheckLimits. A kubelet or
// kube-proxy would silently read only the first document.
func CheckOneDocument(data []byte) *Error {
	if refused := tooManyValues(data); refused != nil {
		return refused
	}
	if words := tooManyAliases(data); words != "" {
		return &Error{Problem: ProblemTooLarge, Message: words}
	}
	dec := yamlv2.NewDecoder(bytes.NewReader(data))
	for n := 1; ; n++ {
		var doc any
		err := dec.Decode(&doc)
		refused := tooMuch(doc)
		switch {
		case errors.Is(err, io.EOF) && n == 1:
			return &Error{Problem: ProblemEmpty, Message: "empty"}
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && n == 1:
			return syntaxError(err)
		case refused != nil:
			return refused
		case n > 1 && (err != nil || doc != nil):
			return &Error{Problem: ProblemDocuments, Message: "more than one YAML document"}
		}
	}
}

// singleLine formats an error as one line that fits a status.
func singleLine(text string) string {
	return printable.Truncate(strings.Join(strings.Fields(text), " "), 300)
}

func quote(s string) string { return fmt.Sprintf("%q", singleLine(s)) }

// fieldErrors are the errors in a grouped configuration, in the order of their paths.
type fieldErrors []fieldError

type fieldError struct {
	problem Problem
	message string
}

func (f *fieldErrors) add(problem Problem, path, words string) {
	*f = append(*f, fieldError{problem, path + ": " + words})
}

// err combines the first errors, so that a hostile payload cannot fill a status.
func (f fieldErrors) err() *Error {
	const most = 3
	err := &Error{Problem: f[0].problem}
	var words []string
	for _, e := range f[:min(len(f), most)] {
		words = append(words, e.message)
	}
	err.Message = strings.Join(words, "; ")
	if len(f) > most {
		err.Message += fmt.Sprintf("; and %d more", len(f)-most)
	}
	return err
}

// pathPart returns a key for a path: unchanged if it could be the name of a field, otherwise quoted.
func pathPart(key string) string {
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	}
	if key == "" || len(key) > maxShown || strings.IndexFunc(key, odd) >= 0 {
		return quoteShort(key)
	}
	return key
}

// describe returns a scalar value, or the type of another value, for a message.
func describe(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	case string:
		return quoteShort(v)
	default:
		return printable.Truncate(fmt.Sprint(v), maxShown)
	}
}

// maxShown limits, in bytes, how much of a payload's text one part of a message quotes.
const maxShown = 100

func quoteShort(s string) string { return quote(printable.Truncate(s, maxShown)) }
