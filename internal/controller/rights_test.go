// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

func says(err error, want ...string) error {
	if err == nil {
		return fmt.Errorf("nothing is wrong, want: %s", want)
	}

	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			return fmt.Errorf("it says %w, want: %s", err, w)
		}
	}

	return nil
}

func TestReadyzSaysWhatIsWrong(t *testing.T) {
	c := &Controller{log: slog.New(slog.DiscardHandler), fleet: newCache("", time.Second)}
	c.watchErrors, c.writeErrors = c.newProblems("cannot watch", "what", func(string) {}), c.newProblems("cannot write", "rollout", func(string) {})
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		c.probes().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		code, body := get(path)
		assert.That(t, code == http.StatusOK && body == "ok\n", "%s answers %d %q", path, code, body)
	}

	c.watchErrors.set(kindNodes, errors.New("the API server does not serve nodes"))
	c.writeErrors.set("workers", errors.New("rollout workers: no"))
	code, body := get("/readyz")
	assert.That(t, code == http.StatusInternalServerError && body == "the API server does not serve nodes\nrollout workers: no\n", "/readyz answers %d %q", code, body)
	code, _ = get("/healthz")
	assert.Equal(t, code, http.StatusOK, "/healthz")
}

func TestMissingCRDsAndPermissionsAreReportedUntilFixed(t *testing.T) {
	bare := localcluster.StartForTest(t, localcluster.Options{Manifests: localcluster.NoManifests})
	was, wasAdmin := cluster, admin
	cluster = bare
	t.Cleanup(func() { cluster, admin = was, wasAdmin })
	admin = assert.Value(client.New(bare.AdminConfig(), client.Options{Scheme: wasAdmin.Scheme()}))(t)
	c := start(t, own())
	ready := c.ready
	eventually(t, func() error {
		return says(ready(), "lacks permission: nodeconfigrollouts.evenkeel.dev/v1alpha1: kubectl apply -f install.yaml", "system:serviceaccount:evenkeel-system:evenkeel-controller")
	})
	applyRights := func() {
		t.Helper()
		assert.NoError(t, bare.Apply(t.Context(), "../../config/api/namespace.yaml"))
		assert.NoError(t, bare.Apply(t.Context(), "../../config/controller/rbac.yaml"))
	}
	applyRights()
	eventually(t, func() error {
		return says(ready(), "the API server does not serve nodeconfigrollouts.evenkeel.dev/v1alpha1: kubectl apply -f install.yaml")
	})
	assert.NoError(t, bare.Apply(t.Context(), "../../config/api"))
	eventually(t, ready)

	addNodes(t, "pool=lacks", "e1")
	agents(t, nil, "e1")
	updateNodeConfigs := without(t, "nodeconfigs.evenkeel.dev", "spec", "configSource", "rolloutRef", "attempt")
	updateRollouts := without(t, "nodeconfigrollouts.evenkeel.dev", "status", "attempt")
	t.Run("an old CRD of rollouts", func(t *testing.T) {
		roll(t, "lacks")
		eventually(t, func() error {
			return says(ready(), "rollout lacks: cannot patch nodeconfigrollouts.evenkeel.dev/v1alpha1 status", "older than this controller: kubectl apply -f install.yaml", `unknown field "status.attempt"`)
		})
		assert.Equal(t, nodeConfig(t, "e1").Spec.ConfigSource, nil, "something was assigned that is not on record")
	})
	updateRollouts()
	t.Run("an old CRD of NodeConfigs", func(t *testing.T) {
		eventually(t, func() error {
			return says(ready(), "cannot patch nodeconfigs.evenkeel.dev/v1alpha1", "older than this controller", `unknown field "spec.configSource.rolloutRef.attempt"`)
		})
		assert.Equal(t, nodeConfig(t, "e1").Spec.ConfigSource, nil, "half of an assignment was made")
		eventually(t, func() error {
			return told(t, "lacks", "WriteFailed: cannot patch nodeconfigs.evenkeel.dev/v1alpha1: "+
				"the API server's CRD is older than this controller: kubectl apply -f install.yaml")
		})
		awaitRollout(t, "lacks", func(st status) error {
			return says(errors.New(st.Message), "; writes to nodes fail: cannot patch nodeconfigs.evenkeel.dev/v1alpha1")
		})
	})
	updateNodeConfigs()
	addNodes(t, "pool=lacks", "e2")
	agents(t, nil, "e2")
	t.Run("a right that is taken away", func(t *testing.T) {
		awaitRollout(t, "lacks", completeAt(1))
		mayOnlyRead(t, "ClusterRole", "", "nodeconfigs")
		edit(t, "lacks", use(7))
		eventually(t, func() error {
			return says(ready(), "lacks permission: patch nodeconfigs.evenkeel.dev/v1alpha1: kubectl apply -f install.yaml")
		})
		applyRights()
		awaitRollout(t, "lacks", completeAt(2))
		eventually(t, ready)
	})
	t.Run("the right to create revisions", func(t *testing.T) {
		mayOnlyRead(t, "Role", v1alpha1.SystemNamespace, "configmaps")
		eventually(t, func() error { // the API server needs a moment
			probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "probe"}}
			return assert.Unless(apierrors.IsForbidden(c.client.Create(t.Context(), probe, client.DryRunAll)), "it still has the right")
		})
		before := generations(t, "e1", "e2")
		edit(t, "lacks", use(8))
		r := awaitRollout(t, "lacks", phase(v1alpha1.RolloutInvalid))
		assert.OK(t, says(errors.New(r.Status.Message),
			"cannot create ConfigMap evenkeel-system/lacks-", "forbidden", "kubectl apply -f install.yaml"))
		assert.NoDiff(t, cmp.Diff(before, generations(t, "e1", "e2")), "the generations of NodeConfigs")
		applyRights()
		c.fleet.scheduleAll()
		awaitRollout(t, "lacks", completeAt(3))
	})
}

