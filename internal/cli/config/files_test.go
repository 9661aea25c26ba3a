// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/operator/kubeadm"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestOutputCreatesAFileThatIsReadableAndNotExecutable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.yaml")
	assert.NoError(t, (&app{&command.Env{}}).output(path, []byte("a: b\n")))
	info := assert.Value(os.Stat(path))(t)
	mode := info.Mode().Perm()
	assert.That(t, mode&0o600 == 0o600 && mode&^0o644 == 0, "its mode is %s", mode)
	text, err := os.ReadFile(path)
	assert.That(t, err == nil && string(text) == "a: b\n", "it holds %q, %v", text, err)
}

func TestOutputOverwritesNothing(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "out.yaml"), filepath.Join(dir, "link")
	assert.NoError(t, os.WriteFile(file, []byte("old"), 0o600))
	assert.NoError(t, os.Symlink(filepath.Join(dir, "elsewhere"), link))
	for _, path := range []string{file, link, dir} {
		assert.Error(t, (&app{&command.Env{}}).output(path, []byte("new")),
			"--output: "+path+" already exists: remove it, or choose another name; nothing was written")
	}

	text, err := os.ReadFile(file)
	assert.That(t, err == nil && string(text) == "old", "it holds %q, %v", text, err)
	all, err := os.ReadDir(dir)
	assert.That(t, err == nil && len(all) == 2, "there are %v, %v", all, err)
}

func TestOutputWithoutAFileGoesToStandardOutput(t *testing.T) {
	for _, path := range []string{"", "-"} {
		var out bytes.Buffer
		a := &app{&command.Env{IOStreams: genericclioptions.IOStreams{Out: &out}}}
		err := a.output(path, []byte("a: b\n"))
		assert.That(t, err == nil && out.String() == "a: b\n", "%q: %q, %v", path, out.String(), err)
	}
}

func TestInputIsLimited(t *testing.T) {
	endless := strings.NewReader(strings.Repeat("#", 2*kubeadm.MaxFile))
	a := &app{Env: &command.Env{IOStreams: genericclioptions.IOStreams{In: endless}}}
	assert.Error(t, assert.Err(a.given(t.Context(), "-")),
		"standard input is larger than 4 MiB, which is the limit: it was not used; use a smaller file")
}
