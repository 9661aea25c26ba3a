package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

func TestManifestsAreAppliedInAnyOrder(t *testing.T) {
	c := startCluster(t, Options{Manifests: "testdata/manifests"})
	client, err := dynamic.NewForConfig(c.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	gadgets := client.Resource(schema.GroupVersionResource{Group: "test.evenkeel.dev", Version: "v1", Resource: "gadgets"}).Namespace("workshop")
	first, err := gadgets.Get(t.Context(), "first", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("an object of a kind that was applied with it: %v", err)
	}
	if size, _, _ := unstructured.NestedInt64(first.Object, "spec", "size"); size != 3 {
		t.Errorf("its size is %d, want 3", size)
	}
	if _, err := admin(t, c).CoreV1().ConfigMaps("default").Get(t.Context(), "without-namespace", metav1.GetOptions{}); err != nil {
		t.Errorf("an object without a namespace: %v", err)
	}
	if _, err := admin(t, c).CoreV1().ServiceAccounts("workshop").Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("the service account of an applied namespace: %v", err)
	}
	big := first.DeepCopy()
	big.SetName("big")
	big.SetResourceVersion("")
	big.SetManagedFields(nil)
	if err := unstructured.SetNestedField(big.Object, int64(11), "spec", "size"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, func(ctx context.Context) error {
		_, err := gadgets.Create(ctx, big, metav1.CreateOptions{DryRun: []string{"All"}})
		if err == nil || !strings.Contains(err.Error(), "gadgets are smaller than ten") {
			return fmt.Errorf("the applied policy does not refuse: %v", err)
		}
		return nil
	})
	if err := c.Apply(t.Context(), "testdata/manifests"); err != nil {
		t.Errorf("once more: %v", err)
	}

	apply := func(ctx context.Context, content string) error {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return c.Apply(ctx, dir)
	}
	err = apply(t.Context(), "apiVersion: test.evenkeel.dev/v1\nkind: Gadget\nmetadata: {name: odd, namespace: workshop}\nspec: {size: many}\n")
	if err == nil || !strings.Contains(err.Error(), "apply Gadget odd") || !strings.Contains(err.Error(), "expected numeric") {
		t.Errorf("an invalid object: %v", err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Apply repeated a request that cannot succeed: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err = apply(short, "apiVersion: test.evenkeel.dev/v1\nkind: Unheard\nmetadata: {name: of}\n")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no matches for kind") {
		t.Errorf("an object of no kind: %v", err)
	}
}

func TestManifestsThatCannotBeReadAreNamed(t *testing.T) {
	for name, test := range map[string]struct{ content, want string }{
		"not YAML":       {"a: [", "a.yaml: error converting YAML"},
		"without a kind": {"apiVersion: v1\nmetadata: {name: a}\n", "lacks apiVersion, kind or name"},
		"without a name": {"apiVersion: v1\nkind: ConfigMap\n", "lacks apiVersion, kind or name"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(test.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readManifests(dir); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	if _, err := readManifests(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

func TestRequiredObjectsComeFirst(t *testing.T) {
	objects, err := readManifests("testdata/manifests")
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, o := range objects {
		kinds = append(kinds, o.GetKind())
	}
	got := strings.Join(kinds, " ")
	want := "Namespace CustomResourceDefinition ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding Gadget ConfigMap"
	if got != want {
		t.Errorf("order:\n%s\nwant:\n%s", got, want)
	}
}
