// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// AdminKubeconfig returns the path of the kubeconfig of a member of
// system:masters.
func (c *Cluster) AdminKubeconfig() string { return filepath.Join(c.dir, "kubeconfig", "admin.conf") }

// NodeKubeconfig writes a kubeconfig with the identity of a node's kubelet, and
// returns its path.
func (c *Cluster) NodeKubeconfig(name string) (string, error) {
	path := filepath.Join(c.dir, "kubeconfig", "node-"+name+".conf")
	return path, c.writeKubeconfig(path, "system:node:"+name, "system:nodes")
}

// ClientKubeconfig writes a kubeconfig for a user in these groups, and returns
// its path. The path differs for each user and list of groups.
func (c *Cluster) ClientKubeconfig(user string, groups ...string) (string, error) {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{user}, groups...), "\x00")))
	path := filepath.Join(c.dir, "kubeconfig", fmt.Sprintf("client-%x.conf", sum[:6]))
	return path, c.writeKubeconfig(path, user, groups...)
}

func (c *Cluster) writeKubeconfig(path, user string, groups ...string) error {
	p, err := c.ca.client(user, groups...)
	if err != nil {
		return err
	}

	const name = "localcluster"
	config := clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: c.URL(), CertificateAuthorityData: c.ca.pem}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: p.cert, ClientKeyData: p.key}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: user}},
		CurrentContext: name,
	}
	if err := clientcmd.WriteToFile(config, path); err != nil {
		return fmt.Errorf("write the kubeconfig of %s: %w", user, err)
	}

	return nil
}

// makeAdmin writes the administrator's kubeconfig and reads it back as a client
// configuration.
func (c *Cluster) makeAdmin() (*rest.Config, error) {
	if err := c.writeKubeconfig(c.AdminKubeconfig(), "evenkeel-admin", "system:masters"); err != nil {
		return nil, err
	}

	config, err := clientcmd.BuildConfigFromFlags("", c.AdminKubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read the administrator's kubeconfig: %w", err)
	}

	config.QPS, config.Burst = 200, 400

	return config, nil
}
