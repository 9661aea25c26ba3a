// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

func clusterConfiguration(t *testing.T, more string) *ClusterConfiguration {
	t.Helper()
	return assert.Value(parseClusterConfiguration([]byte(v1beta4(more))))(t)
}

// holding is a component's, which holds text.
func holding(c Component, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: c.ConfigMap},
		Data:       map[string]string{c.Key: text},
	}
}

// clusterWith is a cluster with kubeadm's defaults and these ConfigMaps; nil
// ones are not there.
func clusterWith(t *testing.T, all ...*corev1.ConfigMap) *Cluster {
	t.Helper()
	existing := &Cluster{Configuration: clusterConfiguration(t, ""), ConfigMaps: map[string]*corev1.ConfigMap{}, Endpoint: "192.0.2.10:6443"}
	for _, cm := range all {
		if cm != nil {
			existing.ConfigMaps[cm.Name] = cm
		}
	}

	return existing
}

// A story is what there is, what is given, and what becomes of a component.
func TestDecideChoosesTheActionOfEachConfiguration(t *testing.T) {
	kubelet, proxy := Components()[0], Components()[1]
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	users := holding(kubelet, text+"maxPods: 50\n")
	modified := users.DeepCopy()
	modified.Annotations = map[string]string{ProposalSignature: Signature(holding(kubelet, text))}
	generated := assert.Value(generate(kubelet, clusterConfiguration(t, ""), ""))(t)
	wordy := generated.DeepCopy()
	wordy.Data[kubelet.Key] = "# by kubeadm\nsyncFrequency: 0s\n" + wordy.Data[kubelet.Key]
	Sign(wordy)
	tuned := generated.DeepCopy()
	tuned.Data[kubelet.Key] += "syncFrequency: 1m\n"
	Sign(tuned)
	input := &Input{File: "new.yaml", Configs: map[string]Document{"kubelet": {Text: []byte(text + "maxPods: 60\n"), Place: "new.yaml"}}}
	cluster := &Input{File: "new.yaml", Cluster: clusterConfiguration(t, "networking: {dnsDomain: new.example}\n")}
	both := &Input{File: "new.yaml", Cluster: cluster.Cluster, Configs: input.Configs}
	disabled := clusterConfiguration(t, "proxy: {disabled: true}\n")

	for _, tt := range []struct {
		name    string
		c       Component
		has     *corev1.ConfigMap
		image   string
		cc      *ClusterConfiguration // nil: the defaults
		given   *Input
		options Options
		action  Action
		why     string
		next    string // a line of what there will be; "" if nothing is written
		origin  Origin // of what there will be
		same    bool   // whether it says the same
	}{
		{name: "generated", c: kubelet, has: generated, action: Regenerate, why: "generated and not edited"},
		{name: "generated, with zero values, comments and another order", c: kubelet, has: wordy, action: Regenerate, why: "generated", next: "clusterDomain: cluster.local", origin: Generated, same: true},
		{name: "generated, with another field", c: kubelet, has: tuned, action: Regenerate, why: "generated", next: "clusterDomain: cluster.local", origin: Generated},
		{name: "generated, and the cluster has changed", c: kubelet, has: generated, cc: cluster.Cluster, action: Regenerate, why: "generated", next: "clusterDomain: new.example", origin: Generated},
		{name: "supplied", c: kubelet, has: users, action: Keep, why: "it has no signature"},
		{name: "modified", c: kubelet, has: modified, action: Keep, why: "the content was edited after it was generated"},
		{name: "missing", c: kubelet, action: Generate, why: "ConfigMap kube-system/kubelet-config does not exist", next: "clusterDomain: cluster.local", origin: Generated},
		{name: "given, over a generated one", c: kubelet, has: generated, given: input, action: Replace, why: "from new.yaml", next: "maxPods: 60", origin: UserSupplied},
		{name: "given, over a modified one", c: kubelet, has: modified, given: input, action: Replace, why: "from new.yaml", next: "maxPods: 60", origin: UserSupplied},
		{name: "given, where there is none", c: kubelet, given: input, action: Replace, why: "from new.yaml", next: "maxPods: 60", origin: UserSupplied},
		{name: "given as it is", c: kubelet, has: holding(kubelet, text+"maxPods: 60\n"), given: input, action: Replace, why: "from new.yaml"},
		{name: "given with a ClusterConfiguration", c: kubelet, has: users, given: both, action: Replace, why: "from new.yaml", next: "maxPods: 60", origin: UserSupplied},
		{name: "a ClusterConfiguration alone, over a supplied one", c: kubelet, has: users, given: cluster, action: Regenerate,
			why: "new.yaml has a ClusterConfiguration but no KubeletConfiguration: a generated one replaces the user-supplied one", next: "clusterDomain: new.example", origin: Generated},
		{name: "a ClusterConfiguration alone, over a generated one", c: kubelet, has: generated, given: cluster, action: Regenerate, why: "generated", next: "clusterDomain: new.example", origin: Generated},

		{name: "kube-proxy, not installed", c: proxy, action: Skip, why: "neither ConfigMap nor DaemonSet kube-system/kube-proxy exists"},
		{name: "kube-proxy, its ConfigMap missing", c: proxy, image: "kube-proxy:v1", action: Generate, why: "ConfigMap kube-system/kube-proxy does not exist", next: "bindAddress: 0.0.0.0", origin: Generated},
		{name: "kube-proxy, of a cluster that is being made", c: proxy, options: Options{Init: true}, action: Generate, why: "does not exist", next: "bindAddress: 0.0.0.0", origin: Generated},
		{name: "kube-proxy, with a ClusterConfiguration given", c: proxy, given: cluster, action: Generate, why: "does not exist", next: "bindAddress: 0.0.0.0", origin: Generated},
		{name: "kube-proxy, disabled", c: proxy, cc: disabled, image: "kube-proxy:v1", options: Options{Init: true}, action: Skip, why: "disabled in the ClusterConfiguration"},
	} {
		existing := clusterWith(t, tt.has)
		existing.Configuration, existing.ProxyImage = cmp.Or(tt.cc, existing.Configuration), tt.image
		changes, _, err := Decide(existing, tt.given, tt.options)
		assert.NoError(t, err)
		change := changes[slices.Index(Components(), tt.c)]
		same := tt.same || tt.has == generated && tt.given == nil && tt.cc == nil
		assert.That(t, change.Action == tt.action && change.same == same && strings.Contains(change.Why, tt.why),
			"%s: %s: %s", tt.name, change.Action, change.Why)
		if tt.next == "" {
			assert.That(t, change.Write == nil, "%s: it writes %+v", tt.name, change.Write)
			continue
		}

		assert.Must(t, change.Write != nil && change.Write.Old == tt.has && strings.Contains(change.Write.New.Data[tt.c.Key], tt.next+"\n"),
			"%s: it writes %+v", tt.name, change.Write)
		origin, _ := OriginOf(change.Write.New)
		assert.Equal(t, origin, tt.origin, tt.name, "it writes what is")
		if tt.c.Name == "kube-proxy" {
			assert.Equal(t, serverOf(change.Write.New.Data[proxyKubeconfig]), existing.Endpoint, tt.name, "kube-proxies would connect to")
		}
	}
}

