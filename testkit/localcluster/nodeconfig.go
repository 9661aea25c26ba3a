// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	_ "embed"
	"errors"
	"os"
	"path/filepath"
	"strconv"
)

// The configurations of a node's kubelet and containerd, with variables.
var (
	//go:embed kubelet.yaml
	kubeletConfig string
	//go:embed containerd.toml
	containerdConfig string
)

// writeConfigs writes the configurations of kubelet and containerd.
func (n *Node) writeConfigs(port int) error {
	variables := map[string]string{
		"NODE": n.dir, "CA": n.cluster.ca.file("ca.crt"), "CGROUP": n.cgroup, "PORT": strconv.Itoa(port), "HEALTHZ": strconv.Itoa(n.healthz),
		"PAUSE": PauseImage, "CNI": n.programs.cni, "RUNC": n.programs.runc,
	}
	write := func(name, text string) error {
		text = os.Expand(text, func(name string) string { return variables[name] })
		return os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o644)
	}

	return errors.Join(
		write("resolv.conf", "nameserver 127.0.0.1\n"),
		write("kubelet.yaml", kubeletConfig),
		write("containerd.toml", containerdConfig),
	)
}
