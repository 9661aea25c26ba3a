// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

// SetBy returns the protected fields that a configuration sets, sorted by path. A node refuses those whose values differ from its
// local configuration. Values that the limit of a field always allows are not returned, and fields that are not in Fields neither.
func (p Protection) SetBy(fields map[string]any) []Difference {
	known := map[string]any{}
	for key, value := range fields {
		if name, field := names.find(key); field != nil {
			known[name] = field.canonicalValue(value)
		}
	}
	var set []Difference
	for _, d := range p.Violations(known, nil, nil) {
		if lookupField(d.Field) != nil {
			set = append(set, d)
		}
	}
	return set
}
