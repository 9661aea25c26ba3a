// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/payload"
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
				for _, difference := range differences(t, c, ours, theirs) {
					t.Error(difference)
				}

				compareEffective(t, c, ours.Data[c.Key], theirs.Data[c.Key])
				assert.That(t, sameMeaning(c, theirs, ours), "%s: kubeadm's text would be replaced", c.ConfigMap)
				other := theirs.DeepCopy()
				other.Data[c.Key] += "enableServer: true\n"
				assert.That(t, !sameMeaning(c, theirs, other), "%s: another field is overlooked", c.ConfigMap)
			}
		})
	}
}

// differences returns what kubeadm's ConfigMap has otherwise than ours, but for
// zeroes that are known.
func differences(t *testing.T, c Component, ours, theirs *corev1.ConfigMap) []string {
	t.Helper()
	var found []string
	differ := func(what string, ours, theirs any) {
		if diff := cmp.Diff(theirs, ours); diff != "" {
			found = append(found, fmt.Sprintf("%s of %s: not kubeadm's (-):\n%s", what, c.ConfigMap, diff))
		}
	}
	differ("the namespace", ours.Namespace, theirs.Namespace)
	differ("the name", ours.Name, theirs.Name)
	differ("the labels", ours.Labels, theirs.Labels)
	differ("the keys", slices.Sorted(maps.Keys(ours.Data)), slices.Sorted(maps.Keys(theirs.Data)))
	for key := range ours.Data {
		if key != c.Key {
			differ(key, fieldsOf(t, ours.Data[key]), fieldsOf(t, theirs.Data[key]))
		}
	}

	left := fieldsOf(t, theirs.Data[c.Key])
	for path, value := range fieldsOf(t, ours.Data[c.Key]) {
		differ(path, value, left[path])
		delete(left, path)
	}

	for path, value := range left {
		z := zeroAt(c.Name, path)
		if z == nil {
			found = append(found, fmt.Sprintf("%s of %s: kubeadm has %v, and we know no reason", path, c.ConfigMap, value))
		} else {
			differ(path+" ("+z.why+")", z.value, value)
		}
	}

	return found
}

// zero is a value that kubeadm uploads for fields that it did not set.
type zero struct {
	component string
	value     any
	why       string
	paths     string
}

// zeroes are all the differences that there are.
var zeroes = []zero{
	{"kubelet", "0s", "metav1.Duration is always written; the kubelet puts its default in the place of 0", `
		authentication.webhook.cacheTTL authorization.webhook.cacheAuthorizedTTL authorization.webhook.cacheUnauthorizedTTL
		cpuManagerReconcilePeriod evictionPressureTransitionPeriod fileCheckFrequency httpCheckFrequency imageMaximumGCAge
		imageMinimumGCAge nodeStatusReportFrequency nodeStatusUpdateFrequency runtimeRequestTimeout shutdownGracePeriod
		shutdownGracePeriodCriticalPods streamingConnectionIdleTimeout syncFrequency volumeStatsAggPeriod`},
	{"kubelet", "", "written although empty; the flag or the default counts", `containerRuntimeEndpoint`},
	{"kubelet", map[string]any{}, "a struct is never left out", `crashLoopBackOff memorySwap`},
	{"kubelet", 0.0, "written although 0, which is the default", `logging.flushFrequency logging.verbosity`},
	{"kubelet", "0", "a resource.Quantity of 0, which is the default", `logging.options.json.infoBufferSize logging.options.text.infoBufferSize`},

	{"kube-proxy", "0s", "metav1.Duration is always written; kube-proxy puts its default in the place of 0", `
		configSyncPeriod conntrack.udpStreamTimeout conntrack.udpTimeout iptables.minSyncPeriod iptables.syncPeriod
		ipvs.minSyncPeriod ipvs.syncPeriod ipvs.tcpFinTimeout ipvs.tcpTimeout ipvs.udpTimeout nftables.minSyncPeriod
		nftables.syncPeriod`},
	{"kube-proxy", nil, "a pointer or a list that is not set", `
		conntrack.maxPerCore conntrack.min conntrack.tcpCloseWaitTimeout conntrack.tcpEstablishedTimeout
		iptables.localhostNodePorts iptables.masqueradeBit ipvs.excludeCIDRs nftables.masqueradeBit nodePortAddresses oomScoreAdj`},
	{"kube-proxy", "", "written although empty; kube-proxy puts its default in the place of it", `
		clientConnection.acceptContentTypes clientConnection.contentType clusterCIDR detectLocal.bridgeInterface
		detectLocal.interfaceNamePrefix detectLocalMode healthzBindAddress hostnameOverride ipvs.scheduler metricsBindAddress
		portRange showHiddenMetricsForVersion winkernel.networkName winkernel.rootHnsEndpointName winkernel.sourceVip`},
	{"kube-proxy", false, "written although false, which is the default", `
		bindAddressHardFail conntrack.tcpBeLiberal enableProfiling iptables.masqueradeAll ipvs.strictARP nftables.masqueradeAll
		winkernel.enableDSR winkernel.forwardHealthCheckVip`},
	{"kube-proxy", 0.0, "written although 0; kube-proxy puts its default in the place of it", `
		clientConnection.burst clientConnection.qps logging.flushFrequency logging.verbosity`},
	{"kube-proxy", "0", "a resource.Quantity of 0, which is the default", `logging.options.json.infoBufferSize logging.options.text.infoBufferSize`},
}

func zeroAt(component, path string) *zero {
	for i, z := range zeroes {
		if z.component == component && slices.Contains(strings.Fields(z.paths), path) {
			return &zeroes[i]
		}
	}

	return nil
}

// fieldsOf returns the values of a document by their paths; lists, and mappings
// that are empty, are values.
func fieldsOf(t *testing.T, document string) map[string]any {
	t.Helper()
	var tree map[string]any
	assert.NoError(t, yaml.UnmarshalStrict([]byte(document), &tree), document)
	flat := map[string]any{}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		inner, ok := value.(map[string]any)
		if !ok || len(inner) == 0 {
			flat[path] = value
			return
		}

		for name, v := range inner {
			walk(payload.JoinPath(path, name), v)
		}
	}
	walk("", tree)

	return flat
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
