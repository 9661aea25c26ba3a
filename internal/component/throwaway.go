package component

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// servingCert makes the certificate and key that a dry run finds in its throw-away --cert-dir, once. Without them the
// kubelet makes its own, RSA, which takes twice as long as all the rest of stage 1. Nothing is ever served with it.
var servingCert = sync.OnceValues(func() (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "evenkeel dry run"},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.AddDate(10, 0, 0), // the agent may run for long
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"kubelet.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		"kubelet.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	}, nil
})

// makeScratch makes the directory of one dry run: pki, root and tmp, all throw-away.
func (h *Harness) makeScratch() (string, error) {
	if err := os.MkdirAll(h.scratch, 0o700); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(h.scratch, "dryrun-")
	if err != nil {
		return "", err
	}
	if err := fillScratch(dir); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

func fillScratch(dir string) error {
	for _, sub := range []string{"pki", "root", "tmp"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			return err
		}
	}
	files, err := servingCert()
	if err != nil {
		return err
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, "pki", name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// removeLeftovers clears away what dry runs left whose process was killed with them. The age spares those of another
// process that uses the same directory now.
func (h *Harness) removeLeftovers() {
	dirs, _ := filepath.Glob(filepath.Join(h.scratch, "dryrun-*"))
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > time.Hour {
			if err := os.RemoveAll(dir); err != nil {
				h.log.Warn("could not remove an old scratch directory", "dir", dir, "error", err)
			}
		}
	}
}
