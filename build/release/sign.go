// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
)

// readKey reads the private key for the signatures.
func readKey(path string) (*ecdsa.PrivateKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the key for the signatures: %w", err)
	}

	unsuitable := func(why string) error {
		return fmt.Errorf("the key for the signatures, %s, %s: want an unencrypted ECDSA P-256 key in PEM, PRIVATE KEY or EC PRIVATE KEY", path, why)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, unsuitable("is not PEM")
	}

	var key any
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		return nil, unsuitable("starts with " + block.Type)
	}

	if err != nil {
		return nil, unsuitable("cannot be read (" + err.Error() + ")")
	}

	private, ok := key.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() {
		return nil, unsuitable("is of another kind")
	}

	return private, nil
}

// sign writes FILE.sig for every file of the release, in the format of cosign
// sign-blob, and the public key. The signatures are deterministic (RFC 6979).
func (r *release) sign() {
	if r.key == nil {
		fmt.Println("the release has no signatures: set COSIGN_KEY to sign it")
		return
	}

	r.each(func(name string, digest []byte) {
		signature := get(r.key.Sign(nil, digest, crypto.SHA256))
		r.write(name+".sig", []byte(base64.StdEncoding.EncodeToString(signature)), 0o644)
	})
	public := get(x509.MarshalPKIXPublicKey(r.key.Public()))
	r.write("cosign.pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o644)
}
