// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

var (
	cluster *localcluster.Cluster
	admin   *Client
)

func TestMain(m *testing.M) {
	os.Exit(localcluster.RunTests(localcluster.Options{}, func(_ context.Context, c *localcluster.Cluster) (_ int, err error) {
		cluster = c
		if admin, err = NewClient(cluster.AdminKubeconfig(), "test"); err != nil {
			return 0, err
		}

		return m.Run(), nil
	}))
}

const patience = 30 * time.Second

// await polls until done returns true, or fails with the last value.
func await[T any](t *testing.T, what string, get func() T, done func(T) bool) T {
	t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(5 * time.Millisecond) {
		got := get()
		if done(got) {
			return got
		}

		assert.Must(t, !time.Now().After(deadline), "%s: not within %v; last value %+v", what, patience, got)
	}
}

var serial atomic.Int64

func newName(prefix string) string { return fmt.Sprintf("%s-%d", prefix, serial.Add(1)) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// background runs f until the test ends, and fails the test if f does not
// return when its context ends.
func background(t *testing.T, f func(context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			t.Error("f still runs 5 s after its context ended")
		}
	})
	t.Cleanup(stop)

	return stop
}

func nodeKubeconfig(t *testing.T, node string) string {
	t.Helper()
	return assert.Value(cluster.NodeKubeconfig(node))(t)
}

func newClient(t *testing.T, kubeconfig string) *Client {
	t.Helper()
	return assert.Value(NewClient(kubeconfig, "evenkeel-agent/test"))(t)
}

func startSource(t *testing.T, c *Client, node string, records Checkpoints) *NodeConfigSource {
	t.Helper()
	s := NewNodeConfigSource(c, node, records, quiet())
	background(t, s.Run)
	return s
}

func awaitAnswer(t *testing.T, s interface{ Current() Answer }, what string, done func(Answer) bool) Answer {
	t.Helper()
	return await(t, what, s.Current, done)
}

// disk implements Records in memory.
type disk struct {
	mu          sync.Mutex
	checkpoints map[string][]byte
	payloads    map[string]string
	adopted     map[string]int64 // attempts, by revision
}

func (d *disk) Checkpoint(revision string) ([]byte, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	raw, ok := d.checkpoints[revision]
	return raw, ok
}

func (d *disk) Payload(revision string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.payloads[revision]
}

func (d *disk) Adopted(revision string, attempt int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	has, ok := d.adopted[revision]
	return ok && attempt <= has
}

func (d *disk) put(revision string, raw []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.checkpoints[revision] = raw
}

func asAdmin(t *testing.T, r request) []byte {
	t.Helper()
	return assert.Value(admin.do(t.Context(), r, nil))(t, r.verb, r.resource, r.namespace, "/", r.name, "as the administrator")
}

const kubelet110 = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 110\n"

func createConfigMap(t *testing.T, namespace, name string, immutable bool, data map[string]string) *corev1.ConfigMap {
	t.Helper()
	raw := asAdmin(t, request{verb: "POST", gv: coreV1, namespace: namespace, resource: "configmaps", body: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": data, "immutable": immutable,
	}})
	cm := &corev1.ConfigMap{}
	assert.NoError(t, json.Unmarshal(raw, cm))

	return cm
}

func newConfigMap(t *testing.T) *corev1.ConfigMap {
	t.Helper()
	return createConfigMap(t, v1alpha1.SystemNamespace, newName("cm"), false, map[string]string{"kubelet": kubelet110})
}

func editConfigMap(t *testing.T, cm *corev1.ConfigMap, patch map[string]any) {
	t.Helper()
	asAdmin(t, request{verb: "PATCH", gv: coreV1, namespace: cm.Namespace, resource: "configmaps", name: cm.Name,
		contentType: string(types.MergePatchType), body: patch})
}

func deleteConfigMap(t *testing.T, cm *corev1.ConfigMap) {
	t.Helper()
	asAdmin(t, request{verb: "DELETE", gv: coreV1, namespace: cm.Namespace, resource: "configmaps", name: cm.Name})
}

func refTo(cm *corev1.ConfigMap) map[string]any {
	return map[string]any{"configMapRef": map[string]any{"namespace": cm.Namespace, "name": cm.Name, "uid": cm.UID}}
}

