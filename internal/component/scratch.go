// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// servingCert creates, once, the certificate and key for the --cert-dir of dry
// runs. Otherwise the kubelet would create an RSA key, which takes twice as
// long as the rest of stage 1. It is never used to serve.
var servingCert = sync.OnceValues(func() (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}

	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}

	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "evenkeel-dry-run"}, key) // valid for 10 years
	if err != nil {
		return nil, err
	}

	certPEM, err := cert.EncodeCertificates(certificate)

	return map[string][]byte{"kubelet.crt": certPEM, "kubelet.key": keyPEM}, err
})

// makeScratch creates the temporary directory of one dry run, with
// subdirectories.
func makeScratch(parent string, subs ...string) (string, error) {
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", err
	}

	dir, err := os.MkdirTemp(parent, "dryrun-")
	if path, ok := errors.AsType[*fs.PathError](err); ok { // drop the random name, so that repeated errors are equal
		return "", fmt.Errorf("%s in %s: %w", path.Op, parent, path.Err)
	}
	if err != nil {
		return "", err
	}

	for _, sub := range subs {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			_ = os.RemoveAll(dir) // the first error matters
			return "", atomicfile.WithStableName(err, dir, parent)
		}
	}

	return dir, nil
}

// makeScratch creates the temporary directory of one dry run of a kubelet, with
// pki, root and tmp.
func (h *DryRunner) makeScratch() (string, error) {
	dir, err := makeScratch(h.scratch, "pki", "root", "tmp")
	if err != nil {
		return "", err
	}

	files, err := servingCert()
	if err == nil {
		err = writeFiles(filepath.Join(dir, "pki"), files)
	}

	if err != nil {
		_ = os.RemoveAll(dir) // the first error matters
		return "", atomicfile.WithStableName(err, dir, h.scratch)
	}

	return dir, nil
}

// removeScratch removes the directory of a finished dry run. A kubelet that
// continued has mounted its root directory on itself.
func removeScratch(dir string, log *slog.Logger) {
	unmount(filepath.Join(dir, "root"))
	if err := os.RemoveAll(dir); err != nil {
		log.Warn("could not remove the scratch directory of a dry run", "dir", dir, "err", err)
	}
}

// removeLeftovers removes directories of dry runs whose process was killed.
// Younger ones may belong to a dry run of another process.
func removeLeftovers(parent string, log *slog.Logger) {
	dirs, _ := filepath.Glob(filepath.Join(parent, "dryrun-*"))
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > time.Hour {
			removeScratch(dir, log)
		}
	}
}
