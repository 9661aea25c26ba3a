// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// answer returns a handler that gives this answer.
func answer(code int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// status returns a handler that answers as an API server.
func status(s metav1.Status) http.HandlerFunc {
	s.TypeMeta, s.Status = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, metav1.StatusFailure
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}

	return answer(int(s.Code), "application/json", string(text))
}

// discovered answers what an API server with evenkeel's API serves, and
// everything else as next does.
func discovered(next http.HandlerFunc) http.HandlerFunc {
	version := metav1.GroupVersionForDiscovery{GroupVersion: v1alpha1.GroupVersion.String(), Version: v1alpha1.GroupVersion.Version}
	documents := map[string]any{
		"/api":  metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}},
		"/apis": metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{{Name: v1alpha1.GroupName, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}}},
		"/apis/" + v1alpha1.GroupVersion.String(): metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version.GroupVersion,
			APIResources: []metav1.APIResource{{Name: "nodeconfigrollouts", SingularName: "nodeconfigrollout", Kind: "NodeConfigRollout", Verbs: metav1.Verbs{"get", "list", "watch"}}}},
	}

	return func(w http.ResponseWriter, r *http.Request) {
		if document, ok := documents[r.URL.Path]; ok {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(document)
			return
		}

		next(w, r)
	}
}

// kubeconfigOf returns the path of a kubeconfig for a server.
func kubeconfigOf(t *testing.T, server string, user *clientcmdapi.AuthInfo) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: server}
	c.AuthInfos["u"] = user
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	assert.NoError(t, clientcmd.WriteToFile(*c, path))

	return path
}

// rawWords are words of libraries about answers and connections, which say
// nothing to users.
var rawWords = regexp.MustCompile(`unknown reason|invalid character|dial tcp|deadline exceeded|x509|serializer|<html|unexpected end|failed to get server groups|prevented the request|requested resource|json parse|EOF`)

