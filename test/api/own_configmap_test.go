// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// inKubeSystem are the ConfigMaps that the tests use, besides those that every
// kube-system has.
var inKubeSystem = []string{"kubelet-one", "kubelet-two", "coredns"}

// givenConfigMaps creates them until the test ends.
func givenConfigMaps(t *testing.T) {
	t.Helper()
	configMaps := kubernetes.NewForConfigOrDie(cluster.AdminConfig()).CoreV1().ConfigMaps(metav1.NamespaceSystem)
	for _, name := range inKubeSystem {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		assert.NoError(t, assert.Err(configMaps.Create(t.Context(), m, metav1.CreateOptions{})))
		t.Cleanup(func() { assert.OK(t, configMaps.Delete(context.Background(), name, metav1.DeleteOptions{})) })
	}
}

// granted applies manifests until the test ends, and waits until the nodes may
// read their own ConfigMaps. At the end it waits until they no longer may.
func granted(t *testing.T, how, manifests string, nodes ...string) {
	t.Helper()
	awaitGrant := func(ctx context.Context, granted bool) {
		err := wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
			for _, node := range nodes {
				_, err := configMapsAs(t, node).Get(ctx, "kubelet-"+node, metav1.GetOptions{})
				if apierrors.IsForbidden(err) == granted {
					return false, nil
				}
			}

			return true, nil
		})
		assert.That(t, err == nil, "waiting for what %s grants %q (%t): %v", manifests, nodes, granted, err)
	}
	mustKubectl(t, "apply", how, manifests)
	t.Cleanup(func() {
		assert.OK(t, assert.Err(kubectl(context.Background(), "delete", how, manifests)))
		awaitGrant(context.Background(), false)
	})
	awaitGrant(t.Context(), true)
}

func configMapsAs(t *testing.T, node string) corev1client.ConfigMapInterface {
	t.Helper()
	return kubernetes.NewForConfigOrDie(nodeConfig(t, node)).CoreV1().ConfigMaps(metav1.NamespaceSystem)
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
	as := configMapsAs(t, node)
	return map[string]error{
		"get":                  errorOf(as.Get(t.Context(), name, metav1.GetOptions{})),
		"list":                 errorOf(as.List(t.Context(), only(name))),
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

		all, err := configMapsAs(t, node).List(t.Context(), metav1.ListOptions{})
		assert.That(t, err == nil && len(all.Items) >= len(inKubeSystem), "%s sees %d ConfigMaps, error %v", node, len(all.Items), err)
	}

	_, err := kubernetes.NewForConfigOrDie(nodeConfig(t, "one")).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	wantRefused(t, err, http.StatusForbidden, `in the namespace "default"`)
	err = configMapsAs(t, "one").Delete(t.Context(), "kubelet-one", metav1.DeleteOptions{})
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
	none, err := configMapsAs(t, "none").List(t.Context(), only("kubelet-none"))
	assert.That(t, err == nil && len(none.Items) == 0, "a node without its own ConfigMap sees %v, error %v, want none", none, err)
	for _, name := range []string{"kubelet-two", "coredns", "kubelet-none"} {
		wantNoReads(t, "one", name)
	}

	for what, err := range map[string]error{
		"list all":       errorOf(configMapsAs(t, "one").List(t.Context(), metav1.ListOptions{})),
		"watch all":      stop(configMapsAs(t, "one").Watch(t.Context(), metav1.ListOptions{})),
		"list all other": errorOf(configMapsAs(t, "one").List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name!=kubelet-one"})),
		"list by label":  errorOf(configMapsAs(t, "one").List(t.Context(), metav1.ListOptions{LabelSelector: "a!=b"})),
	} {
		t.Run(what, func(t *testing.T) {
			wantRefused(t, err, http.StatusForbidden, `resource "configmaps" in API group "" in the namespace "kube-system"`)
		})
	}
}
