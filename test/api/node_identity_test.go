// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestANodeCreatesItsOwnEmptyNodeConfigAndReportsInIt(t *testing.T) {
	removeAtEnd(t, "own")
	node := asNode(t, "own")
	assert.NoError(t, assert.Err(node.Create(t.Context(), parse("metadata: {name: own}\nspec: {}"), metav1.CreateOptions{})))
	o := assert.Value(node.Patch(t.Context(), "own", types.MergePatchType, []byte(`{"status":{"error":"patched"}}`),
		metav1.PatchOptions{}, "status"))(t)
	o.Object["status"] = map[string]any{"error": "updated"}
	assert.NoError(t, assert.Err(node.UpdateStatus(t.Context(), o, metav1.UpdateOptions{})))
	o = assert.Value(node.Get(t.Context(), "own", metav1.GetOptions{}))(t)
	if got, _, _ := unstructured.NestedString(o.Object, "status", "error"); got != "updated" || o.GetGeneration() != 1 {
		t.Errorf("got status.error %q at generation %d, want updated at 1", got, o.GetGeneration())
	}
}

func TestANodeCreatesOnlyItsOwnEmptyNodeConfig(t *testing.T) {
	const owner = `ownerReferences: [{apiVersion: v1, kind: Node, name: self, uid: u}]`
	for object, want := range map[string]string{
		"{name: other}":        "CREATE NodeConfig other, but a node may only create and report the NodeConfig that bears its own name",
		"{generateName: self}": "CREATE NodeConfig self",

		"{name: self}\nspec: {configSource: {configMapRef: {namespace: ns, name: m, uid: u}}}": "create NodeConfig self with a spec, " +
			"but a node never writes a spec",
		"{name: self}\nspec: {configSource: {local: {}}}": "create NodeConfig self with a spec",
		"{name: self}\nspec: {revoked: [u]}":              "create NodeConfig self with a spec",

		"{name: self, labels: {pool: gold}}":            "create NodeConfig self with labels, but",
		"{name: self, annotations: {a: b}}":             "create NodeConfig self with annotations, but",
		"{name: self, finalizers: [example.com/never]}": "create NodeConfig self with finalizers, but",
		"{name: self, " + owner + "}":                   "create NodeConfig self with ownerReferences, but",
		"{name: self, labels: {a: b}, annotations: {a: b}, finalizers: [a.b/c], " + owner + "}": "create NodeConfig self " +
			"with labels, annotations, finalizers, ownerReferences, but a node writes nothing in its NodeConfig but the status",
	} {
		t.Run(object, func(t *testing.T) {
			_, err := asNode(t, "self").Create(t.Context(), parse("metadata: "+object), metav1.CreateOptions{})
			wantRefused(t, err, http.StatusForbidden, "system:node:self tried to "+want)
		})
	}
}

func TestAMemberOfSystemNodesThatIsNotANodeIsRejected(t *testing.T) {
	for _, user := range []string{"mallory", "system:nodes:mallory"} {
		_, err := as(t, user, "system:nodes").Create(t.Context(), parse("metadata: {name: mallory}"), metav1.CreateOptions{})
		wantRefused(t, err, http.StatusForbidden, user+" tried to CREATE NodeConfig mallory, but is in the group "+
			"system:nodes without being a node: its name does not begin with system:node:")
	}
}

func TestANodeCannotWriteAnotherNodesStatus(t *testing.T) {
	given(t, "metadata: {name: other}")
	node := asNode(t, "self")
	const want = "system:node:self tried to UPDATE NodeConfig other, but a node may only create and report"

	_, err := node.Patch(t.Context(), "other", types.MergePatchType, []byte(`{"status":{"error":"forged"}}`),
		metav1.PatchOptions{}, "status")
	wantRefused(t, err, http.StatusForbidden, want)

	o := get(t, "other")
	o.Object["status"] = map[string]any{"error": "forged"}
	_, err = node.UpdateStatus(t.Context(), o, metav1.UpdateOptions{})
	wantRefused(t, err, http.StatusForbidden, want)

	wantUnreported(t, "after both", get(t, "other"))
}

