// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

const (
	root    = "../.."
	crdFile = "evenkeel.dev_nodeconfigs.yaml"

	rolloutCRDFile   = "evenkeel.dev_nodeconfigrollouts.yaml"
	preflightCRDFile = "evenkeel.dev_nodeconfigpreflights.yaml"
)

func TestGeneratedFilesAreWhatTheGeneratorsMakeOfTheTypes(t *testing.T) {
	dir := t.TempDir()
	generate(t, "controller-gen", "object:headerFile=hack/boilerplate.go.txt", "crd", "paths=./api/...", "output:crd:dir="+dir, "output:object:dir="+dir)
	generate(t, "crd-ref-docs", "--source-path=api/v1alpha1", "--config=tools/docs/config.yaml", "--templates-dir=tools/docs/templates",
		"--renderer=markdown", "--output-path="+filepath.Join(dir, "api.md"))
	for committed, generated := range map[string]string{
		filepath.Join(root, "config/api/crd", crdFile):          crdFile,
		filepath.Join(root, "config/api/crd", rolloutCRDFile):   rolloutCRDFile,
		filepath.Join(root, "config/api/crd", preflightCRDFile): preflightCRDFile,
		filepath.Join(root, "docs/api.md"):                      "api.md",
		"zz_generated.deepcopy.go":                              "zz_generated.deepcopy.go",
	} {
		assert.NoDiff(t, cmp.Diff(read(t, filepath.Join(dir, generated)), read(t, committed)), committed, "is stale: run `make generate`")
	}
}

// generate runs one of the tools from the root.
func generate(t *testing.T, tool string, args ...string) {
	t.Helper()
	generator := assert.Value(filepath.Abs(filepath.Join(root, "bin/tools", tool)))(t)
	cmd := exec.CommandContext(t.Context(), generator, args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	assert.Must(t, err == nil, "%s (of `make tools`): %v\n%s", tool, err, out)
}

func TestBoundsInTheCodeAreThoseOfTheCRD(t *testing.T) {
	spec, status := schemaOf(t, crdFile)
	rollout, progress := schemaOf(t, rolloutCRDFile)
	outcome, failed := progress["history"].Items.Schema.Properties, progress["failedNodes"].Items.Schema.Properties
	for name, bound := range map[string]struct {
		code int64
		crd  *int64
	}{
		"MaxRevoked":               {v1alpha1.MaxRevoked, spec["revoked"].MaxItems},
		"MaxBadConfigs":            {v1alpha1.MaxBadConfigs, status["badConfigs"].MaxItems},
		"MaxBadReasonLength":       {v1alpha1.MaxBadReasonLength, status["badConfigs"].Items.Schema.Properties["reason"].MaxLength},
		"MaxOverriddenFields":      {v1alpha1.MaxOverriddenFields, status["overriddenFields"].MaxItems},
		"MaxOverriddenFieldLength": {v1alpha1.MaxOverriddenFieldLength, status["overriddenFields"].Items.Schema.MaxLength},
		"MaxErrorLength":           {v1alpha1.MaxErrorLength, status["error"].MaxLength},
		"MaxDriftFiles":            {v1alpha1.MaxDriftFiles, status["drift"].Properties["files"].MaxItems},
		"MaxDriftFields":           {v1alpha1.MaxDriftFields, status["drift"].Properties["fields"].MaxItems},
		"MaxDriftNotCompared":      {v1alpha1.MaxDriftNotCompared, status["drift"].Properties["notCompared"].MaxLength},
		"MaxConditions":            {v1alpha1.MaxConditions, status["conditions"].MaxItems},
		"MaxIdentifierLength":      {v1alpha1.MaxIdentifierLength, status["active"].Properties["name"].MaxLength},

		"MaxSteps":               {v1alpha1.MaxSteps, rollout["strategy"].Properties["steps"].MaxItems},
		"MaxRetryNodes":          {v1alpha1.MaxRetryNodes, rollout["retry"].Properties["nodes"].MaxItems},
		"MaxFailedNodes":         {v1alpha1.MaxFailedNodes, progress["failedNodes"].MaxItems},
		"MaxHistory":             {v1alpha1.MaxHistory, progress["history"].MaxItems},
		"MaxRolloutMessage":      {v1alpha1.MaxRolloutMessage, progress["message"].MaxLength},
		"MaxRolloutMessage, why": {v1alpha1.MaxRolloutMessage, progress["halt"].Properties["message"].MaxLength},
		"MaxOutcomeMessage":      {v1alpha1.MaxOutcomeMessage, outcome["message"].MaxLength},
		"MaxReason":              {v1alpha1.MaxReason, rollout["pausedReason"].MaxLength},
		"MaxReason, of an abort": {v1alpha1.MaxReason, rollout["abort"].Properties["reason"].MaxLength},
		"MaxFailedMessage":       {v1alpha1.MaxFailedMessage, failed["message"].MaxLength},
	} {
		assert.NoDiff(t, cmp.Diff(&bound.code, bound.crd), name)
	}

	most := rollout["revisionHistoryLimit"].Maximum
	assert.That(t, most != nil && *most == v1alpha1.MaxHistory, "revisionHistoryLimit may be more than the status holds outcomes: %v", most)
}

// schemaOf returns the properties of a CRD's spec and status.
func schemaOf(t *testing.T, file string) (spec, status map[string]apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	var crd apiextensionsv1.CustomResourceDefinition
	assert.NoError(t, yaml.UnmarshalStrict([]byte(read(t, filepath.Join(root, "config/api/crd", file))), &crd))
	properties := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties
	return properties["spec"].Properties, properties["status"].Properties
}

func read(t *testing.T, path string) string {
	t.Helper()
	return string(assert.Value(os.ReadFile(path))(t))
}
