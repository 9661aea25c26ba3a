// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// upstreamZeros returns the fields of a Go type that encoding/json omits if
// they are zero, except for lists, mappings and pointers.
func upstreamZeros(t reflect.Type, path string) map[string]any {
	zeros := map[string]any{}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || f.Name == "TypeMeta" || f.Type.Implements(marshaler) || reflect.PointerTo(f.Type).Implements(marshaler) {
			continue
		}

		at := strings.Trim(path+"."+name, ".")
		omitted := slices.Contains(strings.Split(options, ","), "omitempty")
		switch kind := f.Type.Kind(); {
		case kind == reflect.Struct:
			maps.Copy(zeros, upstreamZeros(f.Type, at))
		case !omitted:
		case kind == reflect.String:
			zeros[at] = ""
		case kind == reflect.Bool:
			zeros[at] = false
		case f.Type.ConvertibleTo(reflect.TypeFor[float64]()):
			zeros[at] = json.Number("0")
		}
	}

	return zeros
}

func TestZeroValuesMatchTheOmitemptyFieldsOfTheUpstreamType(t *testing.T) {
	assert.NoDiff(t, cmp.Diff(upstreamZeros(reflect.TypeFor[kubeletv1beta1.KubeletConfiguration](), ""), ZeroValues), "-upstream +table")
}
