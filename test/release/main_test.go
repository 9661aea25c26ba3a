// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package release tests the files of a release: the same source gives the same
// bytes, packages can be installed and removed, and bills of materials are
// complete.
package release

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/must"
)

const (
	version = "v9.8.7-rc.1"
	commit  = "0123456789abcdef0123456789abcdef01234567"
	root    = "../.."
)

// made is a release of this source, for this machine's architecture alone. It
// is signed with the key.
var (
	made string
	key  *ecdsa.PrivateKey
)

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}

	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	defer must.Catch(&err)

	dir := must.Get(os.MkdirTemp("", "release-"))
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	keyFile := filepath.Join(dir, "cosign.key") // as openssl genpkey writes it
	key = must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	block := &pem.Block{Type: "PRIVATE KEY", Bytes: must.Get(x509.MarshalPKCS8PrivateKey(key))}
	must.OK(os.WriteFile(keyFile, pem.EncodeToMemory(block), 0o600))
	made, _ = must.Get2(release(filepath.Join(dir, "source"), "umask 022; export TZ=UTC COSIGN_KEY="+keyFile))

	return m.Run(), nil
}

// release copies what could be committed to a directory that is not there yet,
// with the time of the copy, makes the release there, in a shell that was
// prepared, and returns the directory that it is in, and what was said.
func release(dir, prepare string) (out, said string, err error) {
	defer must.Catch(&err)

	const copySource = `mkdir -p "$0"; find . -mindepth 1 -maxdepth 1 ! -name .git ! -name bin ! -name dist -exec cp -r -t "$0" {} +`
	copied := exec.Command("bash", "-ec", copySource, dir)
	copied.Dir = root
	all, err := copied.CombinedOutput()
	must.That(err == nil, "copy the source: %w: %s", err, all)
	cmd := exec.Command("bash", "-ec", prepare+`; exec make --no-print-directory -C "$0" release "$@"`, dir,
		"VERSION="+version, "COMMIT="+commit, "SOURCE_DATE_EPOCH=1700000000", "PLATFORMS=linux/"+runtime.GOARCH, "CLI_PLATFORMS=")
	all, err = cmd.CombinedOutput()
	must.That(err == nil, "make release: %w: %s", err, all)

	return filepath.Join(dir, "dist", version), string(all), nil
}

// files returns what is in a directory of a release, by name.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries := assert.Value(os.ReadDir(dir))(t)
	all := map[string]string{}
	for _, entry := range entries {
		data := assert.Value(os.ReadFile(filepath.Join(dir, entry.Name())))(t)
		all[entry.Name()] = string(data)
	}

	return all
}

// says runs a program that must succeed and returns its output.
func says(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	assert.Must(t, err == nil, "%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	return string(out)
}
