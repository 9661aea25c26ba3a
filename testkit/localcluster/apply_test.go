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

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestManifestsAreAppliedInAnyOrder(t *testing.T) {
	c := startCluster(t, Options{Manifests: "testdata/manifests"})
	client, err := dynamic.NewForConfig(c.AdminConfig())
	assert.NoError(t, err)
	gadgets := client.Resource(schema.GroupVersionResource{Group: "test.evenkeel.dev", Version: "v1", Resource: "gadgets"}).Namespace("workshop")
	first := assert.Value(gadgets.Get(t.Context(), "first", metav1.GetOptions{}))(t, "an object of a kind that was applied with it")
	size, _, _ := unstructured.NestedInt64(first.Object, "spec", "size")
	assert.That(t, size == 3, "its size is %d, want 3", size)
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
	assert.NoError(t, unstructured.SetNestedField(big.Object, int64(11), "spec", "size"))
	eventually(t, 20*time.Second, func(ctx context.Context) error {
		_, err := gadgets.Create(ctx, big, metav1.CreateOptions{DryRun: []string{"All"}})
		if err == nil || !strings.Contains(err.Error(), "gadgets are smaller than ten") {
			return fmt.Errorf("the applied policy does not refuse: %v", err)
		}
		return nil
	})
	assert.OK(t, c.Apply(t.Context(), "testdata/manifests"), "once more")

	apply := func(ctx context.Context, content string) error {
		dir := t.TempDir()
		assert.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(content), 0o600))
		return c.Apply(ctx, dir)
	}
	err = apply(t.Context(), "apiVersion: test.evenkeel.dev/v1\nkind: Gadget\nmetadata: {name: odd, namespace: workshop}\nspec: {size: many}\n")
	assert.That(t, err != nil && strings.Contains(err.Error(), "apply Gadget odd") && strings.Contains(err.Error(), "expected numeric"),
		"an invalid object: %v", err)
	assert.That(t, !errors.Is(err, context.DeadlineExceeded), "Apply repeated a request that cannot succeed: %v", err)
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err = apply(short, "apiVersion: test.evenkeel.dev/v1\nkind: Unheard\nmetadata: {name: of}\n")
	assert.That(t, errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "no matches for kind"),
		"an object of no kind: %v", err)
}

func TestManifestsThatCannotBeReadAreNamed(t *testing.T) {
	for name, test := range map[string]struct{ content, want string }{
		"not YAML":       {"a: [", "a.yaml: error converting YAML"},
		"without a kind": {"apiVersion: v1\nmetadata: {name: a}\n", "lacks apiVersion, kind or name"},
		"without a name": {"apiVersion: v1\nkind: ConfigMap\n", "lacks apiVersion, kind or name"},
	} {
		dir := t.TempDir()
		assert.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(test.content), 0o600))
		assert.ErrorHas(t, assert.Err(readManifests(dir)), test.want, name)
	}
	assert.Is(t, assert.Err(readManifests(filepath.Join(t.TempDir(), "none"))), os.ErrNotExist, "no directory")
}

func TestRequiredObjectsComeFirst(t *testing.T) {
	objects := assert.Value(readManifests("testdata/manifests"))(t)
	var kinds []string
	for _, o := range objects {
		kinds = append(kinds, o.GetKind())
	}
	got := strings.Join(kinds, " ")
	want := "Namespace CustomResourceDefinition ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding Gadget ConfigMap"
	assert.Equal(t, got, want, "order")
}
