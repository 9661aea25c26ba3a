// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheExamplesInTheDocsAreValid(t *testing.T) {
	var seen []string
	doc := assert.Value(os.ReadFile("../../docs/payload.md"))(t)
	for i, block := range strings.Split(string(doc), "```") {
		text, ok := strings.CutPrefix(block, "yaml\n")
		if !ok || i%2 == 0 {
			continue
		}

		var cm corev1.ConfigMap
		assert.NoError(t, yaml.UnmarshalStrict([]byte(text), &cm))
		p, err := FromConfigMap(&cm)
		assert.OK(t, err)
		assert.OK(t, assert.Err(p.Resolve(machine)))
		seen = append(seen, fmt.Sprintf("%s, grouped: %v, trial: %v, rules: %d", p.Key, string(p.Data) != string(p.upstream), p.Trial != (v1alpha1.TrialTerms{}), len(p.Rules())))
	}

	want := []string{"kubelet, grouped: false, trial: false, rules: 0", "kubelet-dropin, grouped: true, trial: true, rules: 0", "kubelet-dropin, grouped: true, trial: false, rules: 4"}
	assert.That(t, slices.Equal(seen, want), "the examples are %q, want %q", seen, want)
}
