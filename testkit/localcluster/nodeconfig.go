// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// writeKubeletConfig writes a configuration like kubeadm's, but with the node's
// own directories and ports, and with low eviction limits, so that a nearly
// full disk of a developer's machine does not evict the pods of a test.
func (n *Node) writeKubeletConfig(port int) (err error) {
	defer must.Catch(&err)

	path := func(name string) string { return filepath.Join(n.dir, name) }
	must.OK(os.WriteFile(path("resolv.conf"), []byte("nameserver 127.0.0.1\n"), 0o644))
	data := must.Get(yaml.Marshal(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true},
			"x509":      map[string]any{"clientCAFile": n.cluster.ca.file("ca.crt")},
		},
		"authorization":                    map[string]any{"mode": "Webhook"},
		"address":                          "0.0.0.0",
		"port":                             port,
		"readOnlyPort":                     0,
		"healthzBindAddress":               "127.0.0.1",
		"healthzPort":                      n.healthz,
		"containerRuntimeEndpoint":         n.RuntimeEndpoint(),
		"cgroupDriver":                     "cgroupfs",
		"cgroupRoot":                       "/" + n.cgroup,
		"cgroupsPerQOS":                    true,
		"enforceNodeAllocatable":           []string{"pods"},
		"failCgroupV1":                     false,
		"failSwapOn":                       false,
		"maxPods":                          110,
		"rotateCertificates":               false, // nothing signs certificates here
		"staticPodPath":                    path("manifests"),
		"podLogsDir":                       path("log/pods"),
		"volumePluginDir":                  path("volumeplugins"),
		"resolvConf":                       path("resolv.conf"),
		"clusterDomain":                    "cluster.local",
		"clusterDNS":                       []string{"10.96.0.10"},
		"makeIPTablesUtilChains":           false, // do not change the machine's tables
		"nodeStatusUpdateFrequency":        "1s",  // tests wait for the status
		"nodeStatusReportFrequency":        "5m",
		"imageGCHighThresholdPercent":      100, // the images cannot be pulled again
		"evictionHard":                     map[string]string{"memory.available": "50Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%", "imagefs.available": "1%"},
		"evictionPressureTransitionPeriod": "10s",
	}))

	return os.WriteFile(n.KubeletConfig(), data, 0o644)
}

// writeContainerdConfig writes the configuration of a containerd that shares
// nothing with other instances on the machine, except the directory of the
// shims' sockets, which is fixed.
func (n *Node) writeContainerdConfig() error {
	state := filepath.Join(n.dir, "containerd")
	config := fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]

[grpc]
address = %q

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = %q
stream_server_address = "127.0.0.1"
stream_server_port = "0"
netns_mounts_under_state_dir = true
# Where oom_score_adj may not be lowered, as in many sandboxes, no pod starts without it.
restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = %q
conf_dir = %q

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = %q
Root = %q
SystemdCgroup = false
`, filepath.Join(state, "root"), filepath.Join(state, "state"), n.socket(), PauseImage,
		n.programs.cni, filepath.Join(n.dir, "cni"), n.programs.runc, filepath.Join(state, "runc"))

	return os.WriteFile(filepath.Join(n.dir, "containerd.toml"), []byte(config), 0o644)
}
