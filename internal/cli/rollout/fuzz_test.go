// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"reflect"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// Steps that are accepted are within their limits, and are read again from the
// flag with which a note says how to return to them.
func FuzzSteps(f *testing.F) {
	for _, text := range []string{"1,10%,100%", "1, pause:10m ,50", "pause,pause", "", ",", "0", "101%", "-1", "01", "pause:", "pause:-1s", "1e3", "2147483648", "pause:1h,2"} {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) {
		steps, err := parseSteps(text)
		if err != nil {
			assert.That(t, strings.HasPrefix(err.Error(), "--steps: "), "%q is refused with %v", text, err)
			return
		}

		assert.That(t, len(steps) != 0 && len(steps) <= v1alpha1.MaxSteps, "%q has %d steps", text, len(steps))
		flag := stepsFlag(steps)
		again, err := parseSteps(flag)
		assert.That(t, err == nil && reflect.DeepEqual(again, steps), "%q is %q, which is read as %v, %v", text, flag, again, err)
	})
}

// A manifest that is accepted is of a rollout with a name.
func FuzzManifest(f *testing.F) {
	const head = "apiVersion: evenkeel.dev/v1alpha1\nkind: NodeConfigRollout\nmetadata: {name: a}\n"
	for _, text := range []string{head, head + "spec: {strategy: {maxUnavailable: 10%}}\n", head + "spec: {unknown: 1}\n", head + "---\n" + head, "", "a: &a [*a]", head + "spec: {strategy: {steps: [{nodes: 1.5}]}}\n", "kind: ConfigMap"} {
		f.Add([]byte(text))
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseManifest(data)
		if err != nil {
			assert.That(t, len(err.Error()) <= 3000+10*len(data), "%q is refused with %d bytes", data, len(err.Error()))

			return
		}

		assert.That(t, r.Name != "" && r.Kind == "NodeConfigRollout", "%q was accepted as %+v", data, r)
	})
}
