// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// KubeadmConfig returns a configuration file for Kubeadm: the InitConfiguration
// of a control plane at this address, and the document of a
// ClusterConfiguration. The address need not belong to an interface of this
// machine; kubeadm replaces a loopback address. What kubeadm would otherwise
// find out about this machine, and ask of the Internet if the
// ClusterConfiguration names no kubernetesVersion, is set.
func KubeadmConfig(address, clusterConfiguration string) string {
	return fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint:
  advertiseAddress: %q
nodeRegistration:
  name: control-plane
  criSocket: unix:///run/containerd/containerd.sock
---
%s`, address, clusterConfiguration)
}

// Kubeadm runs commands of the real kubeadm in this cluster, one after the
// other, such as "init phase upload-config all", "init phase addon kube-proxy"
// and "init phase addon coredns", which only upload objects. config is the
// content of their --config file; "" means no file. The error has kubeadm's
// output.
func (c *Cluster) Kubeadm(ctx context.Context, config string, commands ...string) error {
	for _, command := range commands {
		kubeadm := exec.CommandContext(ctx, c.tool("kubeadm"), strings.Fields(command)...)
		kubeadm.Args = append(kubeadm.Args, "--kubeconfig="+c.AdminKubeconfig())
		if config != "" {
			kubeadm.Args = append(kubeadm.Args, "--config=/dev/stdin")
			kubeadm.Stdin = strings.NewReader(config)
		}

		if said, err := kubeadm.CombinedOutput(); err != nil {
			return fmt.Errorf("kubeadm %s: %w: %s", command, err, said)
		}
	}

	return nil
}
