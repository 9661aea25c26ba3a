// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// startPool starts a pool that ends with the test, and makes Borrow use it.
func startPool(t *testing.T) *Pool {
	t.Helper()
	pool := assert.Value(StartPool())(t)
	t.Cleanup(func() { assert.OK(t, pool.Stop()) })
	t.Setenv(PoolEnv, pool.Socket)

	return pool
}

func borrow(t *testing.T, o Options) *Cluster {
	t.Helper()
	c := assert.Value(Borrow(t.Context(), o))(t)
	t.Cleanup(func() { _ = c.Stop() }) // the second time it does nothing
	return c
}

// giveBack returns when the pool can lend the control plane again.
func giveBack(t *testing.T, pool *Pool, c *Cluster) {
	t.Helper()
	before := pool.waiting()
	assert.NoError(t, c.Stop())
	getsBack(t, pool, before+1)
}

// getsBack waits until so many control planes are idle.
func getsBack(t *testing.T, pool *Pool, want int) {
	t.Helper()
	eventually(t, time.Minute, func(context.Context) error {
		n := pool.waiting()
		return assert.Unless(n == want, "%d control planes are idle, want %d", n, want)
	})
}

func (p *Pool) waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle)
}

// wantServed fails unless the API server serves NodeConfigs, or unless it does
// not.
func wantServed(t *testing.T, c *Cluster, want bool) dynamic.NamespaceableResourceInterface {
	t.Helper()
	client := assert.Value(dynamic.NewForConfig(c.AdminConfig()))(t)
	configs := client.Resource(schema.GroupVersionResource{Group: "evenkeel.dev", Version: "v1alpha1", Resource: "nodeconfigs"})
	list, err := configs.List(t.Context(), metav1.ListOptions{})
	switch {
	case want && err != nil:
		t.Errorf("NodeConfigs are not served: %v", err)
	case want && len(list.Items) > 0:
		t.Errorf("there are NodeConfigs of another borrower: %v", list.Items)
	case !want && !apierrors.IsNotFound(err):
		t.Errorf("NodeConfigs are served: %v", err)
	}

	return configs
}

// The tests have one pool, because each control plane takes seconds to start.
func TestAPoolLends(t *testing.T) {
	pool := startPool(t)
	t.Run("nothing of the borrower before", func(t *testing.T) { testNothingIsLeft(t, pool) })
	t.Run("one control plane for each borrower, again after the borrower was killed", func(t *testing.T) { testAKilledBorrower(t, pool) })
}

func testNothingIsLeft(t *testing.T, pool *Pool) {
	first := borrow(t, Options{})
	configs := wantServed(t, first, true)
	// What the API alone would not give back: an object with a finalizer, a
	// namespace that nobody finishes deleting, a changed and a deleted
	// manifest.
	_, err := configs.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "evenkeel.dev/v1alpha1", "kind": "NodeConfig", "metadata": map[string]any{"name": "left", "finalizers": []any{"example.org/never"}},
	}}, metav1.CreateOptions{})
	assert.NoError(t, err)
	kube := admin(t, first)
	assert.NoError(t, assert.Err(kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "left"}}, metav1.CreateOptions{})))
	assert.NoError(t, kube.CoreV1().Namespaces().Delete(t.Context(), "left", metav1.DeleteOptions{}))
	policies := kube.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	assert.NoError(t, policies.Delete(t.Context(), "evenkeel-node", metav1.DeleteOptions{}))
	assert.NoError(t, first.Apply(t.Context(), filepath.Join(first.module, "config/controller/flowschema.yaml")))
	url := first.URL()
	giveBack(t, pool, first)

	bare := borrow(t, Options{Manifests: NoManifests})
	if bare.URL() != url || pool.Started() != 1 {
		t.Errorf("got another control plane at %s, want %s again; %d started", bare.URL(), url, pool.Started())
	}

	wantServed(t, bare, false)
	kube = admin(t, bare)
	spaces, err := kube.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil || len(spaces.Items) != 4 {
		t.Errorf("got namespaces %v, error %v, want the 4 of every cluster", spaces.Items, err)
	}

	flows := assert.Value(kube.FlowcontrolV1().FlowSchemas().List(t.Context(), metav1.ListOptions{}))(t)
	for _, flow := range flows.Items {
		assert.That(t, !strings.HasPrefix(flow.Name, "evenkeel"), "FlowSchema %s of another borrower is left", flow.Name)
	}

	giveBack(t, pool, bare)

	again := borrow(t, Options{})
	wantServed(t, again, true)
	node := assert.Value(again.NodeKubeconfig("one"))(t)
	said, err := exec.CommandContext(t.Context(), again.tool("kubectl"), "--kubeconfig="+node, "create", "--dry-run=server", "-f", "testdata/other-node.yaml").CombinedOutput()
	assert.That(t, err != nil && strings.Contains(string(said), "ValidatingAdmissionPolicy 'evenkeel-node'"),
		"a node creates the NodeConfig of another: got error %v and output %q, want a refusal by the policy evenkeel-node", err, said)

	// A borrower can stop its API server, start it, and leave it stopped.
	assert.NoError(t, again.StopAPIServer())
	assert.That(t, assert.Err(admin(t, again).ServerVersion()) != nil, "the API server answers after StopAPIServer")
	assert.NoError(t, again.StartAPIServer(t.Context()))
	assert.OK(t, assert.Err(admin(t, again).ServerVersion()))
	assert.NoError(t, again.StopAPIServer())
	giveBack(t, pool, again)
	next := borrow(t, Options{Manifests: NoManifests})
	assert.Equal(t, next.URL(), url, "got the control plane")
	assert.OK(t, assert.Err(admin(t, next).ServerVersion()), "the next borrower has an API server that is stopped")
}

func testAKilledBorrower(t *testing.T, pool *Pool) {
	c := borrow(t, Options{Manifests: NoManifests})
	_ = c.lease.close() // as the kernel does
	other := borrow(t, Options{Manifests: NoManifests})
	if n := pool.Started(); n != 2 || other.URL() == c.URL() {
		t.Errorf("got the control planes %s and %s, %d started; want two: the guard of the killed borrower still runs", c.URL(), other.URL(), n)
	}

	_ = c.guard.dismiss(false)
	_ = c.lock.Close()
	getsBack(t, pool, 1)
}
