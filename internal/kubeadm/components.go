package kubeadm

// Tier tells how a component is run, as the proposal distinguishes them.
type Tier string

const (
	// Core components read their configuration from files of the node.
	Core Tier = "core"
	// AddOn components are deployed in the cluster and read their configuration from a ConfigMap.
	AddOn Tier = "addon"
)

// Component is one whose configuration is in a ConfigMap of kube-system.
type Component struct {
	Name      string // as package component has it
	Tier      Tier
	ConfigMap string // its name
	Key       string // the ConfigMap's data key that holds the configuration
	Group     string // the configuration's API group
	Kind      string // and kind
}

// The names of what kubeadm keeps in kube-system.
const (
	KubeadmConfigMap = "kubeadm-config"
	KubeadmConfigKey = "ClusterConfiguration"
	CoreDNSConfigMap = "coredns"
	CorefileKey      = "Corefile"
)

// Components returns the components that are managed, in the order in which they are shown and stored.
func Components() []Component {
	return []Component{
		{Name: "kubelet", Tier: Core, ConfigMap: "kubelet-config", Key: "kubelet", Group: "kubelet.config.k8s.io", Kind: "KubeletConfiguration"},
		{Name: "kube-proxy", Tier: AddOn, ConfigMap: "kube-proxy", Key: "config.conf", Group: "kubeproxy.config.k8s.io", Kind: "KubeProxyConfiguration"},
	}
}
