// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// authority is the cluster's certificate authority, with its files in dir.
type authority struct {
	dir  string
	cert *x509.Certificate
	pem  []byte
	key  *ecdsa.PrivateKey
}

// pair is a certificate and its key in PEM.
type pair struct{ cert, key []byte }

// serviceIP is the first address of serviceRange, which the API server uses
// itself.
const (
	serviceRange = "10.96.0.0/24"
	serviceIP    = "10.96.0.1"
)

// newAuthority makes the authority and its files: ca, and for the API server
// apiserver, kubelet-client, and the key for service account tokens.
func newAuthority(dir string) (_ *authority, err error) {
	defer must.Catch(&err)

	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	ca := must.Get(cert.NewSelfSignedCACert(cert.Config{CommonName: "evenkeel-localcluster", NotBefore: validFrom()}, key))
	a := &authority{dir: dir, cert: ca, key: key, pem: must.Get(cert.EncodeCertificates(ca))}
	server := certificate(pkix.Name{CommonName: "kube-apiserver"})
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	server.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(serviceIP)}
	serverPair := must.Get(a.issue(server))
	kubeletClient := must.Get(a.client("kube-apiserver-kubelet-client", "system:masters"))
	for name, data := range map[string][]byte{
		"ca.crt":             a.pem,
		"ca.key":             must.Get(keyutil.MarshalPrivateKeyToPEM(key)),
		"apiserver.crt":      serverPair.cert,
		"apiserver.key":      serverPair.key,
		"kubelet-client.crt": kubeletClient.cert,
		"kubelet-client.key": kubeletClient.key,
		"sa.key":             must.Get(keyutil.MakeEllipticPrivateKeyPEM()),
	} {
		must.OK(os.WriteFile(a.file(name), data, 0o600))
	}

	return a, nil
}

// loadAuthority reads the authority that newAuthority made in another process.
func loadAuthority(dir string) (_ *authority, err error) {
	defer must.Catch(&err)

	a := &authority{dir: dir}
	a.cert = must.Get(cert.CertsFromFile(a.file("ca.crt")))[0]
	a.pem = must.Get(cert.EncodeCertificates(a.cert))
	a.key = must.Get(keyutil.PrivateKeyFromFile(a.file("ca.key"))).(*ecdsa.PrivateKey)

	return a, nil
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// client issues a client certificate for a user and its groups.
func (a *authority) client(user string, groups ...string) (pair, error) {
	template := certificate(pkix.Name{CommonName: user, Organization: groups})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

func (a *authority) issue(template *x509.Certificate) (_ pair, err error) {
	defer must.Catch(&err)

	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	der := must.Get(x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key))
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)

	return pair{cert: pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}), key: encoded}, err
}

// validFrom is two days ago, so that a test can set a clock back by a day.
func validFrom() time.Time { return time.Now().Add(-48 * time.Hour) }

// certificate returns the common fields of the certificates that the authority
// issues.
func certificate(subject pkix.Name) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetInt64(now.UnixNano()),
		Subject:      subject,
		NotBefore:    validFrom(),
		NotAfter:     now.AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

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
