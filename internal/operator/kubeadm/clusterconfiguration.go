// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"
)

// ClusterConfiguration holds the fields of kubeadm's ClusterConfiguration
// (v1beta3 or v1beta4) from which component configurations are derived, with
// kubeadm's defaults for fields that are not set.
type ClusterConfiguration struct {
	APIVersion           string `json:"apiVersion"` // kubeadm.k8s.io/v1beta4
	Kind                 string `json:"kind"`
	KubernetesVersion    string `json:"kubernetesVersion"`    // "" if not set
	ControlPlaneEndpoint string `json:"controlPlaneEndpoint"` // host or host:port; "" if not set
	CertificatesDir      string `json:"certificatesDir"`
	Networking           `json:"networking"`
	Proxy                struct {
		Disabled bool `json:"disabled"`
	} `json:"proxy"`
	Document []byte   `json:"-"` // as read
	Unknown  []string `json:"-"` // paths of fields that are not in knownFields
}

// Networking has the addresses of a cluster.
type Networking struct {
	ServiceSubnet string `json:"serviceSubnet"` // one CIDR, or two separated by a comma
	PodSubnet     string `json:"podSubnet"`     // the same; "" if not set
	DNSDomain     string `json:"dnsDomain"`
}

// knownFields are the fields of both versions, by the path of their parent. A
// misspelled field would change what is derived.
var knownFields = map[string][]string{
	"": {
		"apiVersion", "kind", "etcd", "networking", "kubernetesVersion", "controlPlaneEndpoint", "apiServer", "controllerManager",
		"scheduler", "dns", "proxy", "certificatesDir", "imageRepository", "featureGates", "clusterName", "encryptionAlgorithm",
		"certificateValidityPeriod", "caCertificateValidityPeriod",
	},
	"networking": {"serviceSubnet", "podSubnet", "dnsDomain"},
	"proxy":      {"disabled"},
}

const (
	kubeadmV1beta3 = "kubeadm.k8s.io/v1beta3"
	kubeadmV1beta4 = "kubeadm.k8s.io/v1beta4"
)

// parseClusterConfiguration parses a document of the kind ClusterConfiguration.
// The error names the field that is wrong. Fields from which nothing is derived
// are not checked: kubeadm does that.
func parseClusterConfiguration(document []byte) (*ClusterConfiguration, error) {
	cc := &ClusterConfiguration{Document: document}
	all, err := decodeInto(document, cc)
	if err != nil {
		return nil, fmt.Errorf("ClusterConfiguration: %w", err)
	}

	if !slices.Contains([]string{kubeadmV1beta3, kubeadmV1beta4}, cc.APIVersion) || cc.Kind != kindClusterConfiguration {
		return nil, fmt.Errorf("%s %q is not a ClusterConfiguration of %s or %s; convert older versions with \"kubeadm config migrate\"",
			cc.Kind, cc.APIVersion, kubeadmV1beta3, kubeadmV1beta4)
	}

	cc.CertificatesDir = cmp.Or(cc.CertificatesDir, "/etc/kubernetes/pki")
	cc.ServiceSubnet, cc.DNSDomain = cmp.Or(cc.ServiceSubnet, "10.96.0.0/12"), cmp.Or(cc.DNSDomain, "cluster.local")
	cc.Proxy.Disabled = cc.Proxy.Disabled && cc.APIVersion == kubeadmV1beta4
	for _, path := range slices.Sorted(maps.Keys(knownFields)) {
		within := all
		if path != "" {
			within, _ = all[path].(map[string]any)
			path += "."
		}

		for _, name := range slices.Sorted(maps.Keys(within)) {
			if !slices.Contains(knownFields[strings.TrimSuffix(path, ".")], name) {
				cc.Unknown = append(cc.Unknown, path+name)
			}
		}
	}

	if err := cc.check(); err != nil {
		return nil, fmt.Errorf("ClusterConfiguration: %w", err)
	}

	return cc, nil
}

// version returns kubernetesVersion; "" for nil.
func (cc *ClusterConfiguration) version() string {
	if cc == nil {
		return ""
	}

	return cc.KubernetesVersion
}

// check returns an error that names the first field with an invalid value.
func (cc *ClusterConfiguration) check() error {
	if _, err := cc.dnsAddress(); err != nil {
		return err
	}

	if cc.PodSubnet != "" {
		if _, err := subnets(cc.PodSubnet); err != nil {
			return fmt.Errorf("networking.podSubnet %q: %w", cc.PodSubnet, err)
		}
	}

	if wrong := validation.IsDNS1123Subdomain(cc.DNSDomain); len(wrong) > 0 {
		return fmt.Errorf("networking.dnsDomain %q: %s", cc.DNSDomain, wrong[0])
	}
	if !filepath.IsAbs(cc.CertificatesDir) {
		return fmt.Errorf("certificatesDir %q is not an absolute path", cc.CertificatesDir)
	}

	if cc.ControlPlaneEndpoint != "" {
		if _, _, err := hostPort(cc.ControlPlaneEndpoint); err != nil {
			return fmt.Errorf("controlPlaneEndpoint %q: %w", cc.ControlPlaneEndpoint, err)
		}
	}

	return nil
}

// dnsAddress returns the address that kubeadm assigns to the cluster's DNS
// service: the tenth of the first service subnet.
func (cc *ClusterConfiguration) dnsAddress() (net.IP, error) {
	cidrs, err := subnets(cc.ServiceSubnet)
	if err != nil {
		return nil, fmt.Errorf("networking.serviceSubnet %q: %w", cc.ServiceSubnet, err)
	}

	address, err := netutils.GetIndexedIP(cidrs[0], 10)
	if err != nil {
		return nil, fmt.Errorf("networking.serviceSubnet %q is too small: the cluster's DNS needs its tenth address",
			cc.ServiceSubnet)
	}

	return address, nil
}

// subnets parses a list of CIDRs: one, or one of each address family.
func subnets(list string) ([]*net.IPNet, error) {
	var cidrs []*net.IPNet
	for text := range strings.SplitSeq(list, ",") {
		_, cidr, err := netutils.ParseCIDRSloppy(text)
		if err != nil {
			return nil, err
		}

		cidrs = append(cidrs, cidr)
	}

	if len(cidrs) > 2 || len(cidrs) == 2 && netutils.IsIPv6CIDR(cidrs[0]) == netutils.IsIPv6CIDR(cidrs[1]) {
		return nil, errors.New("it must be one CIDR, or an IPv4 and an IPv6 CIDR separated by a comma")
	}

	return cidrs, nil
}

// hostPort splits an IP address or a DNS name from its port; an IPv6 address
// with a port is in brackets. port is "" if the endpoint has none.
func hostPort(endpoint string) (host, port string, err error) {
	if host, port, err = net.SplitHostPort(endpoint); err != nil {
		host, port = endpoint, ""
	}

	hostOK := netutils.ParseIPSloppy(host) != nil || len(validation.IsDNS1123Subdomain(host)) == 0
	if _, err = netutils.ParsePort(port, false); !hostOK || port != "" && err != nil {
		return "", "", errors.New("it must be an IP address or a DNS name, optionally followed by a colon and a port from 1 to 65535")
	}

	return host, port, nil
}
