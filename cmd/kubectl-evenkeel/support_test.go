// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// untar returns the files of a bundle by their name below its directory, and
// their names in order.
func untar(t *testing.T, archive []byte) (files map[string]string, order []string) {
	t.Helper()
	z := assert.Value(gzip.NewReader(bytes.NewReader(archive)))(t)
	files = map[string]string{}
	for in := tar.NewReader(z); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files, order
		}

		assert.NoError(t, err)
		text := assert.Value(io.ReadAll(in))(t)
		_, name, _ := strings.Cut(h.Name, "/")
		files[name], order = string(text), append(order, name)
	}
}

// recorder is a proxy before the API server that records requests.
type recorder struct {
	mu       sync.Mutex
	requests []string // METHOD PATH
	seen     func(path string)
}

// newRecorder returns a recorder, and a kubeconfig that leads to it with this
// token, in a context of this name.
func newRecorder(t *testing.T, name, token string) (*recorder, string) {
	t.Helper()
	r := &recorder{}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	proxy := assert.Value(localcluster.StartProxy(cluster.AdminConfig(), path, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			r.record(request.Method, request.URL.Path)
			request.Header.Del("Authorization") // the proxy authenticates as administrator
			next.ServeHTTP(w, request)
		})
	}))(t)
	t.Cleanup(proxy.Close)
	config := assert.Value(clientcmd.LoadFromFile(path))(t)
	config.AuthInfos["nobody"].Token = token
	config.Contexts[name], config.CurrentContext = config.Contexts["proxy"], name
	assert.NoError(t, clientcmd.WriteToFile(*config, path))

	return r, path
}

func (r *recorder) record(method, path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, method+" "+path)
	if r.seen != nil {
		r.seen(path)
	}
}

// serveLogs makes a Node whose kubelet serves the logs of containers.
func serveLogs(t *testing.T, node *corev1.Node, current, previous string) {
	t.Helper()
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/containerLogs/"+v1alpha1.SystemNamespace+"/") {
			http.NotFound(w, r)
			return
		}

		text := current
		if r.URL.Query().Get("previous") == "true" {
			text = previous
		}

		assert.OK(t, assert.Err(io.WriteString(w, text)), "serve a log")
	}))
	t.Cleanup(kubelet.Close)
	host, port, err := net.SplitHostPort(kubelet.Listener.Addr().String())
	assert.NoError(t, err)
	number := assert.Value(strconv.ParseInt(port, 10, 32))(t)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	assert.NoError(t, admin.Status().Update(t.Context(), node))
}

// createController creates a Deployment of a controller and a pod of it.
func createController(t *testing.T, node string, annotations map[string]string, container corev1.Container) {
	t.Helper()
	labels := map[string]string{"app.kubernetes.io/name": "evenkeel-controller"}
	meta := metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "evenkeel-controller", Labels: labels, Annotations: annotations}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}, Spec: corev1.PodSpec{Containers: []corev1.Container{container}}}
	create(t, &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template}})
	pod := &corev1.Pod{ObjectMeta: meta, Spec: template.Spec}
	pod.Spec.NodeName, pod.Spec.TerminationGracePeriodSeconds = node, new(int64)
	create(t, pod)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container.Name, Image: container.Image, RestartCount: 1}}
	assert.NoError(t, admin.Status().Update(t.Context(), pod))
}