// assign writes the whole spec of a NodeConfig, and creates it if it does not
// exist.
func assign(t *testing.T, node string, source any) {
	t.Helper()
	setSpec(t, node, map[string]any{"configSource": source})
}

func setSpec(t *testing.T, node string, spec map[string]any) {
	t.Helper()
	r := request{verb: "PATCH", gv: v1alpha1.GroupVersion, resource: "nodeconfigs", name: node,
		contentType: string(types.JSONPatchType), body: []map[string]any{{"op": "add", "path": "/spec", "value": spec}}}
	_, err := admin.do(t.Context(), r, nil)
	if apierrors.IsNotFound(err) {
		r = request{verb: "POST", gv: v1alpha1.GroupVersion, resource: "nodeconfigs", body: map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NodeConfig", "metadata": map[string]any{"name": node}, "spec": spec,
		}}
		_, err = admin.do(t.Context(), r, nil)
	}

	assert.NoError(t, err, "assign", spec, "to", node)
}

func getNodeConfig(t *testing.T, node string) *v1alpha1.NodeConfig {
	t.Helper()
	nc := &v1alpha1.NodeConfig{}
	assert.NoError(t, assert.Err(admin.do(t.Context(), request{verb: "GET", gv: v1alpha1.GroupVersion, resource: "nodeconfigs", name: node}, nc)))

	return nc
}

func deleteNodeConfig(t *testing.T, node string) {
	t.Helper()
	asAdmin(t, request{verb: "DELETE", gv: v1alpha1.GroupVersion, resource: "nodeconfigs", name: node})
}

// proxy forwards requests to the API server with the identity of a node, counts
// them, and injects failures.
type proxy struct {
	*localcluster.Proxy

	mu       sync.Mutex
	requests []string // "GET /api/v1/...", with " watch" after it if it is one
	fault    func(*http.Request) (status int)
}

// Faults that are not an HTTP status.
const (
	hang     = -1 // none, ever
	nonsense = -2 // 200, with something that was not asked for
	expire   = -3 // 200, and a watch that has expired
)

func newProxy(t *testing.T, node string) *proxy {
	t.Helper()
	config := assert.Value(clientcmd.BuildConfigFromFlags("", nodeKubeconfig(t, node)))(t)
	p := &proxy{}
	p.Proxy = assert.Value(localcluster.StartProxy(config, filepath.Join(t.TempDir(), "kubeconfig"), func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(next, w, r) })
	}))(t)
	t.Cleanup(p.Close)

	return p
}

func (p *proxy) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	status := p.take(r)
	if status != 0 {
		w.Header().Set("Content-Type", "application/json")
	}

	switch status {
	case 0:
		next.ServeHTTP(w, r)
	case hang:
		<-r.Context().Done()
	case nonsense:
		fmt.Fprint(w, `{"kind":"NodeConfig","apiVersion":"evenkeel.dev/v1alpha1","metadata":{}}`)
	case expire:
		fmt.Fprint(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old","reason":"Expired","code":410}}`)
	default:
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"made up","reason":%q,"code":%d}`, reasonOf(status), status)
	}
}

func writeKubeconfig(t *testing.T, path, server string) {
	t.Helper()
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: %q}}]\ncontexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n", server)
	assert.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func reasonOf(status int) string {
	return map[int]string{401: "Unauthorized", 403: "Forbidden", 410: "Expired", 422: "Invalid", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}[status]
}

func (p *proxy) take(r *http.Request) (status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := r.Method + " " + r.URL.Path
	if r.URL.Query().Get("watch") == "true" {
		line += " watch"
	}

	p.requests = append(p.requests, line)
	if p.fault != nil {
		return p.fault(r)
	}

	return 0
}

func (p *proxy) fail(fault func(*http.Request) int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
}

// count returns the number of requests that contain all words.
func (p *proxy) count(words ...string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, line := range p.requests {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			n++
		}
	}

	return n
}

// all returns a fault for every request.
func all(status int) func(*http.Request) int { return func(*http.Request) int { return status } }

// of returns a fault for requests whose path contains part.
func of(part string, status int) func(*http.Request) int {
	return func(r *http.Request) int {
		if strings.Contains(r.URL.Path, part) {
			return status
		}

		return 0
	}
}
