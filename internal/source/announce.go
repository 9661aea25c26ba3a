package source

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
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

// Configz asks the kubelet of this machine for its /configz, with the node's
// own credentials; a kubelet that does not let its node read that says so. Its
// serving certificate is its own affair: this is the loopback interface.
func (c *Client) Configz(ctx context.Context, effective component.Effective) (component.Effective, error) {
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
	transport, err := rest.TransportFor(own)
	if err != nil {
		return nil, err
	}
	host, _ := effective.Field("address")
	address, _ := host.(string)
	if ip := net.ParseIP(address); ip == nil || ip.IsUnspecified() {
		address = "127.0.0.1"
	}
	port, ok := effective.Int("port")
	if !ok {
		port = 10250
	}
	base := "https://" + net.JoinHostPort(address, strconv.FormatInt(port, 10))
	return component.Configz(ctx, &http.Client{Transport: transport, Timeout: 5 * time.Second}, base)
}
