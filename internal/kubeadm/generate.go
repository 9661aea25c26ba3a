package kubeadm

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"path"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netutils "k8s.io/utils/net"

	"github.com/evenkeel/evenkeel/internal/component"
)

// fields are a document's, by their JSON names.
type fields map[string]any

// generate returns the ConfigMap, signed, that holds the configuration of a component as it is derived from cc; what the
// component defaults is left to it (proposal: "Stop Component Config defaulting"). endpoint is the control plane's,
// host:port, for a cc that names none. Whether the cluster has the component at all is the caller's to know. The error says
// what is missing or wrong.
func generate(c Component, cc *ClusterConfiguration, endpoint string) (*corev1.ConfigMap, error) {
	text, err := derive(c, cc)
	if err != nil {
		return nil, err
	}
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: c.ConfigMap},
		Data:       map[string]string{c.Key: text},
	}
	if c.Name == "kube-proxy" {
		cm.Labels = map[string]string{"app": "kube-proxy"}
		if cm.Data[proxyKubeconfig], err = kubeconfig(cc, endpoint); err != nil {
			return nil, fmt.Errorf("generate the configuration of %s: %w", c.Name, err)
		}
	}
	Sign(cm)
	return cm, nil
}

// derive returns the configuration of a component that follows from cc, as a document.
func derive(c Component, cc *ClusterConfiguration) (string, error) {
	dns, err := cc.dnsAddress()
	if err != nil {
		return "", fmt.Errorf("generate the configuration of %s: %w", c.Name, err)
	}
	if c.Name == "kube-proxy" {
		return document(c.Group+"/v1alpha1", c.Kind, proxyFields(cc, dns))
	}
	return document(c.Group+"/v1beta1", c.Kind, kubeletFields(cc, dns))
}

func kubeletFields(cc *ClusterConfiguration, dns net.IP) fields {
	return fields{
		"authentication": fields{
			"anonymous": fields{"enabled": false},
			"webhook":   fields{"enabled": true},
			"x509":      fields{"clientCAFile": path.Join(cc.CertificatesDir, "ca.crt")},
		},
		"authorization":      fields{"mode": "Webhook"},
		"cgroupDriver":       "systemd",
		"clusterDNS":         []string{dns.String()},
		"clusterDomain":      cc.DNSDomain,
		"healthzBindAddress": "127.0.0.1",
		"healthzPort":        10248, // where kubeadm waits for a kubelet
		"rotateCertificates": true,
		"staticPodPath":      "/etc/kubernetes/manifests",
	}
}

// proxyKubeconfig is the key of what kube-proxy connects with; its pods have the ConfigMap mounted.
const proxyKubeconfig = "kubeconfig.conf"

func proxyFields(cc *ClusterConfiguration, dns net.IP) fields {
	derived := fields{
		"bindAddress":      "0.0.0.0",
		"clientConnection": fields{"kubeconfig": "/var/lib/kube-proxy/" + proxyKubeconfig},
		"mode":             "iptables", // the default, which is to change; kube-proxy 1.37 warns where none is written
	}
	// kubeadm looks at the API server's own address; an API server wants that to be of the family of its services.
	if netutils.IsIPv6(dns) {
		derived["bindAddress"] = "::"
	}
	if cc.PodSubnet != "" {
		derived["clusterCIDR"] = cc.PodSubnet
	}
	return derived
}

// kubeconfig returns what kube-proxy connects with.
func kubeconfig(cc *ClusterConfiguration, endpoint string) (string, error) {
	server, err := controlPlane(cc, endpoint)
	if err != nil {
		return "", err
	}
	const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	return document("v1", "Config", fields{
		"clusters":        []fields{{"name": "default", "cluster": fields{"certificate-authority": account + "ca.crt", "server": server}}},
		"contexts":        []fields{{"name": "default", "context": fields{"cluster": "default", "namespace": "default", "user": "default"}}},
		"current-context": "default",
		"users":           []fields{{"name": "default", "user": fields{"tokenFile": account + "token"}}},
	})
}

// controlPlane returns the URL at which the control plane is reached: that of cc, whose port may be that of endpoint, or
// else endpoint.
func controlPlane(cc *ClusterConfiguration, endpoint string) (string, error) {
	if cc.ControlPlaneEndpoint == "" && endpoint == "" {
		return "", errors.New("the address of the control plane is not known: add controlPlaneEndpoint to the " +
			"ClusterConfiguration, or an InitConfiguration with localAPIEndpoint, to the file")
	}
	var host, port string
	for _, given := range []string{endpoint, cc.ControlPlaneEndpoint} {
		if given == "" {
			continue
		}
		h, p, err := hostPort(given)
		if err != nil {
			return "", fmt.Errorf("the control plane's endpoint %q: %w", given, err)
		}
		host, port = h, cmp.Or(p, port)
	}
	return "https://" + net.JoinHostPort(host, cmp.Or(port, "6443")), nil
}

// document returns a YAML document: apiVersion and kind, and then the fields by name.
func document(apiVersion, kind string, f fields) (string, error) {
	whole := component.Effective(maps.Clone(f))
	whole["apiVersion"], whole["kind"] = apiVersion, kind
	text, err := whole.YAML()
	return string(text), err
}