func TestASupportBundleHasWhatAMaintainerNeedsAndNoSecret(t *testing.T) {
	const planted = "planted" // in every secret
	secret := func(where string) string { return planted + "-7f3a9c-" + where }
	assert.NoError(t, empty(t.Context()))
	api := fakeapi.Of(t, admin)
	applied := map[string]string{corev1.LastAppliedConfigAnnotation: `{"data":"` + secret("applied") + `"}`}

	create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "webhook-key"}, StringData: map[string]string{"key": secret("secret")}})
	cm := api.AddRevision("bundled", 1, "maxPods: 77\nstaticPodURL: https://pods.example.com/"+secret("url")+"\nstaticPodURLHeader: {Authorization: ["+secret("header")+"]}\n")
	create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "other"}, Data: map[string]string{"ca.key": secret("other")}})
	api.AddRollout("bundled", "bundled", &runtime.RawExtension{Raw: []byte(`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":78,"staticPodURLHeader":{"Authorization":["` + secret("inline") + `"]}}`)},
		func(r *v1alpha1.NodeConfigRollout) { r.Status.Phase = v1alpha1.RolloutHalted; r.Annotations = applied })
	node := api.AddNode("bundled-1", "bundled", "zone-a")
	node.Annotations = map[string]string{"csi.example.com/token": secret("node"), v1alpha1.AnnotationAgentFailed: "no systemd"}
	api.Write(node)
	api.AddNodeConfig("bundled-1", fakeapi.ByRollout("bundled", 1, cm, nil), func(st *v1alpha1.NodeConfigStatus) {
		fakeapi.Failing(st, v1alpha1.ReasonCrashLooped, "exit status 1: cannot open the file with token="+secret("error"))
		st.Conditions[0].Message = "using last-known-good (local): password=" + secret("message")
	})
	create(t, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bundled"}, InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "bundled-1"},
		Source: corev1.EventSource{Component: "evenkeel-agent"}, Reason: "ConfigRolledBack", Message: "went back", Type: "Warning"})
	create(t, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "shop"},
		Source: corev1.EventSource{Component: "kubelet"}, Message: "about a shop " + secret("event")})
	serveLogs(t, node, "level=INFO msg=leading\nlevel=ERROR msg=\"Authorization: Bearer "+secret("log")+"\"\n", "level=ERROR msg=\"it went away\"\n")
	createController(t, node.Name, applied, corev1.Container{
		Name: "controller", Image: "evenkeel.dev/controller:v1", Env: []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://u:" + secret("env") + "@proxy"}},
		Args: []string{"--notify=chat=https://hooks.example.com/" + secret("path")},
	})

	requests, kubeconfig := newRecorder(t, "arn:aws:eks:eu-1:42:cluster/prod", secret("kubeconfig"))
	dir := t.TempDir()
	t.Chdir(dir)
	a := evenkeel(t, kubeconfig, "support-bundle")
	a.WantOutput(t, "wrote evenkeel-support-arn-aws-eks-eu-1-42-cluster-prod-", "doctor.json", "rollouts/", "1 NodeConfigRollout", "logs/evenkeel-controller-controller.txt", "MANIFEST.txt",
		"It has no Secrets", "Review it before you send it: tar tzf evenkeel-support-")
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || !regexp.MustCompile(`^evenkeel-support-arn-aws-eks-eu-1-42-cluster-prod-\d{8}-\d{6}\.tar\.gz$`).MatchString(entries[0].Name()) {
		t.Fatalf("%v, %v", entries, err)
	}
	if info, err := entries[0].Info(); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}

	files, order := untar(t, assert.Value(os.ReadFile(entries[0].Name()))(t))
	for name, words := range map[string][]string{
		"version.json":       {`"v0.0.0-test"`, `"gitVersion"`, `"v0.1.0": 1`},
		"doctor.json":        {`"headline": "`, "1 rollout halted, 1 node failed", "password=masked"},
		"installation.json":  {"nodeconfigs.evenkeel.dev", "ValidatingAdmissionPolicyBinding", "evenkeel-operator"},
		"rollouts/1.json":    {`"bundled"`, `"Halted"`, `"maxPods": 78`, `"masked"`},
		"nodeconfigs/1.json": {`"bundled-1"`, "cannot open the file with token=masked"},
		"nodes/1.json":       {`"bundled-1"`, `"kubeletVersion": "v1.36.3"`, `"pool": "bundled"`, "no systemd"},
		"namespaces/evenkeel-system/configmaps/1.json":     {cm.Name, `"maxPods": 77`, "https://pods.example.com/masked", `"ca.key": "left out`},
		"events/evenkeel-agent/1.json":                     {"ConfigRolledBack"},
		"namespaces/evenkeel-system/pods/1.json":           {`"HTTPS_PROXY"`, "https://hooks.example.com/masked"},
		"namespaces/evenkeel-system/deployments/1.json":    {`"evenkeel.dev/controller:v1"`},
		"logs/evenkeel-controller-controller.txt":          {"msg=leading", "masked"},
		"logs/evenkeel-controller-controller-previous.txt": {"it went away"},
		"MANIFEST.txt": {"support-bundle v0.0.0-test, context arn:aws:eks:eu-1:42:cluster/prod", "  1 NodeConfig, "},
	} {
		for _, w := range words {
			assert.That(t, strings.Contains(files[name], w), "%s lacks %q:\n%.2000s", name, w, files[name])
		}
	}

	assert.That(t, !strings.Contains(files["MANIFEST.txt"], "Could not be read") && order[len(order)-1] == "MANIFEST.txt",
		"%v, with the manifest\n%s", order, files["MANIFEST.txt"])

	for name, text := range files {
		if at := strings.Index(text, planted); at >= 0 {
			t.Errorf("%s has a secret: %q", name, text[max(0, at-100):min(len(text), at+60)])
		}

		assert.That(t, !strings.HasSuffix(name, ".json") || json.Valid([]byte(text)), "%s is no JSON", name)
	}

	assert.That(t, !strings.Contains(a.Out+a.Err, planted), "the output has a secret:\n%s%s", a.Out, a.Err)
	requests.mu.Lock()
	defer requests.mu.Unlock()
	for _, r := range requests.requests {
		assert.That(t, strings.HasPrefix(r, "GET ") && !strings.Contains(r, "secrets"), "the command has sent %s", r)
	}

	assert.That(t, len(requests.requests) >= 20, "only %d requests were recorded", len(requests.requests))
}