// verdict is a component that says the same about every configuration.
type verdict struct {
	component.Component
	outcome component.Outcome
}

func (v verdict) Validate(context.Context, []byte) component.Verdict {
	return component.Verdict{Outcome: v.outcome}
}

func (verdict) PreferredVersion(context.Context) (string, error) { return "", nil }
func (verdict) Name() string                                     { return "kubelet" }

// kubeadm writes zero values of fields that a later version may not know.
func TestAGeneratedTextStaysUnlessTheTargetRejectsIt(t *testing.T) {
	for outcome, writes := range map[component.Outcome]bool{component.Accepted: false, component.CouldNotTell: false, component.Rejected: true} {
		c := Change{same: true, Current: []byte("old"), Next: []byte("new"), Write: &Write{}}
		c.settle(t.Context(), verdict{outcome: outcome}, "v1.37.2", nil)
		assert.That(t, (c.Write != nil) == writes && (string(c.Next) == "new") == writes, "%v: %+v", outcome, c)
	}

	c := Change{same: true, Write: &Write{}}
	c.settle(t.Context(), nil, "", nil)
	assert.That(t, c.Write == nil, "without a program it writes %+v", c.Write)
	c = Change{Write: &Write{}}
	c.settle(t.Context(), nil, "", nil)
	assert.That(t, c.Write != nil, "what says something else is not written")
}

