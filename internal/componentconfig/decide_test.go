package componentconfig

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/evenkeel/evenkeel/internal/localcluster"
)

func clusterConfiguration(t *testing.T, more string) *ClusterConfiguration {
	t.Helper()
	cc, err := parseClusterConfiguration([]byte(v1beta4(more)))
	if err != nil {
		t.Fatal(err)
	}
	return cc
}

// holding is a component's, which holds text.
func holding(c Component, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: c.ConfigMap},
		Data:       map[string]string{c.Key: text},
	}
}

// A story is what there is, what is given, and what becomes of a component.
func TestWhatBecomesOfAConfiguration(t *testing.T) {
	kubelet, proxy := Components()[0], Components()[1]
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	users := holding(kubelet, text+"maxPods: 50\n")
	modified := users.DeepCopy()
	modified.Annotations = map[string]string{ProposalSignature: Signature(holding(kubelet, text))}
	generated, err := generate(kubelet, clusterConfiguration(t, ""), "")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "192.0.2.10:6443"
	given := &Given{File: "new.yaml", Configs: map[string]Document{"kubelet": {Text: []byte(text + "maxPods: 60\n"), Place: "new.yaml"}}}
	cluster := &Given{File: "new.yaml", Cluster: clusterConfiguration(t, "networking: {dnsDomain: new.example}\n")}
	both := &Given{File: "new.yaml", Cluster: cluster.Cluster, Configs: given.Configs}
	disabled := clusterConfiguration(t, "proxy: {disabled: true}\n")

	for _, tt := range []struct {
		name    string
		c       Component
		has     *corev1.ConfigMap
		image   string
		cc      *ClusterConfiguration // nil: the defaults
		given   *Given
		options Options
		action  Action
		why     string
		next    string // a line of what there will be; "" if nothing is written
		origin  Origin // of what there will be
	}{
		{name: "generated", c: kubelet, has: generated, action: Regenerate, why: "generated, and nobody has changed it"},
		{name: "generated, and the cluster has changed", c: kubelet, has: generated, cc: cluster.Cluster, action: Regenerate, why: "generated", next: "clusterDomain: new.example", origin: Generated},
		{name: "supplied", c: kubelet, has: users, action: Keep, why: "it has no signature"},
		{name: "modified", c: kubelet, has: modified, action: Keep, why: "it was edited since it was generated"},
		{name: "missing", c: kubelet, action: Generate, why: "there is no ConfigMap kube-system/kubelet-config", next: "clusterDomain: cluster.local", origin: Generated},
		{name: "given, over a generated one", c: kubelet, has: generated, given: given, action: Replace, why: "given in new.yaml", next: "maxPods: 60", origin: UserSupplied},
		{name: "given, over a modified one", c: kubelet, has: modified, given: given, action: Replace, why: "given in new.yaml", next: "maxPods: 60", origin: UserSupplied},
		{name: "given, where there is none", c: kubelet, given: given, action: Replace, why: "given in new.yaml", next: "maxPods: 60", origin: UserSupplied},
		{name: "given as it is", c: kubelet, has: holding(kubelet, text+"maxPods: 60\n"), given: given, action: Replace, why: "given in new.yaml"},
		{name: "given with a ClusterConfiguration", c: kubelet, has: users, given: both, action: Replace, why: "given in new.yaml", next: "maxPods: 60", origin: UserSupplied},
		{name: "a ClusterConfiguration alone, over a supplied one", c: kubelet, has: users, given: cluster, action: Regenerate,
			why: "new.yaml has a ClusterConfiguration and no KubeletConfiguration: what is user-supplied gives way", next: "clusterDomain: new.example", origin: Generated},
		{name: "a ClusterConfiguration alone, over a generated one", c: kubelet, has: generated, given: cluster, action: Regenerate, why: "generated", next: "clusterDomain: new.example", origin: Generated},

		{name: "kube-proxy, not installed", c: proxy, action: Skip, why: "there is neither a ConfigMap nor a DaemonSet"},
		{name: "kube-proxy, its ConfigMap missing", c: proxy, image: "kube-proxy:v1", action: Generate, why: "there is no ConfigMap kube-system/kube-proxy", next: "bindAddress: 0.0.0.0", origin: Generated},
		{name: "kube-proxy, of a cluster that is being made", c: proxy, options: Options{Init: true}, action: Generate, why: "there is no ConfigMap", next: "bindAddress: 0.0.0.0", origin: Generated},
		{name: "kube-proxy, with a ClusterConfiguration given", c: proxy, given: cluster, action: Generate, why: "there is no ConfigMap", next: "bindAddress: 0.0.0.0", origin: Generated},
		{name: "kube-proxy, disabled", c: proxy, cc: disabled, image: "kube-proxy:v1", options: Options{Init: true}, action: Skip, why: "the ClusterConfiguration has it disabled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			have := &Cluster{Configuration: tt.cc, ConfigMaps: map[string]*corev1.ConfigMap{}, ProxyImage: tt.image, Endpoint: endpoint}
			if tt.cc == nil {
				have.Configuration = clusterConfiguration(t, "")
			}
			if tt.has != nil {
				have.ConfigMaps[tt.c.ConfigMap] = tt.has
			}
			changes, _, err := Decide(have, tt.given, tt.options)
			if err != nil {
				t.Fatal(err)
			}
			change := changes[0]
			if tt.c.Name == "kube-proxy" {
				change = changes[1]
			}
			if change.Action != tt.action || !strings.Contains(change.Why, tt.why) {
				t.Errorf("%s: %s", change.Action, change.Why)
			}
			if tt.next == "" {
				if change.Write != nil {
					t.Errorf("it writes %v", change.Write.New)
				}
				return
			}
			if change.Write == nil || change.Write.Old != tt.has || !strings.Contains(change.Write.New.Data[tt.c.Key], tt.next+"\n") {
				t.Fatalf("it writes %+v", change.Write)
			}
			if origin, _ := OriginOf(change.Write.New); origin != tt.origin {
				t.Errorf("it writes what is %s", origin)
			}
			if tt.c.Name == "kube-proxy" && !strings.Contains(change.Write.New.Data[proxyKubeconfig], "server: https://"+endpoint) {
				t.Errorf("kube-proxies would connect as %s", change.Write.New.Data[proxyKubeconfig])
			}
		})
	}
}