// What cannot be read is listed with the reason, and the rest is collected: by
// a user with few rights, and where a kubelet does not answer.
func TestASupportBundleSaysWhatItLacks(t *testing.T) {
	assert.NoError(t, empty(t.Context()))
	api := fakeapi.Of(t, admin)
	node := api.AddNode("dead-1", "dead", "")
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = 1
	api.Report(node)
	createController(t, node.Name, nil, corev1.Container{Name: "controller", Image: "evenkeel.dev/controller:v1"})
	// A configuration with characters that a terminal would obey is escaped, as
	// in all other output.
	create(t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "hostile-bundle"}, Data: map[string]string{payload.KeyKubelet: fakeapi.Header + "clusterDomain: \"a\\e[31mb\"\n"},
	})
	path := filepath.Join(t.TempDir(), "bundle.tar.gz")
	evenkeel(t, cluster.AdminKubeconfig(), "support-bundle", "-o", path).WantOutput(t, "namespaces/evenkeel-system/pods/ 1 Pod", "note: could not be read",
		"the log of container controller of pod evenkeel-controller: ", "connection refused", "the log of container controller of pod evenkeel-controller before its last restart: ")
	files, _ := untar(t, assert.Value(os.ReadFile(path))(t))
	text := files["namespaces/evenkeel-system/configmaps/1.json"]
	assert.That(t, strings.Contains(text, `a\u001b[31mb`), "ConfigMaps:\n%s", text)

	watcher := assert.Value(cluster.ClientKubeconfig("watcher-of-nodes"))(t)
	create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "watcher-of-nodes"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list"}}}})
	create(t, bindingOf("watcher-of-nodes", "watcher-of-nodes"))
	assert.NoError(t, allowed(t.Context(), "watcher-of-nodes", "", "nodes"))
	piped := evenkeel(t, watcher, "support-bundle", "-o", "-")
	if files, _ = untar(t, []byte(piped.Out)); piped.Code != 0 || !strings.Contains(files["nodes/1.json"], `"dead-1"`) {
		t.Errorf("exit %d: nodes:\n%s", piped.Code, files["nodes/1.json"])
	}

	for _, w := range []string{"note: could not be read; the bundle is useful without it:", `NodeConfigs: nodeconfigs.evenkeel.dev is forbidden: User "watcher-of-nodes" cannot list resource`, "It has no Secrets"} {
		assert.That(t, strings.Contains(piped.Err, w), "no %q in %s", w, piped.Err)
	}

	for _, what := range []string{"ClusterRoles of the installation: ", "NodeConfigRollouts: ", "ConfigMaps of namespace evenkeel-system: ", "the Lease of the controller: ", "the logs of the controller: ", "Pods of namespace evenkeel-install: "} {
		assert.That(t, strings.Contains(files["MANIFEST.txt"], "\n"+what), "no %q in\n%s", what, files["MANIFEST.txt"])
	}

	assert.That(t, !strings.Contains(files["MANIFEST.txt"], "secrets"), "the command has asked for Secrets:\n%s", files["MANIFEST.txt"])
}

func TestAnInterruptedSupportBundleLeavesNoFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bundle.tar.gz")
	ctx, cancel := context.WithCancel(t.Context())
	requests, kubeconfig := newRecorder(t, "interrupted", "")
	requests.seen = func(path string) {
		if strings.HasSuffix(path, "/leases/evenkeel-controller") {
			cancel()
		}
	}
	got := evenkeelIn(ctx, kubeconfig, "support-bundle", "-o", path)
	got.WantError(t, "interrupted: no file was written")
	entries, err := os.ReadDir(filepath.Dir(path))
	assert.That(t, err == nil && len(entries) == 0, "%v, %v", entries, err)
	missing := filepath.Join(filepath.Dir(path), "missing", "bundle.tar.gz")
	evenkeel(t, cluster.AdminKubeconfig(), "support-bundle", "-o", missing).WantError(t, "no file was written: create "+missing, "choose another place with -o", "no such file or directory")
}