func TestReplaceKeepsOtherKeysOfTheConfigMap(t *testing.T) {
	proxy := Components()[1]
	old := holding(proxy, "old")
	old.Data["mine"] = "stays"
	old.Data[proxyKubeconfig] = "stays"
	input := &Input{File: "new.yaml", Configs: map[string]Document{"kube-proxy": {Text: []byte("new: 1")}}}
	existing := clusterWith(t, old)
	data := func() map[string]string {
		changes, _, err := Decide(existing, input, Options{})
		assert.NoError(t, err)
		return changes[1].Write.New.Data
	}
	got := data()
	assert.That(t, got[proxy.Key] == "new: 1" && got["mine"] == "stays" && got[proxyKubeconfig] == "stays", "%v", got)
	input.Cluster = clusterConfiguration(t, "controlPlaneEndpoint: new.example\n")
	got = data()
	assert.That(t, got[proxy.Key] == "new: 1" && got["mine"] == "stays" && strings.Contains(got[proxyKubeconfig], "https://new.example:6443"), "with a ClusterConfiguration: %v", got)
	assert.That(t, old.Data[proxyKubeconfig] == "stays", "what was read was changed")
}

func TestAStoredClusterConfigurationKeepsTheControlPlanesVersion(t *testing.T) {
	stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: KubeadmConfigMap}, Data: map[string]string{KubeadmConfigKey: v1beta4("")}}
	input := clusterConfiguration(t, "clusterName: new\n")
	input.Document = []byte(strings.Replace(string(input.Document), "v1.37.2", "v1.40.0", 1))
	input.KubernetesVersion = "v1.40.0"
	_, write, err := Decide(clusterWith(t, stored), &Input{File: "new.yaml", Cluster: input}, Options{})
	assert.NoError(t, err)
	text := write.New.Data[KubeadmConfigKey]
	assert.That(t, strings.Contains(text, "kubernetesVersion: v1.37.2\n") && strings.Contains(text, "clusterName: new\n"), "%s", text)
	_, _, err = Decide(&Cluster{}, &Input{File: "new.yaml", Cluster: &ClusterConfiguration{Networking: Networking{ServiceSubnet: "10.96.0.0/16"}}, Endpoint: "192.0.2.10:6443"}, Options{})
	assert.That(t, err != nil && err.Error() == "the ClusterConfiguration in new.yaml has no kubernetesVersion, and neither has ConfigMap kube-system/kubeadm-config: add the field", "%v", err)
}

func TestDecideNamesMissingInput(t *testing.T) {
	_, _, err := Decide(&Cluster{}, nil, Options{})
	assert.ErrorHas(t, err, "kubeadm did not create this cluster, or the ConfigMap was deleted; pass a ClusterConfiguration with --config")
	assert.ErrorHas(t, assert.Err(Defaults(&Cluster{}, nil, nil)), "kubeadm did not create this cluster")
	existing := &Cluster{Configuration: clusterConfiguration(t, "")}
	_, _, err = Decide(existing, nil, Options{Init: true})
	assert.ErrorHas(t, err, "the address of the control plane is unknown")
	_, _, err = Decide(existing, &Input{Configs: map[string]Document{"kube-proxy": {Text: []byte("x: 1")}}}, Options{})
	assert.ErrorHas(t, err, "the address of the control plane is unknown")
}

