// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// The supported versions of the kubelet are constants of internal/component,
// which `version` prints. No generator writes them into the other files.
func TestTheSupportedKubeletsAreTheSameEverywhere(t *testing.T) {
	oldest, newest := fmt.Sprintf("1.%d", component.OldestMinor), fmt.Sprintf("1.%d", component.NewestMinor)
	for file, texts := range map[string][]string{
		"README.md":                             {"supports kubelets [" + oldest + " to " + newest + "]("},
		"charts/evenkeel/Chart.yaml":            {`kubeVersion: ">=` + oldest + `.0-0"`},
		"docs/kubelets.md":                      {"**Supported** are " + oldest + " to " + newest + ",", "\n| " + newest + ".", "\n| " + oldest + "."},
		"docs/releases.md":                      {"\nkubelets  " + oldest + " to " + newest + "\n"},
		"tools/go.mod":                          {"\nrequire k8s.io/kubernetes v" + newest + "."},
		"tools/kubelets/v" + oldest + "/go.mod": {"\nrequire k8s.io/kubernetes v" + oldest + "."},
	} {
		raw := assert.Value(os.ReadFile("../../" + file))(t)
		for _, text := range texts {
			assert.That(t, strings.Contains(string(raw), text),
				"%s does not have %q: the supported kubelets are %s to %s", file, text, oldest, newest)
		}
	}
}
