// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// parityRows are ClusterConfigurations from which the real kubeadm and generate
// derive the same.
var parityRows = []struct {
	name    string
	address string
	port    string // "" is 6443
	cluster string // the document
	noProxy bool
}{
	{name: "the defaults", address: addressV4, cluster: v1beta4("")},
	{name: "all of its own", address: addressV4, cluster: v1beta4(`
networking: {serviceSubnet: 172.20.0.0/16, podSubnet: 10.244.0.0/16, dnsDomain: cluster.example.org}
certificatesDir: /srv/pki/
`)},
	{name: "IPv4 and IPv6", address: addressV4, cluster: v1beta4("networking: {serviceSubnet: '10.96.0.0/16,fd00:10::/112', podSubnet: '10.244.0.0/16,fd00:20::/56'}\n")},
	{name: "IPv6 and IPv4", address: addressV6, cluster: v1beta4("networking: {serviceSubnet: 'fd00:10::/112,10.96.0.0/16', podSubnet: 'fd00:20::/56,10.244.0.0/16'}\n")},
	{name: "IPv6 alone", address: addressV6, cluster: v1beta4("networking: {serviceSubnet: 'fd00:10::/112', podSubnet: 'fd00:20::/56'}\n")},
	{name: "another port", address: addressV6, port: "7443", cluster: v1beta4("networking: {serviceSubnet: 'fd00:10::/112'}\n")},
	{name: "an endpoint with a port", address: addressV4, cluster: v1beta4("controlPlaneEndpoint: api.example.org:443\n")},
	{name: "an endpoint without a port", address: addressV4, port: "7443", cluster: v1beta4("controlPlaneEndpoint: api.example.org\n")},
	{name: "an endpoint that is an IPv6 address", address: addressV6, cluster: v1beta4("controlPlaneEndpoint: 2001:db8::99\nnetworking: {serviceSubnet: 'fd00:10::/112'}\n")},
	{name: "no kube-proxy", address: addressV4, cluster: v1beta4("proxy: {disabled: true}\n"), noProxy: true},
}

func TestGeneratedConfigurationsEqualThoseOfTheRealKubeadm(t *testing.T) {
	for _, tt := range parityRows {
		t.Run(tt.name, func(t *testing.T) {
			config := localcluster.KubeadmConfig(tt.address, tt.cluster)
			port := "6443"
			if tt.port != "" {
				port = tt.port
				config = strings.Replace(config, "localAPIEndpoint:", "localAPIEndpoint:\n  bindPort: "+port, 1)
			}

			uploaded := upload(t, config)
			cc := assert.Value(parseClusterConfiguration([]byte(tt.cluster)))(t)
			stored := assert.Value(parseClusterConfiguration([]byte(uploaded[KubeadmConfigMap].Data[KubeadmConfigKey])))(t)
			// The phase alone does not look at it; a whole init or upgrade
			// leaves the phase out.
			assert.That(t, cc.Proxy.Disabled == tt.noProxy && stored.Proxy.Disabled == tt.noProxy,
				"proxy.disabled is read as %v, and %v of what kubeadm stores; want %v", cc.Proxy.Disabled, stored.Proxy.Disabled, tt.noProxy)
			for _, c := range Components() {
				theirs := uploaded[c.ConfigMap]
				ours := assert.Value(generate(c, cc, net.JoinHostPort(tt.address, port)))(t)
				again, err := generate(c, stored, net.JoinHostPort(tt.address, port))
				diff := cmp.Diff(ours, again)
				assert.That(t, err == nil && diff == "", "of what kubeadm stores, other is generated: %v\n%s", err, diff)
				want := contentOf(t, theirs)
				want[c.Key] = WithoutZeroes(c, tree(t, theirs.Data[c.Key]))
				assert.NoDiff(t, cmp.Diff(want, contentOf(t, ours)), c.ConfigMap, "without zeroes")
				origin, why := OriginOf(theirs)
				assert.That(t, origin == Generated && len(theirs.Annotations) == 1 && theirs.Annotations[KubeadmSignature] != "",
					"%s is %s: %s; its annotations are %v", c.ConfigMap, origin, why, theirs.Annotations)
				compareEffective(t, c, ours.Data[c.Key], theirs.Data[c.Key])
				assert.That(t, sameMeaning(c, theirs, ours), "%s: kubeadm's text would be replaced", c.ConfigMap)
				other := theirs.DeepCopy()
				other.Data[c.Key] += "enableServer: true\n"
				assert.That(t, !sameMeaning(c, theirs, other), "%s: another field is overlooked", c.ConfigMap)
			}
		})
	}
}

// contentOf returns what a ConfigMap has but for annotations, its texts as
// trees of fields.
func contentOf(t *testing.T, cm *corev1.ConfigMap) map[string]any {
	t.Helper()
	content := map[string]any{"namespace": cm.Namespace, "name": cm.Name, "labels": cm.Labels}
	for key, text := range cm.Data {
		content[key] = tree(t, text)
	}

	return content
}

// compareEffective fails unless the component's real binary understands the two
// as the same configuration.
func compareEffective(t *testing.T, c Component, ours, theirs string) {
	t.Helper()
	asked := judges(t)[c.Name]
	var understood []component.Effective
	for _, document := range []string{ours, theirs} {
		v := asked.Validate(t.Context(), []byte(document))
		assert.Must(t, v.Outcome == component.Accepted && v.Effective != nil, "%s says %s: %s %v of:\n%s", c.Name, v.Outcome, v.Message, v.Warnings, document)
		understood = append(understood, v.Effective)
	}

	assert.NoDiff(t, cmp.Diff(understood[0], understood[1]), c.Name, "understands kubeadm's as another configuration")
	assert.Equal(t, understood[0].String("kind"), c.Kind, c.Name, "understood a")
}
