package componentconfig

import corev1 "k8s.io/api/core/v1"

// generate returns the ConfigMap, signed, that holds the configuration of a component as it is derived from cc; what the
// component defaults is left to it. endpoint is the control plane's, host:port, for a cc that names none. The error says
// what is missing.
func generate(c Component, cc *ClusterConfiguration, endpoint string) (*corev1.ConfigMap, error) {
	panic("TODO")
}
