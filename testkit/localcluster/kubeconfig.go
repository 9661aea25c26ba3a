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

	"github.com/evenkeel/evenkeel/testkit/must"
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

	return clientcmd.WriteToFile(config, path)
}

// makeAdmin writes the administrator's kubeconfig and reads it back as a client
// configuration.
func (c *Cluster) makeAdmin() (config *rest.Config, err error) {
	defer must.Catch(&err)

	must.OK(c.writeKubeconfig(c.AdminKubeconfig(), "evenkeel-admin", "system:masters"))
	config = must.Get(clientcmd.BuildConfigFromFlags("", c.AdminKubeconfig()))
	config.QPS, config.Burst = 200, 400

	return config, nil
}
