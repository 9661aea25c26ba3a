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
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestANodeCreatesItsOwnEmptyNodeConfigAndReportsInIt(t *testing.T) {
	for _, body := range []string{"metadata: {name: own}", "metadata: {name: own}\nspec: {}"} {
		t.Run(body, func(t *testing.T) {
			node := asNode("own")
			o := assert.Value(node.Create(t.Context(), parse(body), metav1.CreateOptions{FieldValidation: "Strict"}))(t)
			removeAtEnd(t, o)
			spec, found, err := unstructured.NestedMap(o.Object, "spec")
			assert.That(t, err == nil && found && len(spec) == 0 && o.GetGeneration() == 1,
				"it is stored with generation %d and %v, want 1 and an empty spec", o.GetGeneration(), o.Object["spec"])

			o = assert.Value(node.Patch(t.Context(), "own", types.MergePatchType, []byte(`{"status":{"error":"patched"}}`),
				metav1.PatchOptions{}, "status"))(t)
			o.Object["status"] = map[string]any{"error": "updated"}
			assert.NoError(t, assert.Err(node.UpdateStatus(t.Context(), o, metav1.UpdateOptions{})))
			o = assert.Value(node.Get(t.Context(), "own", metav1.GetOptions{}))(t)
			got, _, _ := unstructured.NestedString(o.Object, "status", "error")
			assert.That(t, got == "updated" && o.GetGeneration() == 1,
				"got status.error %q at generation %d, want updated at 1", got, o.GetGeneration())

			o = assert.Value(asAdmin().Patch(t.Context(), "own", types.JSONPatchType, []byte(addSource),
				metav1.PatchOptions{FieldValidation: "Strict"}))(t)
			uid, _, _ := unstructured.NestedString(o.Object, "spec", "configSource", "configMapRef", "uid")
			assert.That(t, uid == "u" && o.GetGeneration() == 2, "generation %d and %v, want 2 and the source", o.GetGeneration(), o.Object["spec"])
		})
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
			_, err := asNode("self").Create(t.Context(), parse("metadata: "+object), metav1.CreateOptions{})
			wantRefused(t, err, http.StatusForbidden, "system:node:self tried to "+want)
		})
	}
}

func TestAMemberOfSystemNodesThatIsNotANodeIsRejected(t *testing.T) {
	for _, user := range []string{"mallory", "system:nodes:mallory"} {
		_, err := as(configFor(user, "system:nodes")).Create(t.Context(), parse("metadata: {name: mallory}"), metav1.CreateOptions{})
		wantRefused(t, err, http.StatusForbidden, user+" tried to CREATE NodeConfig mallory, but is in the group "+
			"system:nodes without being a node: its name does not begin with system:node:")
	}
}

func TestANodeCannotWriteAnotherNodesStatus(t *testing.T) {
	given(t, "metadata: {name: other}")
	node := asNode("self")
	const want = "system:node:self tried to UPDATE NodeConfig other, but a node may only create and report"

	wantRefused(t, merge(t, node, "other", `{"status":{"error":"forged"}}`, "status"), http.StatusForbidden, want)

	o := get(t, "other")
	o.Object["status"] = map[string]any{"error": "forged"}
	_, err := node.UpdateStatus(t.Context(), o, metav1.UpdateOptions{})
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
	assert.NoError(t, assert.Err(asNode("self").UpdateStatus(t.Context(), o, metav1.UpdateOptions{})))
	after := get(t, "self")
	got, _, _ := unstructured.NestedString(after.Object, "status", "error")
	assert.That(t, got == "reported", "got status.error %q, want reported", got)
	assert.That(t, after.GetGeneration() == 1 && after.GetLabels()["pool"] == "gold" && after.GetAnnotations() == nil &&
		after.GetFinalizers() == nil && after.GetOwnerReferences() == nil, "the report changed more than the status: %v", after.Object)

	_, local, _ := unstructured.NestedMap(after.Object, "spec", "configSource", "local")
	assert.That(t, local, "the report changed the spec: %v", after.Object["spec"])
}

func TestANodeReportsOnlyTimesAndNumbersThatAreRead(t *testing.T) {
	given(t, "metadata: {name: self}")
	const (
		refused   = `system:node:self reported a time that is not written as 2006-01-02T15:04:05Z in the status of NodeConfig self`
		condition = `{"conditions":[{"type":"ConfigOK","status":"True","reason":"A","message":"","lastTransitionTime":"%s"}]}`
		trial     = `{"trial":{"healthySeconds":0,"restarts":0,"crashLoopThreshold":3,"durationSeconds":%s}}`
	)
	report := func(format string, values ...any) error {
		return merge(t, asNode("self"), "self", fmt.Sprintf(`{"status":`+format+`}`, values...), "status")
	}
	for _, status := range []string{
		`{"lastKnownGood":{"since":"%s"}}`,
		`{"trial":{"startTime":"%s","healthySeconds":0,"restarts":0}}`,
		`{"badConfigs":[{"uid":"u"},{"uid":"v","time":"%s"}]}`,
		condition,
	} {
		for _, at := range []string{
			"2026-01-02t03:04:05z", "2026-01-02T03:04:05x1Z", "2026-01-02T03:04:05+99:99", "2026-01-02T03:04:05.123456789+01:00",
			"9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z",
		} {
			wantRefused(t, report(status, at), http.StatusUnprocessableEntity, refused)
		}

		// The last is that of a node without a clock.
		for _, at := range []string{"2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456789Z", "1970-01-01T00:00:07Z"} {
			assert.OK(t, report(status, at), status, "at", at)
		}
	}

	for _, status := range []string{
		`{"observedGeneration":1e30}`, `{"observedGeneration":92233720368547758070}`, `{"observedGeneration":1.5}`,
		`{"trial":{"healthySeconds":1e30,"restarts":0}}`,
	} {
		wantRefused(t, report(status), http.StatusUnprocessableEntity, `must be of type integer`)
	}

	for _, seconds := range []string{"9000000000", "31536001", "-1"} {
		wantRefused(t, report(trial, seconds), http.StatusUnprocessableEntity, "trial.durationSeconds in body should be")
	}

	for _, seconds := range []string{"0", "600", "604800", "31536000"} {
		assert.OK(t, report(trial, seconds), seconds)
	}

	var read v1alpha1.NodeConfig
	assert.OK(t, runtime.DefaultUnstructuredConverter.FromUnstructured(get(t, "self").Object, &read))
}

