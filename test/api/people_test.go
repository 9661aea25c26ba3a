// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// bound gives a user a role in the whole cluster until the test ends, and waits
// until it has it. The commands are those of the role's own comment.
func bound(t *testing.T, user, clusterRole string) (*kubernetes.Clientset, *dynamic.DynamicClient) {
	t.Helper()
	mustKubectl(t, "create", "clusterrolebinding", user, "--clusterrole="+clusterRole, "--user="+user)
	kubectlAtEnd(t, "delete", "clusterrolebinding", user)
	config := configFor(user)
	client := dynamic.NewForConfigOrDie(config)
	assert.Eventually(t, user+" has "+clusterRole, func() bool {
		_, err := client.Resource(nodeConfigs).List(t.Context(), metav1.ListOptions{Limit: 1})
		return !apierrors.IsForbidden(err)
	})

	return kubernetes.NewForConfigOrDie(config), client
}

// alsoBound gives a user a role in a namespace until the test ends.
func alsoBound(t *testing.T, user, namespace, role string) {
	t.Helper()
	mustKubectl(t, "create", "rolebinding", user, "-n", namespace, "--role="+role, "--user="+user)
	kubectlAtEnd(t, "delete", "rolebinding", user, "-n", namespace)
}

func TestTheOperatorRoleAllowsExactlyWhatTheCLINeeds(t *testing.T) {
	const user = "olga"
	alsoBound(t, user, v1alpha1.SystemNamespace, "evenkeel-operator")
	alsoBound(t, user, metav1.NamespaceDefault, "evenkeel-operator")
	core, client := bound(t, user, "evenkeel-operator")
	operated, assigned := client.Resource(rollouts), client.Resource(nodeConfigs)
	configMaps := core.CoreV1().ConfigMaps(v1alpha1.SystemNamespace)
	given(t, "metadata: {name: self}")
	kubectlAtEnd(t, "delete", "configmap", "more-pods.0123456789", "-n", v1alpha1.SystemNamespace)
	ctx, all := t.Context(), metav1.ListOptions{}
	elsewhere := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}}

	wantAnswers(t, []answer{
		{"create a rollout", assert.Err(operated.Create(ctx, rollout("operated", ""), metav1.CreateOptions{})), ""},
		{"patch it", merge(t, operated, "operated", `{"spec":{"paused":true}}`), ""},
		{"update it",
			assert.Err(operated.Update(ctx, assert.Value(operated.Get(ctx, "operated", metav1.GetOptions{}))(t), metav1.UpdateOptions{})), ""},
		{"list rollouts", assert.Err(operated.List(ctx, all)), ""},
		{"watch rollouts", stop(operated.Watch(ctx, all)), ""},
		{"write its status", merge(t, operated, "operated", `{"status":{"phase":"Complete"}}`, "status"),
			`cannot patch resource "nodeconfigrollouts/status"`},
		{"delete it", operated.Delete(ctx, "operated", metav1.DeleteOptions{}), ""},

		{"get a NodeConfig", assert.Err(assigned.Get(ctx, "self", metav1.GetOptions{})), ""},
		{"watch NodeConfigs", stop(assigned.Watch(ctx, all)), ""},
		{"assign a node something",
			assert.Err(assigned.Patch(ctx, "self", types.JSONPatchType, []byte(addSource), metav1.PatchOptions{})), ""},
		{"write the status of a NodeConfig", merge(t, assigned, "self", `{"status":{"error":"none"}}`, "status"),
			`cannot patch resource "nodeconfigs/status"`},
		{"create a NodeConfig", assert.Err(assigned.Create(ctx, parse("metadata: {name: another}"), metav1.CreateOptions{})),
			`cannot create resource "nodeconfigs"`},
		{"delete a NodeConfig", assigned.Delete(ctx, "self", metav1.DeleteOptions{}), `cannot delete resource "nodeconfigs"`},

		{"list Nodes", assert.Err(core.CoreV1().Nodes().List(ctx, all)), ""},
		{"read a node's configz",
			core.CoreV1().RESTClient().Get().Resource("nodes").Name("self").SubResource("proxy", "configz").Do(ctx).Error(),
			`cannot get resource "nodes/proxy"`},

		{"list Events of Nodes", assert.Err(core.CoreV1().Events(metav1.NamespaceDefault).List(ctx, all)), ""},
		{"delete them",
			core.CoreV1().Events(metav1.NamespaceDefault).Delete(ctx, "any", metav1.DeleteOptions{}), `cannot delete resource "events"`},
		{"list other Events", assert.Err(core.CoreV1().Events("kube-system").List(ctx, all)), `cannot list resource "events"`},

		{"list revisions", assert.Err(configMaps.List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelRollout})), ""},
		{"keep the content of a file", assert.Err(configMaps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "more-pods.0123456789"}, Immutable: new(true), Data: map[string]string{"kubelet": "{}"},
		}, metav1.CreateOptions{})), ""},
		{"change it",
			assert.Err(configMaps.Patch(ctx, "more-pods.0123456789", types.MergePatchType, []byte(`{"metadata":{}}`), metav1.PatchOptions{})),
			`cannot patch resource "configmaps"`},
		{"keep it elsewhere", assert.Err(core.CoreV1().ConfigMaps("kube-system").Create(ctx, elsewhere, metav1.CreateOptions{})),
			`cannot create resource "configmaps"`},
		{"delete revisions", configMaps.Delete(ctx, "workers-1", metav1.DeleteOptions{}), `cannot delete resource "configmaps"`},
		{"list other ConfigMaps", assert.Err(core.CoreV1().ConfigMaps("kube-system").List(ctx, all)), `cannot list resource "configmaps"`},
	})
}

