// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAGeneratedKubeletConfigurationHasNoDefaults(t *testing.T) {
	cm := assert.Value(generate(Components()[0], clusterConfiguration(t, ""), ""))(t)
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubelet-config"},
		Data: map[string]string{"kubelet": `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous:
    enabled: false
  webhook:
    enabled: true
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
authorization:
  mode: Webhook
cgroupDriver: systemd
clusterDNS:
- 10.96.0.10
clusterDomain: cluster.local
healthzBindAddress: 127.0.0.1
healthzPort: 10248
rotateCertificates: true
staticPodPath: /etc/kubernetes/manifests
`},
	}
	Sign(want)
	assert.NoDiff(t, cmp.Diff(want, cm))
}

func TestGenerateFailsWithTheReason(t *testing.T) {
	kubelet, proxy := Components()[0], Components()[1]
	good, badSubnet, badEndpoint := clusterConfiguration(t, ""), clusterConfiguration(t, ""), clusterConfiguration(t, "")
	badSubnet.ServiceSubnet, badEndpoint.ControlPlaneEndpoint = "10.96.0.0", "https://api"
	const format = ": it must be an IP address or a DNS name, optionally followed by a colon and a port from 1 to 65535"
	for _, tt := range []struct {
		name      string
		component Component
		cc        *ClusterConfiguration
		endpoint  string
		want      string
	}{
		{"no control plane", proxy, good, "",
			"generate the configuration of kube-proxy: the address of the control plane is unknown: add controlPlaneEndpoint to the " +
				"ClusterConfiguration, or an InitConfiguration with localAPIEndpoint, to the file"},
		{"a bad endpoint", proxy, good, "192.0.2.10:http",
			`generate the configuration of kube-proxy: the control plane's endpoint "192.0.2.10:http"` + format},
		{"a bad controlPlaneEndpoint", proxy, badEndpoint, "",
			`generate the configuration of kube-proxy: the control plane's endpoint "https://api"` + format},
		{"no service subnet for kube-proxy", proxy, badSubnet, "192.0.2.10:6443",
			`generate the configuration of kube-proxy: networking.serviceSubnet "10.96.0.0": invalid CIDR address: 10.96.0.0`},
		{"no service subnet for the kubelet", kubelet, badSubnet, "",
			`generate the configuration of kubelet: networking.serviceSubnet "10.96.0.0": invalid CIDR address: 10.96.0.0`},
	} {
		cm, err := generate(tt.component, tt.cc, tt.endpoint)
		assert.That(t, cm == nil && err != nil && err.Error() == tt.want, "%s: %v\nwant %s\n%v", tt.name, err, tt.want, cm)
	}
}