func TestANodesReportChangesOnlyTheStatus(t *testing.T) {
	before := given(t, "metadata: {name: self, labels: {pool: gold}}\nspec: {configSource: {local: {}}}")
	o := before.DeepCopy()
	o.SetLabels(map[string]string{"pool": "forged"})
	o.SetAnnotations(map[string]string{"forged": "yes"})
	o.SetFinalizers([]string{"example.com/forged"})
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "self", UID: "u"}})
	o.Object["spec"] = map[string]any{"revoked": []any{"u"}}
	o.Object["status"] = map[string]any{"error": "reported"}
	assert.NoError(t, assert.Err(asNode(t, "self").UpdateStatus(t.Context(), o, metav1.UpdateOptions{})))
	after := get(t, "self")
	got, _, _ := unstructured.NestedString(after.Object, "status", "error")
	assert.That(t, got == "reported", "got status.error %q, want reported", got)
	assert.That(t, after.GetGeneration() == 1 && after.GetLabels()["pool"] == "gold" && after.GetAnnotations() == nil &&
		after.GetFinalizers() == nil && after.GetOwnerReferences() == nil, "the report changed more than the status: %v", after.Object)

	_, local, _ := unstructured.NestedMap(after.Object, "spec", "configSource", "local")
	assert.That(t, local, "the report changed the spec: %v", after.Object["spec"])
}

// Who reads all NodeConfigs, as the controller does, reads none if one cannot
// be decoded.
func TestANodeCannotReportInvalidTimes(t *testing.T) {
	given(t, "metadata: {name: self}")
	const refused = `system:node:self reported a time that is not written as 2006-01-02T15:04:05Z in the status of NodeConfig self`
	report := func(status string) error {
		_, err := asNode(t, "self").Patch(t.Context(), "self", types.MergePatchType, []byte(`{"status":`+status+`}`), metav1.PatchOptions{}, "status")
		return err
	}
	for _, status := range []string{
		`{"lastKnownGood":{"since":"%s"}}`,
		`{"trial":{"startTime":"%s","healthySeconds":0,"restarts":0}}`,
		`{"badConfigs":[{"uid":"u"},{"uid":"v","time":"%s"}]}`,
		`{"conditions":[{"type":"ConfigOK","status":"True","reason":"A","message":"","lastTransitionTime":"%s"}]}`,
	} {
		for _, at := range []string{"2026-01-02t03:04:05z", "2026-01-02T03:04:05x1Z", "2026-01-02T03:04:05+99:99", "2026-01-02T03:04:05.123456789+01:00"} {
			wantRefused(t, report(fmt.Sprintf(status, at)), http.StatusUnprocessableEntity, refused)
		}

		for _, at := range []string{"2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456789Z"} {
			assert.OK(t, report(fmt.Sprintf(status, at)), status, "at", at)
		}
	}

	for _, status := range []string{
		`{"observedGeneration":1e30}`, `{"observedGeneration":92233720368547758070}`, `{"observedGeneration":1.5}`,
		`{"trial":{"healthySeconds":1e30,"restarts":0}}`,
	} {
		wantRefused(t, report(status), http.StatusUnprocessableEntity, `must be of type integer`)
	}

	var read v1alpha1.NodeConfig
	assert.OK(t, runtime.DefaultUnstructuredConverter.FromUnstructured(get(t, "self").Object, &read))
}

func TestRBACAllowsANodeOnlyCreateAndStatus(t *testing.T) {
	given(t, "metadata: {name: self}")
	const want = `User "system:node:self" cannot `
	for name, write := range mainResourceWrites("self", "self") {
		t.Run(name, func(t *testing.T) { wantRefused(t, write(t), http.StatusForbidden, want) })
	}
}

func TestTheAdmissionPolicyHoldsWhateverRBACGrants(t *testing.T) {
	grantNodesEverything(t)
	given(t, "metadata: {name: self}")
	given(t, "metadata: {name: other}")
	for target, want := range map[string]string{
		"self":  "NodeConfig self, but a node may only create its NodeConfig and write its status",
		"other": "NodeConfig other, but a node may only create and report the NodeConfig that bears its own name",
	} {
		for name, write := range mainResourceWrites("self", target) {
			t.Run(name+" "+target, func(t *testing.T) {
				words := want
				if name == "delete all" {
					words = "system:node:self tried to DELETE NodeConfig *, but a node may only"
				}

				wantRefused(t, write(t), http.StatusForbidden, words)
			})
		}
	}

	get(t, "self")
	get(t, "other")
}

