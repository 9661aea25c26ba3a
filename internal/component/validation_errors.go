// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// Limits of what objections validates again for better words.
const (
	maxCopies   = 12
	copiesLimit = 30 * time.Second // in all; a run that is cut short gives no answer
)

// rejectedGate matches an error about one feature gate and captures the name.
var rejectedGate = regexp.MustCompile(`unrecognized feature gate: ([^\s,;\]]+)` +
	`|cannot set feature gate (\S+) to \w+, feature is locked to \w+`)

// namesName matches an error about a name that is in the configuration.
var namesName = regexp.MustCompile(`unknown field|feature gate`)

// ValidationErrors returns the verdict on a configuration and, if it is
// rejected, all errors: see objections.
func ValidationErrors(ctx context.Context, c Component, data []byte) (Verdict, []string) {
	v := c.Validate(ctx, data)
	return v, objections(ctx, v, data, c.Validate)
}

// objections returns all errors about a configuration with a verdict; nil if it
// is not rejected. A binary reports only one unknown feature gate at a time, so
// the reported gates are removed from a copy that is validated again, up to a
// limit. Errors about gates come first, sorted by name. If a later validation
// gives no answer, the last one says that errors may be missing. An error that
// names no field gets the name and the value of the field without which it does
// not occur.
func objections(ctx context.Context, v Verdict, data []byte, validate func(context.Context, []byte) Verdict) []string {
	ctx, cancel := context.WithTimeout(ctx, copiesLimit)
	defer cancel()
	copies := 0
	again := func(data []byte) Verdict {
		if copies++; copies > maxCopies || ctx.Err() != nil {
			return Verdict{}
		}

		return validate(ctx, data)
	}
	var gates []string
	var rest, strict string
	for v.Outcome == Rejected {
		message, unknownFields := cutStrict(v.Message)
		if strict == "" { // the copy has other line numbers and no duplicate keys
			strict = unknownFields
		}

		refused, remaining := withoutRejectedGates(data, message)
		if remaining == nil {
			if rest = message; rest != "" && !namesName.MatchString(rest) {
				rest = culprit(v, message, data, again) + rest
			}

			break
		}

		gates = append(gates, refused...)
		data = remaining
		v = again(data)
	}

	slices.Sort(gates)
	more := ""
	if len(gates) > 0 && v.Outcome == CouldNotTell {
		more = "correct these and ask again: there may be more errors"
	}

	for _, message := range []string{rest, strict, more} {
		if message != "" {
			gates = append(gates, message)
		}
	}

	return gates
}

// culprit returns the field that the error of a rejection is about and its
// value, as `evictionHard[memory.available]: "x": `. It returns "" if the error
// names a field itself, or if there is no single field without which the same
// stage accepts. A field that has the value of the local configuration, which
// passed, is not the cause.
func culprit(rejection Verdict, message string, data []byte, validate func([]byte) Verdict) string {
	fields := decoded(data)
	delete(fields, "apiVersion")
	delete(fields, "kind")
	delete(fields, cgroupField) // without it, a host with cgroup v1 has another error
	type leaf struct{ field, key string }
	var suspects []leaf
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if regexp.MustCompile(`(?i)\b` + regexp.QuoteMeta(field) + `\b`).MatchString(message) {
			return ""
		}

		inner, _ := fields[field].(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(inner)) {
			if !rejection.isLocal(field, key) {
				suspects = append(suspects, leaf{field, key})
			}
		}

		if len(inner) == 0 && !rejection.isLocal(field) {
			suspects = append(suspects, leaf{field, ""})
		}
	}

	caused := func(by []leaf) bool {
		without := decoded(data)
		for _, l := range by {
			if inner, ok := without[l.field].(map[string]any); ok && l.key != "" {
				delete(inner, l.key)
			} else {
				delete(without, l.field)
			}
		}

		rest, _ := json.Marshal(without) // cannot fail: it was decoded from JSON
		// Without a protected field, a later stage does not run, or nothing
		// does: that proves nothing.
		v := validate(rest)

		return v.Outcome == Accepted && v.Stage >= rejection.Stage && len(v.Violations) == 0
	}
	for len(suspects) > 1 {
		if half := suspects[:len(suspects)/2]; caused(half) {
			suspects = half
		} else {
			suspects = suspects[len(half):]
		}
	}

	if len(suspects) == 0 || !caused(suspects) {
		return ""
	}

	var value any = fields[suspects[0].field]
	if key := suspects[0].key; key != "" {
		value = map[string]any{key: value.(map[string]any)[key]}
	}

	named := payload.Diff(map[string]any{suspects[0].field: value}, nil)
	switch {
	case len(named) != 1:
		return ""
	case value == nil:
		return suspects[0].field + ": null: "
	}

	return fmt.Sprintf("%s: %s: ", named[0].Field, named[0].Value)
}

// isLocal reports whether a field, or a key of it, is known to have the value
// of the local configuration.
func (v Verdict) isLocal(names ...string) bool {
	var path []segment
	for _, name := range names {
		path = append(path, segment{name: name})
	}

	value, set := v.Effective.field(path)
	local, setToo := v.Local.field(path)

	return set && setToo && reflect.DeepEqual(value, local)
}

// decoded returns the fields of a configuration; nil if it cannot be decoded.
func decoded(data []byte) map[string]any {
	l, _ := newLayer(data, "")
	return l.fields
}

// cutStrict splits a rejection into the errors of lenient decoding and those of
// strict decoding.
func cutStrict(message string) (string, string) {
	const strict, separator = "strict decoding error: ", "; "
	if strings.HasPrefix(message, strict) {
		return "", message
	}
	if i := strings.Index(message, separator+strict); i >= 0 {
		return message[:i], message[i+len(separator):]
	}

	return message, ""
}

// withoutRejectedGates returns the errors about single feature gates in a
// message, and the configuration without these gates as JSON; nil if there are
// none to remove.
func withoutRejectedGates(data []byte, message string) (refused []string, remaining []byte) {
	fields := decoded(data)
	gates, _ := fields["featureGates"].(map[string]any)
	for _, match := range rejectedGate.FindAllStringSubmatch(message, -1) {
		name := match[1] + match[2] // one of them is empty
		if _, ok := gates[name]; ok {
			refused = append(refused, match[0])
			delete(gates, name)
		}
	}

	if len(refused) == 0 {
		return nil, nil
	}

	remaining, _ = json.Marshal(fields) // cannot fail: it was decoded from JSON

	return refused, remaining
}
