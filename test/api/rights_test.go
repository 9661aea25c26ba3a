// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// The Node authorizer and the NodeRestriction admission plugin of Kubernetes
// decide these rights. The agent needs them, so these tests detect a Kubernetes
// release that changes them.

func TestANodeReadsItsOwnNodeLeaseAndPodsAndWritesItsConditionAndEvents(t *testing.T) {
	node := kubernetes.NewForConfigOrDie(nodeConfig("rights"))
	nodes, leases := node.CoreV1().Nodes(), node.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	events := node.CoreV1().Events(metav1.NamespaceDefault)
	ctx := t.Context()
	own := only("rights")
	condition := []byte(`{"status":{"conditions":[{"type":"ConfigOK","status":"True","reason":"all checks passed"}]}}`)
	for _, name := range []string{"rights", "stranger"} {
		created(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		created(t, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}})
	}

	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "rights.1"},
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "rights", UID: "rights"},
		Reason:         "ConfigChanged", Type: corev1.EventTypeNormal,
	}

	wantAnswers(t, []answer{
		{"get its Node", assert.Err(nodes.Get(ctx, "rights", metav1.GetOptions{})), ""},
		{"list its Node", assert.Err(nodes.List(ctx, own)), ""},
		{"watch its Node", stop(nodes.Watch(ctx, own)), ""},
		{"list all Nodes", assert.Err(nodes.List(ctx, metav1.ListOptions{})), "only its own Node object"},
		{"get another's Node", assert.Err(nodes.Get(ctx, "stranger", metav1.GetOptions{})), "only its own Node object"},
		{"patch its Node's status",
			assert.Err(nodes.Patch(ctx, "rights", types.StrategicMergePatchType, condition, metav1.PatchOptions{}, "status")), ""},
		{"patch another's Node's status",
			assert.Err(nodes.Patch(ctx, "stranger", types.StrategicMergePatchType, condition, metav1.PatchOptions{}, "status")),
			`node "rights" is not allowed to modify node "stranger"`},

		{"get its Lease", assert.Err(leases.Get(ctx, "rights", metav1.GetOptions{})), ""},
		{"get another's Lease", assert.Err(leases.Get(ctx, "stranger", metav1.GetOptions{})), "can only access node lease with the same name"},
		{"list its Lease", assert.Err(leases.List(ctx, own)), "can only get, create, update, patch, or delete a node lease"},
		{"watch its Lease", stop(leases.Watch(ctx, own)), "can only get, create, update, patch, or delete a node lease"},

		{"list its pods", assert.Err(node.CoreV1().Pods("").List(ctx, podsOf("rights"))), ""},
		{"watch its pods", stop(node.CoreV1().Pods("").Watch(ctx, podsOf("rights"))), ""},
		{"list another's pods",
			assert.Err(node.CoreV1().Pods("").List(ctx, podsOf("stranger"))), "can only list/watch pods with spec.nodeName field selector"},

		{"create an event", assert.Err(events.Create(ctx, event, metav1.CreateOptions{})), ""},
		{"patch an event", assert.Err(events.Patch(ctx, event.Name, types.MergePatchType, []byte(`{"count":2}`), metav1.PatchOptions{})), ""},
		{"list events", assert.Err(events.List(ctx, metav1.ListOptions{})), `cannot list resource "events"`},
	})
}

func podsOf(node string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: "spec.nodeName=" + node}
}

// stop ends a watch that began.
func stop(w interface{ Stop() }, err error) error {
	if err == nil {
		w.Stop()
	}

	return err
}

// mayGet asks, as a kubelet does, whether a user may get a subresource of a
// Node.
func mayGet(ctx context.Context, user, group, node, subresource string) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, Groups: []string{group, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Version: "v1", Resource: "nodes", Subresource: subresource, Name: node},
	}}
	err := objects.Create(ctx, review)

	return review.Status.Allowed, err
}

func TestOnlyConfigDriftLetsNodesReadTheConfigzOfKubelets(t *testing.T) {
	const node, nodes = "system:node:drift", "system:nodes"
	assert.Returns(t, false, "without config/drift, a node may read /configz")(mayGet(t.Context(), node, nodes, "drift", "configz"))
	applied(t, "-k", filepath.Join(root, "config/drift"))
	assert.Eventually(t, "config/drift lets a node read the /configz of its kubelet", func() bool {
		may, err := mayGet(t.Context(), node, nodes, "drift", "configz")
		return err == nil && may
	})
	for _, r := range []struct {
		user, group, node, subresource string
		want                           bool
	}{
		{node, nodes, "other", "configz", true}, // RBAC cannot limit it to the node's own: docs/security.md says so
		{node, nodes, "drift", "proxy", false},
		{node, nodes, "drift", "pods", false},
		{node, nodes, "drift", "metrics", false},
		{"jane", "people", "drift", "configz", false},
	} {
		assert.Returns(t, r.want, r.user, "may get", r.subresource, "of", r.node)(mayGet(t.Context(), r.user, r.group, r.node, r.subresource))
	}
}

// inKubeSystem are the ConfigMaps that the tests use, besides those that every
// kube-system has.
var inKubeSystem = []string{"kubelet-one", "kubelet-two", "coredns"}

// givenConfigMaps creates them until the test ends.
func givenConfigMaps(t *testing.T) {
	t.Helper()
	for _, name := range inKubeSystem {
		created(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}})
	}
}

