// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestMaskKeepsOnlySchemeAndHostOfAURL(t *testing.T) {
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
		got := Mask(object{"staticPodURL": value, "StaticPodURL": value, "maxPods": 7})
		assert.NoDiff(t, cmp.Diff(object{"staticPodURL": want, "StaticPodURL": want, "maxPods": 7}, got), value)
	}
}

func TestMaskKeepsOnlyTheNamesOfHeaders(t *testing.T) {
	for name, tt := range map[string]struct{ value, want any }{
		"headers":    {object{"A": []any{"t0ken", "t0ken"}, "B": "t0ken", "C": []any{}}, object{"A": []any{"masked"}, "B": []any{"masked"}, "C": []any{}}},
		"none":       {object{}, object{}},
		"nothing":    {nil, nil},
		"no mapping": {[]any{"t0ken"}, "masked"},
	} {
		assert.NoDiff(t, cmp.Diff(object{"staticPodURLHeader": tt.want}, Mask(object{"staticPodURLHeader": tt.value})), name)
	}
}

func TestMaskReturnsACopy(t *testing.T) {
	config := func() object {
		return object{"staticPodURL": "https://host/t0ken", "staticPodURLHeader": object{"A": []any{"t0ken"}}}
	}
	given := config()
	Mask(given)
	assert.NoDiff(t, cmp.Diff(config(), given))
	got := Mask(nil)
	assert.That(t, got == nil, "of nothing it makes %v", got)
}