func TestWhatElseIsInAConfigMapStaysWithWhatAUserGives(t *testing.T) {
	proxy := Components()[1]
	old := holding(proxy, "old")
	old.Data["mine"] = "stays"
	old.Data[proxyKubeconfig] = "stays"
	given := &Given{File: "new.yaml", Configs: map[string]Document{"kube-proxy": {Text: []byte("new")}}}
	have := &Cluster{Configuration: clusterConfiguration(t, ""), ConfigMaps: map[string]*corev1.ConfigMap{"kube-proxy": old}, Endpoint: "192.0.2.10:6443"}
	data := func() map[string]string {
		changes, _, err := Decide(have, given, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return changes[1].Write.New.Data
	}
	if got := data(); got[proxy.Key] != "new" || got["mine"] != "stays" || got[proxyKubeconfig] != "stays" {
		t.Errorf("%v", got)
	}
	given.Cluster = clusterConfiguration(t, "controlPlaneEndpoint: new.example\n")
	if got := data(); got[proxy.Key] != "new" || got["mine"] != "stays" || !strings.Contains(got[proxyKubeconfig], "https://new.example:6443") {
		t.Errorf("with a ClusterConfiguration: %v", got)
	}
	if old.Data[proxyKubeconfig] != "stays" {
		t.Error("what was read was changed")
	}
}

func TestTheVersionOfTheControlPlaneStaysItsOwn(t *testing.T) {
	stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: KubeadmConfigMap}, Data: map[string]string{KubeadmConfigKey: v1beta4("")}}
	given := clusterConfiguration(t, "clusterName: new\n")
	given.Document = []byte(strings.Replace(string(given.Document), "v1.36.3", "v1.40.0", 1))
	given.KubernetesVersion = "v1.40.0"
	have := &Cluster{Configuration: clusterConfiguration(t, ""), ConfigMaps: map[string]*corev1.ConfigMap{KubeadmConfigMap: stored}, Endpoint: "192.0.2.10:6443"}
	_, write, err := Decide(have, &Given{File: "new.yaml", Cluster: given}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if text := write.New.Data[KubeadmConfigKey]; !strings.Contains(text, "kubernetesVersion: v1.36.3\n") || !strings.Contains(text, "clusterName: new\n") {
		t.Errorf("%s", text)
	}
	_, _, err = Decide(&Cluster{}, &Given{File: "new.yaml", Cluster: &ClusterConfiguration{ServiceSubnet: "10.96.0.0/16"}, Endpoint: "192.0.2.10:6443"}, Options{})
	if err == nil || err.Error() != "the ClusterConfiguration in new.yaml has no kubernetesVersion, and there is no ConfigMap kube-system/kubeadm-config that has it: add it" {
		t.Errorf("%v", err)
	}
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	if _, _, err := Decide(&Cluster{}, nil, Options{}); err == nil || !strings.Contains(err.Error(), "this is no cluster of kubeadm's, or it was deleted: give a ClusterConfiguration with --config") {
		t.Errorf("%v", err)
	}
	if _, err := Defaults(&Cluster{}, nil, nil); err == nil || !strings.Contains(err.Error(), "this is no cluster of kubeadm's") {
		t.Errorf("%v", err)
	}
	have := &Cluster{Configuration: clusterConfiguration(t, "")}
	if _, _, err := Decide(have, nil, Options{Init: true}); err == nil || !strings.Contains(err.Error(), "the address of the control plane is not known") {
		t.Errorf("%v", err)
	}
	given := &Given{Configs: map[string]Document{"kube-proxy": {Text: []byte("x")}}}
	if _, _, err := Decide(have, given, Options{}); err == nil || !strings.Contains(err.Error(), "the address of the control plane is not known") {
		t.Errorf("%v", err)
	}
}

func TestGatherFindsWhereTheControlPlaneIs(t *testing.T) {
	upload(t, localcluster.KubeadmConfig(addressV4, v1beta4("controlPlaneEndpoint: api.example:443\n")))
	have, err := Gather(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	if have.Endpoint != "api.example:443" || have.ProxyImage != "registry.k8s.io/kube-proxy:v1.36.3" || have.Configuration.KubernetesVersion != "v1.36.3" {
		t.Errorf("%+v", have)
	}
	// What the API server says of itself counts where no kube-proxy is told. An API server on loopback says nothing of
	// itself; so this one is made up.
	port := int32(6443)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "kubernetes"},
		AddressType: discoveryv1.AddressTypeIPv6, Ports: []discoveryv1.EndpointPort{{Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{addressV6}}},
	}
	for _, objects := range [][]client.Object{{slice}, {slice, holding(Components()[1], "")}} {
		have, err := Gather(t.Context(), fake.NewClientBuilder().WithObjects(objects...).Build())
		if err != nil || have.Endpoint != "[2001:db8::10]:6443" || have.Configuration != nil {
			t.Errorf("%+v, %v", have, err)
		}
	}
	have, err = Gather(t.Context(), fake.NewClientBuilder().WithObjects(&appsv1.DaemonSet{}).Build())
	if err != nil || have.Endpoint != "" || have.ProxyImage != "" {
		t.Errorf("%+v, %v", have, err)
	}
}
