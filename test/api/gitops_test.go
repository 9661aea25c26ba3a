// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// yamlBlocks returns the YAML blocks of a page.
func yamlBlocks(t *testing.T, page string) []*unstructured.Unstructured {
	t.Helper()
	text := assert.Value(os.ReadFile(filepath.Join(root, page)))(t)
	var all []*unstructured.Unstructured
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		o := &unstructured.Unstructured{}
		assert.NoError(t, yaml.Unmarshal([]byte(block), &o.Object), block)
		all = append(all, o)
	}

	return all
}

// The ServiceAccount has the rights that the page grants, and no others.
func TestAGitOpsControllerMayApplyEveryBlockOfItsPage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "applied.yaml")
	write := func(o *unstructured.Unstructured) {
		t.Helper()
		assert.NoError(t, os.WriteFile(file, assert.Value(yaml.Marshal(o.Object))(t), 0o600))
	}
	flux := []string{"apply", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller", "--validate=strict",
		"--as=system:serviceaccount:flux-system:kubelets", "-f", file}
	givenRollout(t, "fluxed", "")
	var applied []string
	for _, block := range yamlBlocks(t, "docs/gitops.md") {
		if block.GetKind() != "" {
			write(block)
			mustKubectl(t, "apply", "-f", file)
			t.Cleanup(func() {
				assert.OK(t, assert.Err(kubectl(context.Background(), "delete", block.GetKind(), block.GetName())))
			})
			continue
		}

		o := rollout("fluxed", "strategy: {steps: [{nodes: 1}, {pause: {}}, {nodes: 100%}]}")
		spec := block.Object["spec"].(map[string]any)
		for name, value := range spec {
			assert.NoError(t, unstructured.SetNestedField(o.Object, value, "spec", name))
			applied = append(applied, name)
		}

		write(o)
		err := wait.PollUntilContextTimeout(t.Context(), pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
			_, err := kubectl(ctx, flux...) // a role counts after a short delay
			if err != nil && strings.Contains(err.Error(), "(Forbidden)") && strings.Contains(err.Error(), "cannot ") {
				return false, nil
			}

			return true, err
		})
		assert.Must(t, err == nil, "%v is refused: %v", spec, err)
		got := assert.Value(rolloutsAsAdmin(t).Get(t.Context(), "fluxed", metav1.GetOptions{}))(t)
		for name, value := range spec {
			assert.Equal(t, fmt.Sprint(got.Object["spec"].(map[string]any)[name]), fmt.Sprint(value), name)
		}
	}

	slices.Sort(applied)
	assert.Equal(t, strings.Join(applied, " "), "abort approval frozen frozenReason paused pausedReason pin retry")
}
