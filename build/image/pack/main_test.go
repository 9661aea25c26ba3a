// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAnArchiveIsNamedAfterImageAndArchitecture(t *testing.T) {
	t.Chdir(t.TempDir())
	assert.NoError(t, os.WriteFile("main.go", []byte("package main\n\nfunc main() {}\n"), 0o600))
	compile := func(architecture, file string) {
		cmd := exec.Command("go", "build", "-o", file, "main.go")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+architecture)
		said, err := cmd.CombinedOutput()
		assert.Must(t, err == nil, "%v: %s", err, said)
	}
	compile("arm64", "agent")

	var out bytes.Buffer
	assert.NoError(t, run([]string{"-dir", "new/dist", "-label", "a=b=c", "evenkeel.dev:5000/kubelet:v1", "agent"}, &out))
	file := filepath.Join("new/dist", "evenkeel-kubelet-v1-arm64.tar")
	assert.Equal(t, out.String(), "built "+file+" evenkeel.dev:5000/kubelet:v1\n")
	archive, err := os.ReadFile(file)
	assert.That(t, err == nil && bytes.Contains(archive, []byte(`"Labels":{"a":"b=c"}`)) &&
		bytes.Contains(archive, []byte(`"Entrypoint":["/agent"]`)), "the archive lacks label or entrypoint, %v", err)

	// The other architecture's is in another directory, under the same name.
	compile("amd64", "amd64/agent")
	compile("amd64", "amd64/kubelet")

	out.Reset()
	assert.NoError(t, run([]string{"-user", "1:1", "evenkeel.dev/agent:v1", "agent", "amd64/agent"}, &out))
	assert.Equal(t, out.String(), "built dist/evenkeel-agent-v1-amd64-arm64.tar evenkeel.dev/agent:v1\n")
	archive, err = os.ReadFile("dist/evenkeel-agent-v1-amd64-arm64.tar")
	assert.That(t, err == nil && bytes.Count(archive, []byte(`"User":"1:1"`)) == 2, "the archive has not two configs with the user, %v", err)
	for _, tt := range []struct {
		args string
		want string
	}{
		{"evenkeel.dev/kubelet:v1", "want a reference and at least one program"},
		{"evenkeel.dev/kubelet agent", "the reference evenkeel.dev/kubelet has no tag"},
		{"evenkeel.dev:5000/kubelet agent", "the reference evenkeel.dev:5000/kubelet has no tag"},
		{"evenkeel.dev/kubelet:v1@sha256:0 agent", "has no tag"},
		{"-label a evenkeel.dev/kubelet:v1 agent", `"a" is not NAME=VALUE`},
		{"evenkeel.dev/kubelet:v1 agent amd64/agent amd64/kubelet", "the programs differ: amd64 has /agent /kubelet, arm64 has /agent"},
		{"evenkeel.dev/kubelet:v1 none", "make evenkeel.dev/kubelet:v1: open none: no such file or directory"},
		{"-dir agent/below evenkeel.dev/kubelet:v1 agent", "make evenkeel.dev/kubelet:v1: mkdir agent: not a directory"},
		{"-dir occupied evenkeel.dev/kubelet:v1 agent", "make evenkeel.dev/kubelet:v1: open occupied/evenkeel-kubelet-v1-arm64.tar: is a directory"},
	} {
		assert.NoError(t, os.MkdirAll("occupied/evenkeel-kubelet-v1-arm64.tar", 0o755))
		assert.ErrorHas(t, run(strings.Fields(tt.args), &out), tt.want, tt.args)
	}
}
