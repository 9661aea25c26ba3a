package bed

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Proxy is an HTTP proxy between an agent and the API server. It forwards requests with the node's own identity.
type Proxy struct {
	Kubeconfig string // for the agent's --kubeconfig
	server     *httptest.Server
}

// Proxy starts a proxy. wrap gets every request, and decides whether to forward it.
func (b *Bed) Proxy(wrap func(next http.Handler) http.Handler) (*Proxy, error) {
	config, err := clientcmd.BuildConfigFromFlags("", b.Node.Kubeconfig())
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	reverse := httputil.NewSingleHostReverseProxy(target)
	quiet := log.New(io.Discard, "", 0) // aborted requests are expected
	reverse.Transport, reverse.FlushInterval, reverse.ErrorLog = transport, -1, quiet
	p := &Proxy{Kubeconfig: filepath.Join(b.Node.Dir(), "proxy.kubeconfig")}
	p.server = httptest.NewUnstartedServer(wrap(reverse))
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

// Close stops the proxy and aborts its requests.
func (p *Proxy) Close() {
	p.server.CloseClientConnections()
	p.server.Close()
}