func TestGarbageFromAServerIsExplained(t *testing.T) {
	const (
		notAPI     = "the answer is not from a Kubernetes API server"
		html502    = "<html><head><title>502 Bad Gateway</title></head><body><center><h1>502 Bad Gateway</h1></center><hr>nginx</body></html>"
		noObject   = notAPI + ": it is no object of the API; a proxy or a login page answers in its place, or the address is wrong"
		intercepts = "a proxy or load balancer answers in its place, because it does not reach the API server"
	)
	huge := strings.Repeat("x", 8<<20)
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	closes := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	redirect := func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }
	ok := answer(http.StatusOK, "application/json", "{}")
	for _, tt := range []struct {
		name       string
		handler    http.HandlerFunc
		tls        bool
		scheme     string
		what, next string
	}{
		{"HTML 502", answer(502, "text/html", html502), false, "", notAPI + " (HTTP 502 Bad Gateway): " + intercepts, "if the API server is up, try again in a minute"},
		{"HTML 502 after discovery", discovered(answer(502, "text/html", html502)), false, "", notAPI + " (HTTP 502 Bad Gateway): " + intercepts, "if the API server is up, try again in a minute"},
		{"403 without a Status", answer(403, "text/plain", "blocked by policy"), false, "", notAPI + ` (HTTP 403 Forbidden: "blocked by policy"): a proxy or firewall refuses the request; permissions in the cluster do not matter`, "log in to the proxy"},
		{"401", answer(401, "text/plain", "no"), false, "", "the API server does not accept your credentials (401 Unauthorized)", "log in again"},
		{"400", answer(400, "text/plain", "no"), false, "", notAPI + ` (HTTP 400 Bad Request: "no"): the address is wrong, or a proxy answers in its place`, "kubectl cluster-info"},
		{"404", answer(404, "text/plain", "404 page not found"), false, "", notAPI + ` (HTTP 404 Not Found: "404 page not found"): the address is wrong`, "kubectl cluster-info"},
		{"404 after discovery", discovered(answer(404, "text/plain", "no")), false, "", notAPI + ` (HTTP 404 Not Found: "no"): the address is wrong`, "kubectl cluster-info"},
		{"429", answer(429, "text/plain", "no"), false, "", notAPI + ` (HTTP 429 Too Many Requests: "no"): a proxy or load balancer limits your requests`, "try again in a minute"},
		{"418", answer(418, "text/plain", ""), false, "", notAPI + " (HTTP 418 I'm a teapot): the address is wrong", "kubectl cluster-info"},
		{"503 of an API server", status(metav1.Status{Code: 503, Reason: metav1.StatusReasonServiceUnavailable, Message: "etcd is down"}), false, "", "the API server, or a proxy in front of it, answered HTTP 503 Service Unavailable", "kubectl get --raw /api"},
		{"500 after discovery", discovered(status(metav1.Status{Code: 500, Reason: metav1.StatusReasonInternalError, Message: "etcd is down"})), false, "", "etcd is down", "the API server has a problem of its own"},
		{"200 with HTML", answer(200, "text/html", "<html><title>Log in</title></html>"), false, "", noObject, "log in to the proxy"},
		{"200 with HTML after discovery", discovered(answer(200, "text/html", "<html><title>Log in</title></html>")), false, "", noObject, "log in to the proxy"},
		{"200 with text that claims to be JSON", discovered(answer(200, "application/json", "<html>")), false, "", noObject, "log in to the proxy"},
		{"empty", answer(200, "application/json", ""), false, "", noObject, "log in to the proxy"},
		{"empty after discovery", discovered(answer(200, "application/json", "")), false, "", noObject, "log in to the proxy"},
		{"another object", ok, false, "", "the cluster does not serve evenkeel.dev/v1alpha1", "install evenkeel's API"},
		{"a closed connection", closes, false, "", "the API server cannot be reached: it closed every connection before it answered, until the time was up", "it may be restarting"},
		{"redirects", redirect, false, "", "the server redirects without end: a proxy or a login page answers in place of the API server", "log in to the proxy"},
		{"a huge body", answer(200, "text/plain", huge), false, "", noObject, "log in to the proxy"},
		{"a huge error", answer(500, "text/plain", huge), false, "", notAPI + " (HTTP 500 Internal Server Error: \"xxx", "if the API server is up"},
		{"no answer", hang, false, "", "the API server cannot be reached: ADDRESS did not answer in time", "--request-timeout"},
		{"no answer after discovery", discovered(hang), false, "", "the API server cannot be reached: ADDRESS did not answer in time", "--request-timeout"},
		{"another authority", ok, true, "", "the certificate of ADDRESS is signed by an authority that your kubeconfig does not trust", "get a new kubeconfig of this cluster"},
		{"https to http", ok, false, "https", "ADDRESS answers in plain HTTP, and the kubeconfig says https", "kubectl cluster-info"},
		{"http to https", ok, true, "http", "the server expects https, and the kubeconfig or --server says http", "use https://"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // they wait
			s := httptest.NewUnstartedServer(tt.handler)
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			if tt.tls {
				s.StartTLS()
			} else {
				s.Start()
			}

			t.Cleanup(s.Close)
			t.Cleanup(s.CloseClientConnections)
			scheme, address, _ := strings.Cut(s.URL, "://")
			if tt.scheme != "" {
				scheme = tt.scheme
			}

			kubeconfig := kubeconfigOf(t, scheme+"://"+address, &clientcmdapi.AuthInfo{Token: "sesame"})
			timeout := "1m"
			if strings.HasPrefix(tt.name, "no answer") || tt.name == "a closed connection" {
				timeout = "2s" // they use it up
			}

			for _, args := range [][]string{{"rollout", "list"}, {"rollout", "status", "workers"}} {
				got := evenkeelAs(t, kubeconfig, append(args, "--request-timeout="+timeout)...)
				wants(t, got, strings.ReplaceAll(tt.what, "ADDRESS", address), tt.next)
			}
		})
	}
}

