// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestMaskKeepsOnlySchemeAndHostOfAURLInACopy(t *testing.T) {
	for value, want := range map[any]any{
		"https://host/":           "https://host/",
		"https://host:8443":       "https://host:8443",
		"https://host/t0ken":      "https://host/masked",
		"https://me:t0ken@host":   "https://host/masked",
		"https://t0ken@[::1]:80/": "https://[::1]:80/masked",
		"https://host?t0ken":      "https://host/masked",
		"https:t0ken":             "masked",
		"host/t0ken":              "masked",
		"https://ho st/t0ken":     "masked",
		"https://host/%zz":        "masked",
		"":                        "",
		nil:                       nil,
		7:                         "masked",
	} {
		fields := func(url any) object { return object{"staticPodURL": url, "StaticPodURL": url, "maxPods": 7} }
		given := fields(value)
		assert.NoDiff(t, cmp.Diff(fields(want), Mask(given)), value)
		assert.NoDiff(t, cmp.Diff(fields(value), given), value, "changed")
	}

	assert.NoDiff(t, cmp.Diff(object(nil), Mask(nil)), "of nothing")
}

func TestMaskKeepsOnlyTheNamesOfHeaders(t *testing.T) {
	for name, tt := range map[string]struct{ value, want any }{
		"headers":    {object{"A": []any{"t0ken", "t0ken"}, "B": "t0ken", "C": []any{}}, object{"A": []any{"masked"}, "B": []any{"masked"}, "C": []any{}}},
		"none":       {object{}, object{}},
		"nothing":    {nil, nil},
		"no mapping": {[]any{"t0ken"}, "masked"},
	} {
		given := fmt.Sprint(tt.value)
		assert.NoDiff(t, cmp.Diff(object{"staticPodURLHeader": tt.want}, Mask(object{"staticPodURLHeader": tt.value})), name)
		assert.Equal(t, fmt.Sprint(tt.value), given, name, "changed")
	}
}
