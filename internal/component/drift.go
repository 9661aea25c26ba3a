// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"encoding/json"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// ConfigzDifferences returns the fields whose values in the /configz of a
// running kubelet differ from those that a dry run printed for the
// configuration that was started, sorted. The API's form, which /configz has,
// omits zero values: they equal unset ones. The values of static pod URL
// headers are masked in a dump, so only their names are compared.
func ConfigzDifferences(started, running Effective) []string {
	var fields []string
	for _, d := range payload.Diff(withoutMarks(started), withoutMarks(running)) {
		fields = append(fields, d.Field)
	}

	return fields
}

// withoutMarks returns a configuration without its type, without zero values,
// and without the values that are masked in dumps.
func withoutMarks(e Effective) Effective {
	out, _ := WithoutZeros(payload.Mask(e)).(map[string]any)
	return withoutType(out)
}

// WithoutZeros returns a copy of a decoded JSON value without unset fields,
// zeros (of json.Number), and the structures that consist of them; nil if
// nothing is left.
func WithoutZeros(value any) any {
	switch v := value.(type) {
	case map[string]any:
		left := map[string]any{}
		for name, inner := range v {
			if inner = WithoutZeros(inner); inner != nil {
				left[name] = inner
			}
		}

		if len(left) == 0 {
			return nil
		}

		return left
	case []any:
		if len(v) == 0 {
			return nil
		}
	case string, bool:
		if v == "" || v == false {
			return nil
		}
	case json.Number:
		if f, err := v.Float64(); err == nil && f == 0 {
			return nil
		}
	}

	return value
}