// mainResourceWrites are all ways for a node to change a NodeConfig that
// exists, other than its status.
func mainResourceWrites(node, target string) map[string]func(*testing.T) error {
	patch := func(kind types.PatchType, body string) func(*testing.T) error {
		return func(t *testing.T) error {
			options := metav1.PatchOptions{}
			if kind == types.ApplyPatchType {
				options.FieldManager = "test"
			}

			_, err := asNode(t, node).Patch(t.Context(), target, kind, []byte(body), options)

			return err
		}
	}
	return map[string]func(*testing.T) error{
		"update": func(t *testing.T) error {
			o := get(t, target)
			o.Object["spec"] = map[string]any{"revoked": []any{"u"}}
			_, err := asNode(t, node).Update(t.Context(), o, metav1.UpdateOptions{})
			return err
		},
		"patch the spec":   patch(types.MergePatchType, `{"spec":{"configSource":{"local":{}}}}`),
		"patch labels":     patch(types.MergePatchType, `{"metadata":{"labels":{"pool":"gold"}}}`),
		"patch finalizers": patch(types.MergePatchType, `{"metadata":{"finalizers":["example.com/never"]}}`),
		"patch owners": patch(types.MergePatchType,
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"self","uid":"u"}]}}`),
		"apply": patch(types.ApplyPatchType,
			`{"apiVersion":"evenkeel.dev/v1alpha1","kind":"NodeConfig","spec":{"configSource":{"local":{}}}}`),
		"delete": func(t *testing.T) error { return asNode(t, node).Delete(t.Context(), target, metav1.DeleteOptions{}) },
		"delete all": func(t *testing.T) error {
			return asNode(t, node).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		},
	}
}

// grantNodesEverything makes every node a cluster administrator until the test
// ends.
func grantNodesEverything(t *testing.T) {
	t.Helper()
	admin := kubernetes.NewForConfigOrDie(cluster.AdminConfig())
	bindings := admin.RbacV1().ClusterRoleBindings()
	binding := assert.Value(bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "nodes-are-administrators"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:nodes"}},
	}, metav1.CreateOptions{}))(t)
	// RBAC reads from an informer: wait until it has seen the binding, and in
	// the end that it is gone.
	node := kubernetes.NewForConfigOrDie(nodeConfig(t, "self"))
	awaitGrant := func(ctx context.Context, granted bool) {
		err := wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
			_, err := node.CoreV1().Secrets("").List(ctx, metav1.ListOptions{Limit: 1})
			return apierrors.IsForbidden(err) != granted, nil
		})
		assert.That(t, err == nil, "waiting for nodes to be administrators (%t): %v", granted, err)
	}
	t.Cleanup(func() {
		assert.OK(t, bindings.Delete(context.Background(), binding.Name, metav1.DeleteOptions{}))
		awaitGrant(context.Background(), false)
	})
	awaitGrant(t.Context(), true)
}

func nodeConfig(t *testing.T, name string) *rest.Config {
	t.Helper()
	config := assert.Value(configFor("system:node:"+name, "system:nodes"))(t)
	return config
}

func TestANodeReadsConfigMapsInOneNamespaceOnly(t *testing.T) {
	admin := kubernetes.NewForConfigOrDie(cluster.AdminConfig()).CoreV1()
	node := kubernetes.NewForConfigOrDie(nodeConfig(t, "self")).CoreV1()
	for _, namespace := range []string{v1alpha1.SystemNamespace, "default"} {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "workers"}, Data: map[string]string{"kubelet": "{}"}}
		assert.NoError(t, assert.Err(admin.ConfigMaps(namespace).Create(t.Context(), m, metav1.CreateOptions{})))
		t.Cleanup(func() {
			assert.OK(t, admin.ConfigMaps(namespace).Delete(context.Background(), "workers", metav1.DeleteOptions{}))
		})
	}

	opened := node.ConfigMaps(v1alpha1.SystemNamespace)
	m, err := opened.Get(t.Context(), "workers", metav1.GetOptions{})
	assert.That(t, err == nil && m.Data["kubelet"] == "{}", "got %v, error %v", m, err)
	watch, err := opened.Watch(t.Context(), metav1.SingleObject(metav1.ObjectMeta{Name: "workers"}))
	assert.NoError(t, err)
	watch.Stop()
	_, err = opened.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "forged"}}, metav1.CreateOptions{})
	wantRefused(t, err, http.StatusForbidden, `cannot create resource "configmaps"`)

	_, err = node.ConfigMaps("default").Get(t.Context(), "workers", metav1.GetOptions{})
	wantRefused(t, err, http.StatusForbidden, `cannot get resource "configmaps" in API group "" in the namespace "default"`)
	_, err = node.ConfigMaps("").List(t.Context(), metav1.ListOptions{})
	wantRefused(t, err, http.StatusForbidden, `cannot list resource "configmaps"`)
}

func TestANodeSeesTheWholeFleet(t *testing.T) {
	given(t, "metadata: {name: other}")
	node := asNode(t, "self")
	assert.OK(t, assert.Err(node.Get(t.Context(), "other", metav1.GetOptions{})))
	list, err := node.List(t.Context(), metav1.ListOptions{})
	assert.That(t, err == nil && len(list.Items) == 1, "got %v, error %v, want one NodeConfig", list, err)
	watch := assert.Value(node.Watch(t.Context(), metav1.SingleObject(metav1.ObjectMeta{Name: "other"})))(t)
	watch.Stop()
}
