package payload

import (
	"maps"
	"slices"
)

// TextViolations returns the protected fields whose values in the files of a candidate differ from the local files,
// sorted by path. It is used if the effective values are unknown. Both have the API's names and keep null. In a whole
// candidate, each protected field must have the local value, or be unset if it is unset locally. A drop-in must not
// set another value, unless the limit of the field allows it. Null in or above a protected field is a violation.
func (p Protection) TextViolations(candidate, local map[string]any, dropin bool) []Difference {
	written, localLeaves := map[string]any{}, map[string]any{}
	p.collectProtected("", candidate, written)
	p.collectProtected("", local, localLeaves)
	for _, key := range []string{keyAPIVersion, keyKind} {
		delete(written, key)
		delete(localLeaves, key)
	}
	paths := maps.Clone(written)
	if !dropin {
		maps.Copy(paths, localLeaves)
	}
	localPaths := slices.Sorted(maps.Keys(localLeaves))
	var violations []Difference
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		value, given := written[path]
		localValue, localGiven := localLeaves[path]
		switch {
		case given && localGiven && value != nil && localValue != nil && strictlySame(value, localValue):
		case given && value != nil && p.allows(path, value, localValue):
		case dropin && isEmptyMapping(value) && anyBelow(path, localPaths):
			// An empty mapping in a drop-in changes nothing below it.
		default:
			d := p.violation(path, value, localValue)
			if given && value == nil {
				d.Value = "null"
			}
			if !localGiven && anyBelow(path, localPaths) {
				d.Local = "a mapping"
			}
			violations = append(violations, d)
		}
	}
	return violations
}

// collectProtected collects the protected leaves of a configuration by path. An empty mapping is a leaf, and so is null.
func (p Protection) collectProtected(path string, value any, leaves map[string]any) {
	if fields, ok := value.(map[string]any); ok && (len(fields) > 0 || path == "") {
		for key, inner := range fields {
			p.collectProtected(JoinPath(path, key), inner, leaves)
		}
		return
	}
	if p.protects(path) {
		leaves[path] = value
	}
}

// strictlySame compares values in files: an empty list or mapping does not equal an unset field.
func strictlySame(a, b any) bool { return empty(a) == empty(b) && same(a, b) }

func isEmptyMapping(value any) bool {
	fields, ok := value.(map[string]any)
	return ok && len(fields) == 0
}
