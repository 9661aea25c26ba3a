// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestADropInReplacesExactlyTheFlagsThatItNames(t *testing.T) {
	c := FlagConversion{
		Flags: []ConvertedFlag{
			{Name: "max-pods", Args: []string{"--max-pods", "250"}, Removed: true}, {Name: "node-ip", Args: []string{"--node-ip=10.0.0.1"}},
			{Name: "feature-gates", Args: []string{"--feature-gates=A=true", "--feature-gates=B=true"}, Removed: true},
		},
		Dropin: []byte("maxPods: 250\n"),
	}
	data := assert.Value(c.FlagsDropin())(t)
	assert.Equal(t, string(data),
		`# Replaces the kubelet's flags: ["--max-pods","250","--feature-gates=A=true","--feature-gates=B=true"]`+"\nmaxPods: 250\n")
	dir := t.TempDir()
	file := filepath.Join(dir, "flags.conf")
	write(t, file, string(data), 0o600)
	for name, tt := range map[string]struct{ args, want []string }{
		"all":                    {[]string{"--max-pods", "250", "--node-ip=10.0.0.1", "--feature-gates=A=true", "--feature-gates=B=true"}, []string{"--config-dir=" + dir, "--node-ip=10.0.0.1"}},
		"its own directory":      {[]string{"--config-dir=" + dir + "/", "--max-pods", "250"}, []string{"--config-dir=" + dir + "/"}},
		"another value":          {[]string{"--max-pods", "300"}, []string{"--config-dir=" + dir, "--max-pods", "300"}},
		"one of two is gone":     {[]string{"--feature-gates=A=true"}, []string{"--config-dir=" + dir, "--feature-gates=A=true"}},
		"a flag that it has not": {[]string{"-v=2"}, []string{"--config-dir=" + dir, "-v=2"}},
	} {
		k := assert.Value(ParseKubelet(append([]string{"/usr/bin/kubelet"}, tt.args...)))(t, name)
		got := assert.Value(k.ReplaceFlags(file))(t, name)
		assert.NoDiff(t, cmp.Diff(tt.want, got.Args), name)
		assert.Equal(t, filepath.Clean(got.ConfigDir), dir, name)
	}
}

func TestADropInWithoutFieldsIsAConfiguration(t *testing.T) {
	data := assert.Value(FlagConversion{}.FlagsDropin())(t)
	assert.Equal(t, string(data), "# Replaces the kubelet's flags: null\n"+dropinText(""))
}

func TestAFileThatCannotReplaceFlagsIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flags.conf")
	for _, tt := range []struct{ content, configDir, want string }{
		{"maxPods: 1\n", "", "its first line does not name the flags that it replaces"},
		{replacesMark + "max-pods\n", "", "its first line: invalid character 'm' looking for beginning of value"},
		{replacesMark + `["max-pods"]` + "\n", "", `its first line: the kubelet takes only flags, but "max-pods" is not a flag`},
		{replacesMark + `["--max-pods=1"]` + "\n", "/other", "the kubelet reads its drop-ins from /other"},
	} {
		write(t, file, tt.content, 0o600)
		k := &Kubelet{Path: "/usr/bin/kubelet", ConfigDir: tt.configDir}
		assert.Error(t, assert.Err(k.ReplaceFlags(file)), tt.want)
	}

	assert.Error(t, assert.Err((&Kubelet{}).ReplaceFlags(file+"x")), "open "+file+"x: no such file or directory", "a missing file")
}
