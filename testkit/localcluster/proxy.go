// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// Proxy is an HTTP proxy between a client and the API server.
type Proxy struct {
	Kubeconfig string // for the client
	server     *httptest.Server
}

// StartProxy starts a proxy that forwards requests with the identity of config,
// and writes a kubeconfig for its clients. wrap gets every request, and decides
// whether to forward it.
func StartProxy(config *rest.Config, kubeconfig string, wrap func(next http.Handler) http.Handler) (_ *Proxy, err error) {
	defer must.Catch(&err)

	transport := must.Get(rest.TransportFor(config))
	target := must.Get(url.Parse(config.Host))
	reverse := httputil.NewSingleHostReverseProxy(target)
	quiet := log.New(io.Discard, "", 0) // aborted requests are expected
	reverse.Transport, reverse.FlushInterval, reverse.ErrorLog = transport, -1, quiet
	p := &Proxy{Kubeconfig: kubeconfig, server: httptest.NewUnstartedServer(wrap(reverse))}
	p.server.EnableHTTP2, p.server.Config.ErrorLog = true, quiet
	p.server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	p.server.StartTLS()

	return p, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"proxy": {Server: p.server.URL, InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"nobody": {}},
		Contexts:       map[string]*clientcmdapi.Context{"proxy": {Cluster: "proxy", AuthInfo: "nobody"}},
		CurrentContext: "proxy",
	}, p.Kubeconfig)
}

// CloseConnections closes the connections of all clients, and so aborts their
// requests.
func (p *Proxy) CloseConnections() { p.server.CloseClientConnections() }

// Close stops the proxy and aborts its requests.
func (p *Proxy) Close() {
	_ = p.server.Listener.Close() // a client that connects again could hold Close up with a watch; Close closes it again
	p.CloseConnections()
	p.server.Close()
}