func TestTheViewRoleReadsRolloutsAndWritesNothing(t *testing.T) {
	alsoBound(t, "vera", metav1.NamespaceDefault, "evenkeel-view")
	core, client := bound(t, "vera", "evenkeel-view")
	given(t, "metadata: {name: self}")
	givenRollout(t, "seen", "")
	ctx, all := t.Context(), metav1.ListOptions{}
	wantAnswers(t, []answer{
		{"get a rollout", assert.Err(client.Resource(rollouts).Get(ctx, "seen", metav1.GetOptions{})), ""},
		{"list rollouts", assert.Err(client.Resource(rollouts).List(ctx, all)), ""},
		{"watch rollouts", stop(client.Resource(rollouts).Watch(ctx, all)), ""},
		{"get a NodeConfig", assert.Err(client.Resource(nodeConfigs).Get(ctx, "self", metav1.GetOptions{})), ""},
		{"watch NodeConfigs", stop(client.Resource(nodeConfigs).Watch(ctx, all)), ""},
		{"list their Events", assert.Err(core.CoreV1().Events(metav1.NamespaceDefault).List(ctx, all)), ""},
		{"delete a rollout", client.Resource(rollouts).Delete(ctx, "seen", metav1.DeleteOptions{}), `cannot delete resource "nodeconfigrollouts"`},
		{"list Nodes", assert.Err(core.CoreV1().Nodes().List(ctx, all)), `cannot list resource "nodes"`},
	})
}

// The label is Kubernetes' contract: a controller of it, which does not run
// here, adds the rules to the built-in role.
func TestTheViewerRoleIsAggregatedAndTheOperatorRoleIsNot(t *testing.T) {
	role := func(name string) *rbacv1.ClusterRole {
		return assert.Value(admin.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{}))(t)
	}
	label := map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}
	want := &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: label}}}
	assert.NoDiff(t, cmp.Diff(want, role("view").AggregationRule), "view is made of")
	assert.NoDiff(t, cmp.Diff(label, role("evenkeel-view").Labels), "the labels of evenkeel-view")
	assert.That(t, len(role("evenkeel-operator").Labels) == 0, "evenkeel-operator has labels that may add it to another role")
}
