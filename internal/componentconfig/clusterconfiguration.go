package componentconfig

// ClusterConfiguration is what component configurations are derived from, of kubeadm's kind of that name, v1beta3 or
// v1beta4, with kubeadm's defaults for what is not set.
type ClusterConfiguration struct {
	APIVersion           string // kubeadm.k8s.io/v1beta4
	KubernetesVersion    string // "" if it has none
	ControlPlaneEndpoint string // host or host:port; "" if it has none
	CertificatesDir      string
	ServiceSubnet        string // one CIDR, or two with a comma between
	PodSubnet            string // the same, or ""
	DNSDomain            string
	ProxyDisabled        bool
	Document             []byte // as it was read
}

// parseClusterConfiguration returns what a document of the kind ClusterConfiguration says. The error names the field that
// is wrong.
func parseClusterConfiguration(document []byte) (*ClusterConfiguration, error) {
	panic("TODO")
}
