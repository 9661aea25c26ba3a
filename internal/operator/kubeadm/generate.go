// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

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

// fields are the fields of a document, by their JSON names.
type fields map[string]any

// generate returns the signed ConfigMap with a component's configuration,
// derived from cc, without the component's defaults (proposal: "Stop Component
// Config defaulting"). endpoint is host:port of the control plane, used if cc
// has none. The caller knows whether the component is installed.
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

// derive returns the configuration of a component that follows from cc, as a
// YAML document.
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
		"healthzPort":        10248, // kubeadm waits for the kubelet there
		"rotateCertificates": true,
		"staticPodPath":      "/etc/kubernetes/manifests",
	}
}

// proxyKubeconfig is the ConfigMap key of kube-proxy's kubeconfig. kube-proxy
// pods mount the ConfigMap.
const proxyKubeconfig = "kubeconfig.conf"

func proxyFields(cc *ClusterConfiguration, dns net.IP) fields {
	derived := fields{
		"bindAddress":      "0.0.0.0",
		"clientConnection": fields{"kubeconfig": "/var/lib/kube-proxy/" + proxyKubeconfig},
		"mode":             "iptables", // explicit, because the default will change and kube-proxy 1.37 warns without it
	}
	// kubeadm uses the family of the API server's own address, which must be
	// that of the service subnet.
	if netutils.IsIPv6(dns) {
		derived["bindAddress"] = "::"
	}
	if cc.PodSubnet != "" {
		derived["clusterCIDR"] = cc.PodSubnet
	}

	return derived
}

// kubeconfig returns kube-proxy's kubeconfig.
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

// controlPlane returns the URL of the control plane: of cc's
// controlPlaneEndpoint, with endpoint's port if it has none, or else of
// endpoint.
func controlPlane(cc *ClusterConfiguration, endpoint string) (string, error) {
	if cc.ControlPlaneEndpoint == "" && endpoint == "" {
		return "", errors.New("the address of the control plane is unknown: add controlPlaneEndpoint to the " +
			"ClusterConfiguration, or an InitConfiguration with localAPIEndpoint, to the file")
	}

	var host, port string
	for _, value := range []string{endpoint, cc.ControlPlaneEndpoint} {
		if value == "" {
			continue
		}

		h, p, err := hostPort(value)
		if err != nil {
			return "", fmt.Errorf("the control plane's endpoint %q: %w", value, err)
		}

		host, port = h, cmp.Or(p, port)
	}

	return "https://" + net.JoinHostPort(host, cmp.Or(port, "6443")), nil
}

// document returns a YAML document with apiVersion, kind and the fields.
func document(apiVersion, kind string, f fields) (string, error) {
	whole := component.Effective(maps.Clone(f))
	whole["apiVersion"], whole["kind"] = apiVersion, kind
	text, err := whole.YAML()
	return string(text), err
}
