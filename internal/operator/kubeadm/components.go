// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

// Tier says how a component runs, in the terms of the proposal.
type Tier string

const (
	// Core components read their configuration from files of the node.
	Core Tier = "core"
	// AddOn components are deployed in the cluster and read their configuration from a ConfigMap.
	AddOn Tier = "addon"
)

// Component is a component whose configuration is in a ConfigMap of kube-system.
type Component struct {
	Name      string // as in package component
	Tier      Tier
	ConfigMap string // its name
	Key       string // the ConfigMap's data key that holds the configuration
	Group     string // the configuration's API group
	Kind      string // and kind
}

// Names of the other ConfigMaps of kube-system, and of their keys.
const (
	KubeadmConfigMap = "kubeadm-config"
	KubeadmConfigKey = "ClusterConfiguration"
	CoreDNSConfigMap = "coredns"
	CorefileKey      = "Corefile"
)

// Components returns the managed components, in the order in which they are shown and stored.
func Components() []Component {
	return []Component{
		{Name: "kubelet", Tier: Core, ConfigMap: "kubelet-config", Key: "kubelet", Group: "kubelet.config.k8s.io", Kind: "KubeletConfiguration"},
		{Name: "kube-proxy", Tier: AddOn, ConfigMap: "kube-proxy", Key: "config.conf", Group: "kubeproxy.config.k8s.io",
			Kind: "KubeProxyConfiguration"},
	}
}
