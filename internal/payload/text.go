package payload

import (
	"maps"
	"slices"
)

// TextViolations returns the protected fields that a candidate does not write as the local configuration does, by path,
// where nobody can tell what a kubelet makes of them. Both have the API's names; null is kept. A whole candidate must
// write each protected field as it is written locally, or leave it out where it is left out; a drop-in must not set one to
// another value that its limit does not allow. Null on or above a protected field is a difference.
func (p Protection) TextViolations(candidate, local map[string]any, dropin bool) []Difference {
	written, under := map[string]any{}, map[string]any{}
	p.writes("", candidate, written)
	p.writes("", local, under)
	for _, key := range []string{keyAPIVersion, keyKind} {
		delete(written, key)
		delete(under, key)
	}
	paths := maps.Clone(written)
	if !dropin {
		maps.Copy(paths, under)
	}
	localPaths := slices.Sorted(maps.Keys(under))
	var violations []Difference
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		value, given := written[path]
		was, wasGiven := under[path]
		switch {
		case given && wasGiven && value != nil && was != nil && strictlySame(value, was):
		case given && value != nil && p.allows(path, value, was):
		case dropin && isEmptyMapping(value) && anyBelow(path, localPaths):
			// It changes nothing of what is below.
		default:
			d := p.violation(path, value, was)
			if given && value == nil {
				d.Value = "null"
			}
			if !wasGiven && anyBelow(path, localPaths) {
				d.Local = "a mapping"
			}
			violations = append(violations, d)
		}
	}
	return violations
}

// writes adds the protected leaves of a configuration to leaves, by path. An empty mapping is a leaf, and so is null.
func (p Protection) writes(path string, value any, leaves map[string]any) {
	if fields, ok := value.(map[string]any); ok && (len(fields) > 0 || path == "") {
		for key, inner := range fields {
			p.writes(JoinPath(path, key), inner, leaves)
		}
		return
	}
	if p.protects(path) {
		leaves[path] = value
	}
}

// strictlySame compares what is written: an empty list or mapping is not the same as none.
func strictlySame(a, b any) bool { return empty(a) == empty(b) && same(a, b) }

func isEmptyMapping(value any) bool {
	fields, ok := value.(map[string]any)
	return ok && len(fields) == 0
}