func TestKubeProxyGetsTheControlPlanesAddress(t *testing.T) {
	proxy := Components()[1]
	const at = "controlPlaneEndpoint: old.example:8443\n"
	old := assert.Value(generate(proxy, clusterConfiguration(t, at), ""))(t)
	for _, tt := range []struct {
		name, given, advertised, init, want string
	}{
		{"nothing is given", "", "192.0.2.10:7443", "", "old.example:8443"},
		{"the same is given", at, "192.0.2.10:7443", "", "old.example:8443"},
		{"another is given", "controlPlaneEndpoint: new.example\n", "192.0.2.10:7443", "", "new.example:7443"},
		{"another is given, and nothing is known of the port", "controlPlaneEndpoint: new.example\n", "", "", "new.example:6443"},
		{"none any more is given", "clusterName: x\n", "192.0.2.10:7443", "", "192.0.2.10:7443"},
		{"none any more is given, with an InitConfiguration", "clusterName: x\n", "192.0.2.10:7443", "192.0.2.11:6443", "192.0.2.11:6443"},
		{"an InitConfiguration without a ClusterConfiguration", "", "", "192.0.2.11:6443", "old.example:8443"},
	} {
		existing := clusterWith(t, old)
		existing.Configuration, existing.ProxyServer, existing.Endpoint = clusterConfiguration(t, at), serverOf(old.Data[proxyKubeconfig]), tt.advertised
		input := &Input{Endpoint: tt.init}
		if tt.given != "" {
			input.Cluster = clusterConfiguration(t, tt.given)
		}

		changes, _, err := Decide(existing, input, Options{})
		assert.NoError(t, err)
		is := old
		if w := changes[1].Write; w != nil {
			is = w.New
		}

		assert.Equal(t, serverOf(is.Data[proxyKubeconfig]), tt.want, tt.name, "they follow")
	}
}

func TestUnreadableConfigurationsAreExplained(t *testing.T) {
	kubelet := Components()[0]
	for text, want := range map[string]string{
		"apiVersion: kubelet.config.k8s.io/v9\nkind: KubeletConfiguration\n":                                                             "",
		`{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "staticPodURLHeader": {"x": ["\ud83d\ude00"]}}`: "",
		"apiVersion: v1\nkind: ConfigMap\n": "it is ConfigMap of v1, not KubeletConfiguration of kubelet.config.k8s.io",
		"null":                              "it cannot be parsed: empty",
		"a: b: c":                           "it cannot be parsed: neither JSON nor YAML",
		"":                                  "it cannot be parsed: empty",
	} {
		got := whyUnreadable(kubelet, []byte(text))
		assert.That(t, (want != "" || got == "") && strings.HasPrefix(got, want), "%q: %q, want %q", text, got, want)
	}
}

func TestAnUnreadableClusterConfigurationIsReplacedFromTheFile(t *testing.T) {
	for _, data := range []map[string]string{{KubeadmConfigKey: "a: b: c"}, {"x": ""}, nil} {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: KubeadmConfigMap}, Data: data}
		existing, err := Gather(t.Context(), fake.NewClientBuilder().WithObjects(cm).Build())
		assert.Must(t, err == nil && existing.ConfigurationErr != nil, "%+v, %v", existing, err)
		_, _, err = Decide(existing, nil, Options{})
		says(t, err, "ConfigMap kube-system/kubeadm-config: ", "repair it, or pass a ClusterConfiguration with --config")
		_, write, err := Decide(existing, &Input{Cluster: clusterConfiguration(t, ""), Endpoint: "192.0.2.10:6443"}, Options{})
		assert.That(t, err == nil && write.Old != nil && write.New.Data[KubeadmConfigKey] == v1beta4(""), "%+v, %v", write, err)
	}
}

func TestFieldsOfKubeadmThatTheClusterHasAreLostWithAPartialDocument(t *testing.T) {
	kubelet := Components()[0]
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	generated, err := generate(kubelet, clusterConfiguration(t, ""), "")
	assert.NoError(t, err)
	const loss = "new.yaml lacks fields that ConfigMap kube-system/kubelet-config has and that kubeadm sets: "
	for _, tt := range []struct {
		name, given, want string
		has               *corev1.ConfigMap
	}{
		{"all", text, loss + "authentication.anonymous.enabled, authentication.webhook.enabled, authentication.x509.clientCAFile, " +
			"authorization.mode, cgroupDriver, clusterDNS, clusterDomain, healthzBindAddress, healthzPort, rotateCertificates, staticPodPath", generated},
		{"none", generated.Data["kubelet"], "", generated},
		{"what the cluster has", text, loss + "cgroupDriver", holding(kubelet, text+"cgroupDriver: cgroupfs\nmaxPods: 50\n")},
		{"null", text + "cgroupDriver: null\n", loss + "cgroupDriver", holding(kubelet, text+"cgroupDriver: cgroupfs\n")},
		{"another value", text + "cgroupDriver: systemd\n", "", holding(kubelet, text+"cgroupDriver: cgroupfs\n")},
		{"nothing is there", text, "", nil},
		{"what is there is unreadable", text, "", holding(kubelet, "\t")},
	} {
		document := Document{Text: []byte(tt.given), Place: "new.yaml"}
		changes, _, err := Decide(clusterWith(t, tt.has), &Input{Configs: map[string]Document{"kubelet": document}}, Options{})
		assert.NoError(t, err)
		assert.That(t, changes[0].Loss == tt.want, "%s: %q, want %q", tt.name, changes[0].Loss, tt.want)
	}
}