// mayOnlyRead takes the controller's rights to write objects of a resource
// away.
func mayOnlyRead(t *testing.T, kind, namespace, resource string) {
	t.Helper()
	role := object("rbac.authorization.k8s.io", kind, "evenkeel-controller")
	role.SetNamespace(namespace)
	change(t, role, func(o *unstructured.Unstructured) {
		rules, _, _ := unstructured.NestedSlice(o.Object, "rules")
		for _, rule := range rules {
			if rule := rule.(map[string]any); slices.Equal(rule["resources"].([]any), []any{resource}) {
				rule["verbs"] = []any{"get", "list", "watch"}
			}
		}

		assert.NoError(t, unstructured.SetNestedSlice(o.Object, rules, "rules"))
	})
}

func object(group, kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind})
	o.SetName(name)
	return o
}

// without removes a field from a CRD's schema, as in an older release, and
// waits until the API server refuses the field. undo restores the CRD; the API
// server applies that with a short delay.
func without(t *testing.T, crd string, field ...string) (undo func()) {
	t.Helper()
	last := len(field) - 1
	parent := []string{"schema", "openAPIV3Schema"}
	for _, name := range field[:last] {
		parent = append(parent, "properties", name)
	}

	o := object("apiextensions.k8s.io", "CustomResourceDefinition", crd)
	var was *unstructured.Unstructured
	change(t, o, func(o *unstructured.Unstructured) {
		was = o.DeepCopy()
		versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
		found, _, err := unstructured.NestedFieldNoCopy(versions[0].(map[string]any), parent...)
		assert.NoError(t, err)
		schema := found.(map[string]any)
		delete(schema["properties"].(map[string]any), field[last])
		if required, ok := schema["required"].([]any); ok {
			schema["required"] = slices.DeleteFunc(required, func(name any) bool { return name == field[last] })
		}

		assert.NoError(t, unstructured.SetNestedSlice(o.Object, versions, "spec", "versions"))
	})
	kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
	probe := &unstructured.Unstructured{Object: map[string]any{}}
	assert.NoError(t, unstructured.SetNestedField(probe.Object, int64(1), field...))
	probe.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	probe.SetName("probe")
	eventually(t, func() error {
		err := admin.Create(t.Context(), probe.DeepCopy(), client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
		return says(err, "unknown field", field[last]+`"`)
	})

	return func() {
		change(t, object("apiextensions.k8s.io", "CustomResourceDefinition", crd), func(o *unstructured.Unstructured) { o.Object["spec"] = was.Object["spec"] })
	}
}

func TestAdviseExplainsErrorsOfTheAPIServer(t *testing.T) {
	assert.That(t, advise("nodes/v1", nil) == nil, "advice where nothing is wrong")
	assert.OK(t, says(advise("nodes/v1", errors.New("no route")), "nodes/v1: no route"))
	for _, why := range []string{`admission webhook "freeze.example" denied the request`, "exceeded quota: few"} {
		err := advise("patch nodes/v1", apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "a", errors.New(why)))
		assert.OK(t, says(err, why))
		assert.That(t, !strings.Contains(err.Error(), "install.yaml"), "a remedy that does not help: %v", err)
	}
}
