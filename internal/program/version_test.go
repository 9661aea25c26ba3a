// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"encoding/json"
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func run(t *testing.T, i Info, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := i.Command()
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err := cmd.Execute()

	return out.String(), err
}

func TestVersionOutput(t *testing.T) {
	i := NewInfo("evenkeel-x", "v1.2.3", "0123abcd")
	built := runtime.Version() + " for " + runtime.GOOS + "/" + runtime.GOARCH
	want := "evenkeel-x v1.2.3\ncommit    0123abcd\nbuilt     with " + built + "\nkubelets  1.33 to 1.37\n"
	assert.Returns(t, want)(run(t, i))
	said, err := run(t, i, "-o", "json")
	var got Info
	assert.NoError(t, errors.Join(err, json.Unmarshal([]byte(said), &got)))
	assert.Equal(t, got, i, "as JSON it is")
	assert.That(t, strings.Contains(said, `"kubelets": {`) && strings.Contains(said, `"oldest": "1.33"`), "as JSON it is %s", said)
	for _, args := range [][]string{{"-o", "yaml"}, {"--output="}} {
		assert.ErrorHas(t, assert.Err(run(t, i, args...)), "must be json", args)
	}
}

func TestTheCommitDefaultsToTheOneOfTheGoCommand(t *testing.T) {
	note := func(settings ...debug.BuildSetting) *debug.BuildInfo { return &debug.BuildInfo{Settings: settings} }
	at, dirty, clean := debug.BuildSetting{Key: "vcs.revision", Value: "42"},
		debug.BuildSetting{Key: "vcs.modified", Value: "true"}, debug.BuildSetting{Key: "vcs.modified", Value: "false"}
	for _, tt := range []struct {
		name  string
		build *debug.BuildInfo
		want  string
	}{
		{"nothing noted", nil, ""},
		{"no repository", note(), ""},
		{"as committed", note(at, clean), "42"},
		{"changed since", note(dirty, at), "42-dirty"},
		{"changed, of no commit", note(dirty), ""},
	} {
		assert.Equal(t, revision(tt.build), tt.want, tt.name)
	}

	got := (Info{Program: "x", Version: "v1"}).String()
	assert.That(t, strings.HasPrefix(got, "x v1\ncommit    unknown\n"), "without a commit it says %q", got)
}
