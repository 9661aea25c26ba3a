// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestClientNeedsKubeconfigAndUserAgent(t *testing.T) {
	for _, c := range [][2]string{{"", "a"}, {"a", ""}} {
		assert.That(t, assert.Err(NewClient(c[0], c[1])) != nil, "NewClient(%q, %q) succeeded", c[0], c[1])
	}
}

func TestReplacedKubeconfigIsUsedFromTheNextRequest(t *testing.T) {
	node := newName("node")
	path := filepath.Join(t.TempDir(), "kubeconfig")
	writeKubeconfig(t, path, "http://127.0.0.1:1")
	c := newClient(t, path)
	unreachable(t, c, node, "127.0.0.1:1")

	assert.NoError(t, os.WriteFile(path, assert.Value(os.ReadFile(nodeKubeconfig(t, node)))(t), 0o600))
	s := c.Snapshot(t.Context(), node)
	assert.That(t, s.Reachable, "with the new kubeconfig: %+v", s)

	for _, broken := range []func() error{
		func() error { return os.WriteFile(path, []byte("{"), 0o600) },
		func() error { return os.Remove(path) },
	} {
		assert.NoError(t, broken())
		s := c.Snapshot(t.Context(), node)
		assert.That(t, s.Reachable, "the client lost its configuration with the file: %+v", s)
	}
}

func TestKubeletTransportSendsTheNodesCertificate(t *testing.T) {
	client := newClient(t, nodeKubeconfig(t, newName("configz")))
	seen := ""
	kubelet := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen = r.TLS.PeerCertificates[0].Subject.Organization[0]
	}))
	kubelet.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	kubelet.StartTLS() // with a self-signed certificate
	defer kubelet.Close()
	transport := assert.Value(client.KubeletTransport())(t)
	res := assert.Value((&http.Client{Transport: transport}).Get(kubelet.URL))(t)
	res.Body.Close()
	assert.That(t, seen == "system:nodes", "the kubelet saw organization %q, want system:nodes", seen)
}

func TestKubeletTransportNeedsKubeconfig(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	client := newClient(t, missing)
	assert.Error(t, assert.Err(client.KubeletTransport()), "kubeconfig "+missing+": stat "+missing+": no such file or directory", "the error is")
}

func TestClientsShareOneConnection(t *testing.T) {
	for _, err := range []error{assert.Err(NewClientFor(nil, http.DefaultClient)), assert.Err(NewClientFor(&rest.Config{}, nil))} {
		assert.ErrorHas(t, err, "needs a configuration and an HTTP client", "with a nil argument")
	}

	config := assert.Value(clientcmd.BuildConfigFromFlags("", nodeKubeconfig(t, newName("shared"))))(t)
	shared := assert.Value(rest.HTTPClientFor(config))(t)
	for range 2 {
		c := assert.Value(NewClientFor(config, shared))(t)
		s := c.Snapshot(t.Context(), newName("nobody"))
		assert.That(t, s.Reachable || strings.Contains(s.Cause, "forbidden"), "the request failed: %+v", s)
		assert.That(t, c.http == shared, "the client opened connections of its own")
		assert.NoError(t, assert.Err(c.KubeletTransport()), "to a kubelet")
	}
}