// granted applies manifests until the test ends, and waits until the nodes may
// read their own ConfigMaps. At the end it waits until they no longer may.
func granted(t *testing.T, how, manifests string, nodes ...string) {
	t.Helper()
	awaitGrant := func(granted bool) {
		assert.Eventually(t, fmt.Sprintf("%s grants %q: %t", manifests, nodes, granted), func() bool {
			return !slices.ContainsFunc(nodes, func(node string) bool {
				_, err := configMapsAs(node).Get(context.Background(), "kubelet-"+node, metav1.GetOptions{})
				return apierrors.IsForbidden(err) == granted
			})
		})
	}
	t.Cleanup(func() { awaitGrant(false) })
	applied(t, how, manifests)
	awaitGrant(true)
}

func configMapsAs(node string) corev1client.ConfigMapInterface {
	return kubernetes.NewForConfigOrDie(nodeConfig(node)).CoreV1().ConfigMaps(metav1.NamespaceSystem)
}

// only selects one object, as the agent does.
func only(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}
}

// begun is a watch that begins with all existing objects, like the agent's.
func begun(name string) metav1.ListOptions {
	o, begin := only(name), true
	o.SendInitialEvents, o.ResourceVersionMatch, o.AllowWatchBookmarks = &begin, metav1.ResourceVersionMatchNotOlderThan, true
	return o
}

// reads are all ways to read one ConfigMap.
func reads(t *testing.T, node, name string) map[string]error {
	t.Helper()
	as := configMapsAs(node)
	return map[string]error{
		"get":                  assert.Err(as.Get(t.Context(), name, metav1.GetOptions{})),
		"list":                 assert.Err(as.List(t.Context(), only(name))),
		"watch":                stop(as.Watch(t.Context(), only(name))),
		"watch from the first": stop(as.Watch(t.Context(), begun(name))),
	}
}

func wantReads(t *testing.T, node, name string) {
	t.Helper()
	for how, err := range reads(t, node, name) {
		assert.OK(t, err, node, "cannot", how, name)
	}
}

func wantNoReads(t *testing.T, node, name string) {
	t.Helper()
	for how, err := range reads(t, node, name) {
		t.Run(node+" "+how+" "+name, func(t *testing.T) {
			wantRefused(t, err, http.StatusForbidden, `User "system:node:`+node+`" cannot `, `resource "configmaps" in API group "" in the namespace "kube-system"`)
		})
	}
}

func TestWithoutItsOwnRoleANodeReadsNoConfigMapOfKubeSystem(t *testing.T) {
	givenConfigMaps(t)
	for _, name := range append(inKubeSystem, "kubelet-none") {
		wantNoReads(t, "one", name)
	}
}

func TestTheSharedRoleLetsEveryNodeReadAllConfigMapsOfKubeSystem(t *testing.T) {
	givenConfigMaps(t)
	granted(t, "-k", filepath.Join(root, "config/configmap-source"), "one", "two")
	for _, node := range []string{"one", "two"} {
		for _, name := range inKubeSystem {
			wantReads(t, node, name)
		}

		all, err := configMapsAs(node).List(t.Context(), metav1.ListOptions{})
		assert.That(t, err == nil && len(all.Items) >= len(inKubeSystem), "%s sees %d ConfigMaps, error %v", node, len(all.Items), err)
	}

	_, err := kubernetes.NewForConfigOrDie(nodeConfig("one")).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	wantRefused(t, err, http.StatusForbidden, `in the namespace "default"`)
	err = configMapsAs("one").Delete(t.Context(), "kubelet-one", metav1.DeleteOptions{})
	wantRefused(t, err, http.StatusForbidden, `cannot delete resource "configmaps"`)
}

func TestWithItsOwnRoleANodeReadsOnlyItsConfigMap(t *testing.T) {
	givenConfigMaps(t)
	manifest := filepath.Join(t.TempDir(), "rbac.yaml")
	var rules strings.Builder // of the commands in docs/sources.md
	for _, node := range []string{"one", "two", "none"} {
		own := "kubelet-" + node
		for _, create := range [][]string{
			{"create", "role", own, "--verb=get,list,watch", "--resource=configmaps", "--resource-name=" + own},
			{"create", "rolebinding", own, "--role=" + own, "--user=system:node:" + node},
		} {
			rules.WriteString("---\n" + mustKubectl(t, append(create, "--namespace=kube-system", "--dry-run=client", "--output=yaml")...))
		}
	}

	assert.NoError(t, os.WriteFile(manifest, []byte(rules.String()), 0o600))
	granted(t, "-f", manifest, "one", "two", "none")
	wantReads(t, "one", "kubelet-one")
	wantReads(t, "two", "kubelet-two")
	// That there is no object is an answer, not a refusal.
	none, err := configMapsAs("none").List(t.Context(), only("kubelet-none"))
	assert.That(t, err == nil && len(none.Items) == 0, "a node without its own ConfigMap sees %v, error %v, want none", none, err)
	for _, name := range []string{"kubelet-two", "coredns", "kubelet-none"} {
		wantNoReads(t, "one", name)
	}

	for what, err := range map[string]error{
		"list all":       assert.Err(configMapsAs("one").List(t.Context(), metav1.ListOptions{})),
		"watch all":      stop(configMapsAs("one").Watch(t.Context(), metav1.ListOptions{})),
		"list all other": assert.Err(configMapsAs("one").List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name!=kubelet-one"})),
		"list by label":  assert.Err(configMapsAs("one").List(t.Context(), metav1.ListOptions{LabelSelector: "a!=b"})),
	} {
		t.Run(what, func(t *testing.T) {
			wantRefused(t, err, http.StatusForbidden, `resource "configmaps" in API group "" in the namespace "kube-system"`)
		})
	}
}