func TestRBACAllowsANodeOnlyCreateAndStatus(t *testing.T) {
	given(t, "metadata: {name: self}")
	const want = `User "system:node:self" cannot `
	for name, err := range mainResourceWrites(t, "self", "self") {
		t.Run(name, func(t *testing.T) { wantRefused(t, err, http.StatusForbidden, want) })
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
		for name, err := range mainResourceWrites(t, "self", target) {
			t.Run(name+" "+target, func(t *testing.T) {
				words := want
				if name == "delete all" {
					words = "system:node:self tried to DELETE NodeConfig *, but a node may only"
				}

				wantRefused(t, err, http.StatusForbidden, words)
			})
		}
	}

	get(t, "self")
	get(t, "other")
}

// mainResourceWrites are the answers to all ways for a node to change a
// NodeConfig that exists, other than its status.
func mainResourceWrites(t *testing.T, name, target string) map[string]error {
	t.Helper()
	node, ctx := asNode(name), t.Context()
	patch := func(kind types.PatchType, body, manager string) error {
		return assert.Err(node.Patch(ctx, target, kind, []byte(body), metav1.PatchOptions{FieldManager: manager}))
	}
	o := get(t, target)
	o.Object["spec"] = map[string]any{"revoked": []any{"u"}}

	const owners = `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"self","uid":"u"}]}}`
	const applied = `{"apiVersion":"evenkeel.dev/v1alpha1","kind":"NodeConfig","spec":{"configSource":{"local":{}}}}`

	return map[string]error{
		"update":           assert.Err(node.Update(ctx, o, metav1.UpdateOptions{})),
		"patch the spec":   patch(types.MergePatchType, `{"spec":{"configSource":{"local":{}}}}`, ""),
		"patch labels":     patch(types.MergePatchType, `{"metadata":{"labels":{"pool":"gold"}}}`, ""),
		"patch finalizers": patch(types.MergePatchType, `{"metadata":{"finalizers":["example.com/never"]}}`, ""),
		"patch owners":     patch(types.MergePatchType, owners, ""),
		"apply":            patch(types.ApplyPatchType, applied, "test"),
		"delete":           node.Delete(ctx, target, metav1.DeleteOptions{}),
		"delete all":       node.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
	}
}

// grantNodesEverything makes every node a cluster administrator until the test
// ends.
func grantNodesEverything(t *testing.T) {
	t.Helper()
	// RBAC reads from an informer: wait until it has seen the binding, and in
	// the end that it is gone.
	node := kubernetes.NewForConfigOrDie(nodeConfig("self"))
	awaitGrant := func(granted bool) {
		assert.Eventually(t, fmt.Sprintf("nodes are administrators: %t", granted), func() bool {
			_, err := node.CoreV1().Secrets("").List(context.Background(), metav1.ListOptions{Limit: 1})
			return apierrors.IsForbidden(err) != granted
		})
	}
	t.Cleanup(func() { awaitGrant(false) })
	created(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "nodes-are-administrators"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:nodes"}},
	})
	awaitGrant(true)
}

func TestANodeReadsTheWholeFleetAndTheConfigMapsOfOneNamespace(t *testing.T) {
	given(t, "metadata: {name: other}")
	created(t, plain("workers"))
	fleet, core, ctx := asNode("self"), kubernetes.NewForConfigOrDie(nodeConfig("self")).CoreV1(), t.Context()
	opened := core.ConfigMaps(v1alpha1.SystemNamespace)
	all, forged := metav1.ListOptions{}, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "forged"}}
	wantAnswers(t, []answer{
		{"get another NodeConfig", assert.Err(fleet.Get(ctx, "other", metav1.GetOptions{})), ""},
		{"list NodeConfigs", assert.Err(fleet.List(ctx, all)), ""},
		{"watch another NodeConfig", stop(fleet.Watch(ctx, only("other"))), ""},

		{"get a ConfigMap", assert.Err(opened.Get(ctx, "workers", metav1.GetOptions{})), ""},
		{"watch a ConfigMap", stop(opened.Watch(ctx, only("workers"))), ""},
		{"create a ConfigMap", assert.Err(opened.Create(ctx, forged, metav1.CreateOptions{})), `cannot create resource "configmaps"`},
		{"get a ConfigMap elsewhere", assert.Err(core.ConfigMaps("default").Get(ctx, "workers", metav1.GetOptions{})),
			`cannot get resource "configmaps" in API group "" in the namespace "default"`},
		{"list all ConfigMaps", assert.Err(core.ConfigMaps("").List(ctx, all)), `cannot list resource "configmaps"`},
	})
}
