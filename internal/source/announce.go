package source

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Announce creates the NodeConfig of a node that takes nothing from it, so
// that the whole fleet is visible. It returns when there is one, or ctx ends.
func Announce(ctx context.Context, client *Client, node string, log *slog.Logger) {
	retry := retries(5 * time.Minute)
	for {
		_, err := client.do(ctx, newNodeConfig(node), nil)
		if err == nil || apierrors.IsAlreadyExists(err) {
			return
		}
		log.Debug("cannot create the NodeConfig of this node; trying again", "err", err)
		if !pause(ctx, retry.Step(), client.recovered(), nil) {
			return
		}
	}
}

// newNodeConfig is the request that creates a NodeConfig that assigns nothing.
func newNodeConfig(node string) request {
	return request{verb: "POST", gv: v1alpha1.GroupVersion, resource: "nodeconfigs", body: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       "NodeConfig",
		"metadata":   map[string]string{"name": node},
	}}
}

// Snapshot looks once, whether the watch is on or not.
func (w *NodeWatch) Snapshot(ctx context.Context) NodeState { return w.client.Snapshot(ctx, w.node) }

// KubeletTransport returns a transport that shows a kubelet on this machine the
// node's own client certificate. The kubelet's serving certificate is not
// verified: it is its own affair, and this is for the loopback interface only.
func (c *Client) KubeletTransport() (http.RoundTripper, error) {
	c.mu.Lock()
	err := c.load()
	config := c.config
	c.mu.Unlock()
	if config == nil {
		return nil, &kubeconfigError{c.path, err}
	}
	own := rest.AnonymousClientConfig(config)
	own.CertFile, own.KeyFile, own.CertData, own.KeyData = config.CertFile, config.KeyFile, config.CertData, config.KeyData
	own.Insecure, own.CAFile, own.CAData, own.ServerName, own.Proxy = true, "", nil, "", nil
	return rest.TransportFor(own)
}
