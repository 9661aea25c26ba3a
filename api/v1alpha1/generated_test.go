package v1alpha1_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

const (
	root    = "../.."
	crdFile = "evenkeel.dev_nodeconfigs.yaml"
)

func TestGeneratedFilesAreWhatTheGeneratorMakesOfTheTypes(t *testing.T) {
	generator, err := filepath.Abs(filepath.Join(root, "bin/tools/controller-gen"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(generator); errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%s is missing: run `make tools`", generator)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), generator, "object", "crd", "paths=./api/...",
		"output:crd:dir="+dir, "output:object:dir="+dir)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("controller-gen: %v\n%s", err, out)
	}
	for committed, generated := range map[string]string{
		filepath.Join(root, "config/api/crd", crdFile): crdFile,
		"zz_generated.deepcopy.go":                     "zz_generated.deepcopy.go",
	} {
		if diff := cmp.Diff(read(t, filepath.Join(dir, generated)), read(t, committed)); diff != "" {
			t.Errorf("%s is stale: run `make generate` (- generated now, + on disk)\n%s", committed, diff)
		}
	}
}

func TestBoundsInTheCodeAreThoseOfTheCRD(t *testing.T) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict([]byte(read(t, filepath.Join(root, "config/api/crd", crdFile))), &crd); err != nil {
		t.Fatal(err)
	}
	schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	spec, status := schema.Properties["spec"].Properties, schema.Properties["status"].Properties

	got := map[string]*int64{
		"MaxRevoked":               spec["revoked"].MaxItems,
		"MaxBadConfigs":            status["badConfigs"].MaxItems,
		"MaxBadReasonLength":       status["badConfigs"].Items.Schema.Properties["reason"].MaxLength,
		"MaxOverriddenFields":      status["overriddenFields"].MaxItems,
		"MaxOverriddenFieldLength": status["overriddenFields"].Items.Schema.MaxLength,
		"MaxErrorLength":           status["error"].MaxLength,
	}
	bound := func(n int64) *int64 { return &n }
	want := map[string]*int64{
		"MaxRevoked":               bound(v1alpha1.MaxRevoked),
		"MaxBadConfigs":            bound(v1alpha1.MaxBadConfigs),
		"MaxBadReasonLength":       bound(v1alpha1.MaxBadReasonLength),
		"MaxOverriddenFields":      bound(v1alpha1.MaxOverriddenFields),
		"MaxOverriddenFieldLength": bound(v1alpha1.MaxOverriddenFieldLength),
		"MaxErrorLength":           bound(v1alpha1.MaxErrorLength),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bounds differ (- code, + CRD)\n%s", diff)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