// wants requires an error with what happened in its first line and what to do
// next after it, and no words of libraries.
func wants(t *testing.T, got fakeapi.Result, what, next string) {
	t.Helper()
	first, rest, _ := strings.Cut(got.Err, "\n")
	assert.That(t, got.Code == command.ExitError && got.Out == "" && strings.Contains(first, what) && strings.Contains(rest, next),
		"exit %d: %q, want %q, and %q after it", got.Code, got.Err, what, next)
	raw := rawWords.FindString(got.Err)
	assert.That(t, raw == "" && len(got.Err) <= 1000, "raw words %q, or too long: %q", raw, got.Err)
}

func TestUnreachableServersAreExplained(t *testing.T) {
	closed := localcluster.FreeAddressForTest(t)
	as := func(server string, user *clientcmdapi.AuthInfo) fakeapi.Result {
		return evenkeelAs(t, kubeconfigOf(t, server, user), "rollout", "list", "--request-timeout=10s")
	}
	wants(t, as("https://"+closed, &clientcmdapi.AuthInfo{}), "the API server cannot be reached: "+closed+" refuses connections, because nothing listens there", "is the API server up?")
	wants(t, as("https://api.invalid", &clientcmdapi.AuthInfo{}), "the API server, api.invalid, cannot be resolved", "is this machine's network or VPN up?")
	plugin := &clientcmdapi.ExecConfig{Command: "no-such-plugin", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
	wants(t, as("https://"+closed, &clientcmdapi.AuthInfo{Exec: plugin}), "the program that your kubeconfig names for credentials failed: exec: executable no-such-plugin not found", "install it or log in with it again")
}

const someRollouts = `{"kind":"NodeConfigRolloutList","apiVersion":"evenkeel.dev/v1alpha1","items":[{"metadata":{"name":"w"},` +
	`"spec":{"template":{"kubelet":{"staticPodURLHeader":{"Authorization":["Bearer pod-swordfish-1"]}}}}}]}`

func TestVerbosityShowsRequests(t *testing.T) {
	s := httptest.NewServer(discovered(answer(200, "application/json", someRollouts)))
	t.Cleanup(s.Close)
	kubeconfig := kubeconfigOf(t, s.URL, &clientcmdapi.AuthInfo{})
	got := evenkeelAs(t, kubeconfig, "rollout", "list", "-o", "name")
	assert.That(t, got.Err == "", "without -v the command logs %q", got.Err)

	for _, level := range []string{"-v=6", "-v6", "--v=6"} {
		got := evenkeelAs(t, kubeconfig, "rollout", "list", "-o", "name", level)
		if got.Code != 0 || !strings.Contains(got.Err, `verb="GET" url="`+s.URL) || !strings.Contains(got.Err, `/apis/evenkeel.dev/v1alpha1/nodeconfigrollouts?limit=500" status="200 OK"`) {
			t.Errorf("%s shows %q", level, got.Err)
		}
	}
}

// No level shows a credential: neither that of the user, nor one in an object.
func TestVerbosityMasksCredentials(t *testing.T) {
	var seen []string
	s := httptest.NewTLSServer(discovered(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		answer(200, "application/json", someRollouts)(w, r)
	}))
	t.Cleanup(s.Close)
	token := kubeconfigOf(t, s.URL, &clientcmdapi.AuthInfo{Token: "open-sesame-1"})
	password := kubeconfigOf(t, s.URL, &clientcmdapi.AuthInfo{Username: "ali", Password: "baba-40"})
	for _, level := range []string{"1", "6", "7", "8", "9", "10", "99"} {
		for _, kubeconfig := range []string{token, password} {
			got := evenkeelAs(t, kubeconfig, "rollout", "list", "--insecure-skip-tls-verify", "-v", level)
			for _, secret := range []string{"sesame", "baba", "YWxpOmJhYmEtNDA", "swordfish"} {
				assert.That(t, !strings.Contains(got.Err, secret), "-v %s shows the credential %s:\n%s", level, secret, got.Err)
			}

			assert.That(t, level != "10" || strings.Contains(got.Err, "masked"), "-v %s shows no headers:\n%s", level, got.Err)
		}
	}

	all := strings.Join(seen, " ")
	assert.That(t, strings.Contains(all, "Bearer open-sesame-1") && strings.Contains(all, "Basic YWxpOmJhYmEtNDA="),
		"the credentials were not sent: %q", all)
}