func TestContradictionsAboutKubeProxyAreWarnings(t *testing.T) {
	proxy := Components()[1]
	cluster := func(more string) *Input {
		return &Input{Cluster: clusterConfiguration(t, more), Endpoint: "192.0.2.10:6443"}
	}
	for _, tt := range []struct {
		name  string
		has   *corev1.ConfigMap
		image string
		given *Input
		want  string
	}{
		{"disabled, and there", holding(proxy, ""), "x", cluster("proxy: {disabled: true}\n"), "disabled in the ClusterConfiguration but configured"},
		{"no DaemonSet", nil, "", cluster(""), "DaemonSet kube-system/kube-proxy, which reads the configuration, does not exist"},
		{"nothing", holding(proxy, ""), "x", cluster(""), ""},
	} {
		existing := clusterWith(t, tt.has)
		existing.ProxyImage = tt.image
		changes, _, err := Decide(existing, tt.given, Options{})
		assert.NoError(t, err)
		got := strings.Join(changes[1].Warnings, "\n")
		assert.That(t, (tt.want != "" || got == "") && strings.Contains(got, tt.want), "%s: %q", tt.name, got)
	}
}

func TestGatherFindsTheControlPlanesAddress(t *testing.T) {
	upload(t, localcluster.KubeadmConfig(addressV4, v1beta4("controlPlaneEndpoint: api.example:443\n")))
	existing, err := Gather(t.Context(), admin)
	assert.NoError(t, err)
	assert.That(t, existing.ProxyServer == "api.example:443" && existing.Endpoint == "" && existing.ProxyImage == "registry.k8s.io/kube-proxy:v1.37.2" && existing.Configuration.KubernetesVersion == "v1.37.2",
		"%+v", existing)
	// What the API server says of itself counts where no kube-proxy is told. An
	// API server on loopback says nothing of itself; so this one is made up.
	port := int32(6443)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "kubernetes"},
		AddressType: discoveryv1.AddressTypeIPv6, Ports: []discoveryv1.EndpointPort{{Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{addressV6}}},
	}
	existing, err = Gather(t.Context(), fake.NewClientBuilder().WithObjects(slice, holding(Components()[1], "")).Build())
	assert.That(t, err == nil && existing.Endpoint == "[2001:db8::10]:6443" && existing.Configuration == nil && existing.ProxyServer == "", "%+v, %v", existing, err)
	sidecar := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-proxy"}}
	sidecar.Spec.Template.Spec.Containers = []corev1.Container{{Name: "log", Image: "log:1"}, {Name: "kube-proxy", Image: "proxy:1"}, {Name: "other", Image: "other:1"}}
	existing, err = Gather(t.Context(), fake.NewClientBuilder().WithObjects(sidecar).Build())
	assert.That(t, err == nil && existing.Endpoint == "" && existing.ProxyImage == "proxy:1", "%+v, %v", existing, err)
}

func TestServerOfFollowsTheCurrentContext(t *testing.T) {
	const two = `{clusters: [{name: a, cluster: {server: 'https://a:1'}}, {name: b, cluster: {server: 'https://b:2'}}], contexts: [{name: one, context: {cluster: b}}, {name: two, context: {cluster: c}}]`
	for kubeconfig, want := range map[string]string{
		two + ", current-context: one}": "b:2", two + ", current-context: two}": "", two + "}": "", "a: b: c": "",
		"{clusters: [{name: a, cluster: {server: 'https://a'}}], contexts: [{name: one, context: {cluster: a}}], current-context: one}": "",
	} {
		assert.Equal(t, serverOf(kubeconfig), want, kubeconfig)
	}
}
