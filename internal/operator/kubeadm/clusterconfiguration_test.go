// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAClusterConfigurationIsParsedAndDefaulted(t *testing.T) {
	const v4, v3 = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n", "apiVersion: kubeadm.k8s.io/v1beta3\nkind: ClusterConfiguration\n"
	const all = `
kubernetesVersion: v1.37.2
controlPlaneEndpoint: api.example.org:443
certificatesDir: /srv/pki
networking: {serviceSubnet: "10.96.0.0/16,fd00:10::/112", podSubnet: "10.244.0.0/16,fd00:20::/56", dnsDomain: example.org}
proxy: {disabled: true}
`
	everything := ClusterConfiguration{
		APIVersion: "kubeadm.k8s.io/v1beta4", Kind: "ClusterConfiguration", KubernetesVersion: "v1.37.2",
		ControlPlaneEndpoint: "api.example.org:443", CertificatesDir: "/srv/pki",
		Networking: Networking{"10.96.0.0/16,fd00:10::/112", "10.244.0.0/16,fd00:20::/56", "example.org"},
	}
	everything.Proxy.Disabled = true
	inV1beta3 := everything
	inV1beta3.APIVersion, inV1beta3.Proxy.Disabled = "kubeadm.k8s.io/v1beta3", false
	nothing := ClusterConfiguration{
		APIVersion: "kubeadm.k8s.io/v1beta4", Kind: "ClusterConfiguration", CertificatesDir: "/etc/kubernetes/pki",
		Networking: Networking{"10.96.0.0/12", "", "cluster.local"},
	}
	odd := func(unknown ...string) ClusterConfiguration {
		cc := nothing
		cc.Unknown = unknown
		return cc
	}
	for _, tt := range []struct {
		name, document string
		want           ClusterConfiguration
	}{
		{"everything", v4 + all, everything},
		{"in v1beta3, which cannot disable kube-proxy", v3 + all, inV1beta3},
		{"nothing", v4, nothing},
		{"null is not set", v4 + "networking: null\ncertificatesDir: null\nproxy: {disabled: null}\n", nothing},
		{"what is not read is not judged", v4 + "etcd: 5\nnetworking: {mtu: [1]}\nfeatureGates: {Nonsense: perhaps}\n", odd("networking.mtu")},
		{"names in another case are others", v4 + "Networking: {serviceSubnet: 10.0.0.0/8}\nCertificatesDir: x\nnetworking: {DNSDomain: example.org}\n", odd("CertificatesDir", "Networking", "networking.DNSDomain")},
		{"JSON", `{"apiVersion":"kubeadm.k8s.io/v1beta4","kind":"ClusterConfiguration"}`, nothing},
	} {
		got := assert.Value(parseClusterConfiguration([]byte(tt.document)))(t, tt.name)
		tt.want.Document = []byte(tt.document)
		assert.NoDiff(t, cmp.Diff(&tt.want, got), tt.name)
	}
}

func TestInvalidFieldsOfAClusterConfigurationAreNamed(t *testing.T) {
	const (
		oneOrTwo = ": it must be one CIDR, or an IPv4 and an IPv6 CIDR separated by a comma"
		endpoint = ": it must be an IP address or a DNS name, optionally followed by a colon and a port from 1 to 65535"
	)
	for _, tt := range []struct{ name, more, want string }{
		{"no CIDR", "networking: {serviceSubnet: 10.96.0.0}", `networking.serviceSubnet "10.96.0.0": invalid CIDR address: 10.96.0.0`},
		{"a blank after the comma", "networking: {podSubnet: '10.244.0.0/16, fd00::/56'}", `networking.podSubnet "10.244.0.0/16, fd00::/56": invalid CIDR address:  fd00::/56`},
		{"three", "networking: {serviceSubnet: '10.0.0.0/16,fd00::/112,10.1.0.0/16'}", `networking.serviceSubnet "10.0.0.0/16,fd00::/112,10.1.0.0/16"` + oneOrTwo},
		{"two of IPv4", "networking: {podSubnet: '10.0.0.0/16,10.1.0.0/16'}", `networking.podSubnet "10.0.0.0/16,10.1.0.0/16"` + oneOrTwo},
		{"too small", "networking: {serviceSubnet: 10.96.0.0/29}", `networking.serviceSubnet "10.96.0.0/29" is too small: the cluster's DNS needs its tenth address`},
		{"no domain", "networking: {dnsDomain: Cluster_local}", `networking.dnsDomain "Cluster_local": a lowercase RFC 1123 subdomain must consist of`},
		{"a relative directory", "certificatesDir: pki", `certificatesDir "pki" is not an absolute path`},
		{"a URL", "controlPlaneEndpoint: https://api.example.org", `controlPlaneEndpoint "https://api.example.org"` + endpoint},
		{"brackets without a port", "controlPlaneEndpoint: '[2001:db8::99]'", `controlPlaneEndpoint "[2001:db8::99]"` + endpoint},
		{"a port that is a name", "controlPlaneEndpoint: api.example.org:https", `controlPlaneEndpoint "api.example.org:https"` + endpoint},
		{"a port out of range", "controlPlaneEndpoint: api.example.org:65536", `controlPlaneEndpoint "api.example.org:65536"` + endpoint},
		{"port 0", "controlPlaneEndpoint: api.example.org:0", `controlPlaneEndpoint "api.example.org:0"` + endpoint},
		{"a number", "networking: {dnsDomain: 5}", "networking.dnsDomain of type string"},
		{"a key that is there twice", "certificatesDir: /a\ncertificatesDir: /b", `key "certificatesDir" already set in map`},
		{"a second document", "---\nkind: x", "another document follows without a line --- between them"},
	} {
		cc, err := parseClusterConfiguration([]byte(v1beta4(tt.more)))
		assert.That(t, cc == nil && err != nil && strings.HasPrefix(err.Error(), "ClusterConfiguration: ") &&
			strings.Contains(err.Error(), tt.want),
			"%s: %v\nwant ClusterConfiguration: %s", tt.name, err, tt.want)
	}
}

func TestOtherKindsAndVersionsAreNotAClusterConfiguration(t *testing.T) {
	const older = `; convert older versions with "kubeadm config migrate"`
	for _, tt := range []struct{ name, document, want string }{
		{"an older one", "apiVersion: kubeadm.k8s.io/v1beta2\nkind: ClusterConfiguration\n",
			`ClusterConfiguration "kubeadm.k8s.io/v1beta2" is not a ClusterConfiguration of kubeadm.k8s.io/v1beta3 or kubeadm.k8s.io/v1beta4` + older},
		{"another kind", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\n",
			`InitConfiguration "kubeadm.k8s.io/v1beta4" is not a ClusterConfiguration of`},
		{"another group", "apiVersion: v1\nkind: ClusterConfiguration\n", `ClusterConfiguration "v1" is not a ClusterConfiguration of`},
		{"a text", "nonsense\n", "ClusterConfiguration: must be a mapping of fields, not \"nonsense\""},
		{"nothing", "# nothing\n", "ClusterConfiguration: empty"},
		{"no YAML", "a: [\n", "ClusterConfiguration: neither JSON nor YAML"},
	} {
		cc, err := parseClusterConfiguration([]byte(tt.document))
		assert.That(t, cc == nil && err != nil && strings.HasPrefix(err.Error(), tt.want), "%s: %v\nwant %s", tt.name, err, tt.want)
	}
}
