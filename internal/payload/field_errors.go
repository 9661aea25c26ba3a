// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"fmt"
	"strings"

	"github.com/evenkeel/evenkeel/internal/printable"
)

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
