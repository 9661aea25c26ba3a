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

// DecodeMapping decodes one JSON or YAML document within the limits of
// CheckLimits like the kubelet (text that starts with "{" is JSON first, and
// YAML if that fails), but rejects duplicate keys and further documents, which
// the kubelet ignores or only warns about. Numbers are json.Number. The error
// is an *Error.
func DecodeMapping(data []byte) (map[string]any, error) {
	text, err := toJSON(data)
	if err != nil {
		return nil, err
	}

	value, err := decodeJSON(text)
	if err != nil {
		return nil, syntaxError(err)
	}
	if err := tooMuch(value); err != nil {
		return nil, err
	}

	switch v := value.(type) {
	case map[string]any:
		return v, nil
	case nil:
		return nil, newError(ProblemEmpty, "empty")
	default:
		return nil, newError(ProblemSyntax, "must be a mapping of fields, not %s", describe(v))
	}
}

func decodeJSON(text []byte) (value any, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	err = dec.Decode(&value)
	return value, err
}

func toJSON(data []byte) ([]byte, error) {
	if err := tooManyValues(data); err != nil {
		return nil, err
	}

	if bytes.HasPrefix(bytes.TrimLeftFunc(data, unicode.IsSpace), []byte("{")) {
		var fields map[string]any
		if strict, err := kjson.UnmarshalStrict(data, &fields); err == nil {
			if len(strict) > 0 {
				return nil, newError(ProblemDuplicate, "%s", singleLine(strict[0].Error()))
			}

			return data, nil
		}
	}

	if err := CheckOneDocument(data); err != nil {
		return nil, err
	}

	text, err := yaml.YAMLToJSONStrict(data)
	switch {
	case err == nil:
		return text, nil
	// CheckOneDocument parsed the text, so the error is a duplicate key or a
	// key that JSON does not support.
	case strings.Contains(err.Error(), "already set in map"):
		return nil, newError(ProblemDuplicate, "duplicate key: %s", singleLine(err.Error()))
	default:
		return nil, syntaxError(err)
	}
}

func syntaxError(err error) error {
	return newError(ProblemSyntax, "neither JSON nor YAML: %s", singleLine(err.Error()))
}

// CheckOneDocument returns an error unless data is exactly one YAML document
// within the limits of CheckLimits. A kubelet or kube-proxy would silently read
// only the first document.
func CheckOneDocument(data []byte) error {
	if err := tooManyValues(data); err != nil {
		return err
	}
	if err := tooManyAliases(data); err != nil {
		return err
	}

	dec := yamlv2.NewDecoder(bytes.NewReader(data))
	for n := 1; ; n++ {
		var doc any
		err := dec.Decode(&doc)
		refused := tooMuch(doc)
		switch {
		case errors.Is(err, io.EOF) && n == 1:
			return newError(ProblemEmpty, "empty")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && n == 1:
			return syntaxError(err)
		case refused != nil:
			return refused
		case n > 1 && (err != nil || doc != nil):
			return newError(ProblemDocuments, "more than one YAML document")
		}
	}
}

// singleLine formats an error as one line that fits a status.
func singleLine(text string) string {
	return printable.Truncate(strings.Join(strings.Fields(text), " "), 300)
}

func quote(s string) string { return fmt.Sprintf("%q", singleLine(s)) }

// fieldErrors are the errors in a grouped configuration, in the order of their
// paths.
type fieldErrors []fieldError

type fieldError struct {
	problem Problem
	message string
}

func (f *fieldErrors) add(problem Problem, path, words string) {
	*f = append(*f, fieldError{problem, path + ": " + words})
}

// err combines the first errors, so that a hostile payload cannot fill a
// status.
func (f fieldErrors) err() error {
	const most = 3
	var words []string
	for _, e := range f[:min(len(f), most)] {
		words = append(words, e.message)
	}
	if len(f) > most {
		words = append(words, fmt.Sprintf("and %d more", len(f)-most))
	}

	return newError(f[0].problem, "%s", strings.Join(words, "; "))
}

// pathPart returns a key for a path: unchanged if it could be the name of a
// field, otherwise quoted.
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

// maxShown limits, in bytes, how much of a payload's text one part of a message
// quotes.
const maxShown = 100

func quoteShort(s string) string { return quote(printable.Truncate(s, maxShown)) }
