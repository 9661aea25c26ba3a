package payload

import (
	"fmt"
	"strings"
)

// fieldErrors are the errors in a grouped configuration, in the order of their paths.
type faults []fault

type fault struct {
	problem Problem
	words   string
}

func (f *faults) add(problem Problem, path, words string) {
	*f = append(*f, fault{problem, path + ": " + words})
}

// err combines the first errors, so that a hostile payload cannot fill a status.
func (f faults) refusal() *Error {
	const most = 3
	e := &Error{Problem: f[0].problem}
	var words []string
	for _, fault := range f[:min(len(f), most)] {
		words = append(words, fault.words)
	}
	e.Words = strings.Join(words, "; ")
	if len(f) > most {
		e.Words += fmt.Sprintf("; and %d more", len(f)-most)
	}
	return e
}

// pathPart returns a key for a path: unchanged if it could be the name of a field, otherwise quoted.
func pathPart(key string) string {
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	}
	if key == "" || len(key) > mostShown || strings.IndexFunc(key, odd) >= 0 {
		return quoteShort(key)
	}
	return key
}

// describe returns a scalar value, or the type of another value, for a message.
func shown(value any) string {
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
		return clip(fmt.Sprint(v))
	}
}

// maxShown limits, in bytes, how much of a payload's text one part of a message quotes.
const mostShown = 100

func quoteShort(s string) string { return quote(clip(s)) }

func clip(s string) string {
	if len(s) <= mostShown {
		return s
	}
	return strings.ToValidUTF8(s[:mostShown], "") + "..."
}
