// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestACommandLineIsParsedLikeInTheKubelet(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want Kubelet
	}{
		{"nothing", nil, Kubelet{}},
		{"each field", []string{
			"--config", "/a", "--config-dir=/d", "--kubeconfig=/k", "--lock_file=/l", "--root-dir=/r", "--cert-dir=/c", "--hostname-override=n",
		}, Kubelet{Config: "/a", ConfigDir: "/d", Kubeconfig: "/k", LockFile: "/l", RootDir: "/r", CertDir: "/c", HostnameOverride: "n"}},
		{"a boolean with a value", []string{"--exit-on-lock-contention=false"}, Kubelet{}},
		{"a boolean that is on", []string{"--exit-on-lock-contention"}, Kubelet{ExitOnLockContention: true}},
		{"the last boolean wins", []string{"--exit-on-lock-contention=true", "--exit-on-lock-contention=F"}, Kubelet{}},
		{"a negative number", []string{"--pod-max-pids", "-1", "--cert-dir=/c"}, Kubelet{CertDir: "/c"}},
		{"an unknown flag with a value", []string{"--future", "x", "--config=/a"}, Kubelet{Config: "/a"}},
		{"an unknown flag without", []string{"--future", "--config=/a"}, Kubelet{Config: "/a"}},
		{"verbosity in every spelling", []string{"-v", "2", "-v=3", "-v4", "--v=5", "--v", "6", "--config=/a"}, Kubelet{Config: "/a"}},
	} {
		got := assert.Value(ParseKubelet(append([]string{"/usr/bin/kubelet"}, tt.args...)))(t, tt.name)
		want := tt.want
		want.Path, want.Args = "/usr/bin/kubelet", tt.args
		if want.RootDir == "" {
			want.RootDir = "/var/lib/kubelet"
		}
		if want.CertDir == "" {
			want.CertDir = "/var/lib/kubelet/pki"
		}

		assert.NoDiff(t, cmp.Diff(want, *got, cmpopts.IgnoreUnexported(Kubelet{}), cmpopts.EquateEmpty()), tt.name)
	}
}

func TestCommandLinesThatTheKubeletRejectsAreErrors(t *testing.T) {
	for _, tt := range []struct {
		argv []string
		want string
	}{
		{nil, "no kubelet given"},
		{[]string{""}, "no kubelet given"},
		{[]string{"kubelet", "run"}, `kubelet command line: the kubelet takes only flags, but "run" is not a flag`},
		{[]string{"kubelet", "--fail-swap-on", "false"}, `kubelet command line: the kubelet takes only flags, but "false" is not a flag`},
		{[]string{"kubelet", "-"}, `kubelet command line: the kubelet takes only flags, but "-" is not a flag`},
		{[]string{"kubelet", "--", "--config=/a"}, `kubelet command line: the kubelet takes only flags, but "--config=/a" follows --`},
		{[]string{"kubelet", "-config=/a"}, `kubelet command line: "-config=/a" is not a kubelet flag: flags other than -v take two dashes`},
		{[]string{"kubelet", "--=x"}, `kubelet command line: "--=x" is not a flag`},
		{[]string{"kubelet", "---config=x"}, `kubelet command line: "---config=x" is not a flag`},
		{[]string{"kubelet", "--config"}, `kubelet command line: the flag "--config" needs a value`},
		{[]string{"kubelet", "-v"}, `kubelet command line: the flag "-v" needs a value`},
		{[]string{"kubelet", "--version"}, `kubelet command line: "--version" does not run a kubelet`},
		{[]string{"kubelet", "-h"}, `kubelet command line: "-h" does not run a kubelet`},
	} {
		assert.Error(t, assert.Err(ParseKubelet(tt.argv)), tt.want)
	}
}

func TestArgvReplacesOnlyTheConfigurationFlags(t *testing.T) {
	own := []string{"--kubeconfig", "/k", "--config", "/a", "-v=2", "--lock_file=/l", "--config-dir=/d",
		"--feature-gates=A=true", "--exit-on-lock-contention", "--feature-gates=B=true", "--"}
	for _, tt := range []struct {
		name       string
		run        RunConfig
		lock, want string
	}{
		{"local, without a lock", RunConfig{}, "", "k --kubeconfig /k --config /a -v=2 --config-dir=/d --feature-gates=A=true --feature-gates=B=true"},
		{"local, with a lock", RunConfig{}, "/x", "k --lock-file=/x --kubeconfig /k --config /a -v=2 --config-dir=/d --feature-gates=A=true --feature-gates=B=true"},
		{"a whole configuration", RunConfig{Dir: "/r"}, "/x", "k --config=/r/kubelet --lock-file=/x --kubeconfig /k -v=2 --feature-gates=A=true --feature-gates=B=true"},
		{"a whole configuration and an init file", RunConfig{Dir: "/r", InitFile: "/i"}, "", "k --config=/r/kubelet --kubeconfig /k -v=2 --feature-gates=A=true --feature-gates=B=true"},
		{"a drop-in", RunConfig{Dir: "/r", Dropin: true}, "/x", "k --config=/a --config-dir=/r/kubelet.conf.d --lock-file=/x --kubeconfig /k -v=2 --feature-gates=A=true --feature-gates=B=true"},
		{"a drop-in over an init file", RunConfig{Dir: "/r", Dropin: true, InitFile: "/i"}, "", "k --config=/i --config-dir=/r/kubelet.conf.d --kubeconfig /k -v=2 --feature-gates=A=true --feature-gates=B=true"},
	} {
		k := assert.Value(ParseKubelet(append([]string{"k"}, own...)))(t, tt.name)
		assert.Equal(t, strings.Join(k.Argv(tt.run, tt.lock), " "), tt.want, tt.name)
		assert.NoDiff(t, cmp.Diff(own, k.Args), tt.name, "Args changed")
	}
}

func TestTheIdentityOfALinkIsThatOfItsTarget(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "kubelet"), filepath.Join(dir, "link")
	write(t, path, "#!/bin/sh\n", 0o755)
	assert.NoError(t, os.Symlink(path, link))
	id := assert.Value((&Kubelet{Path: link}).Identity())(t)
	assert.Equal(t, id.Path, path)
	assert.Returns(t, id)((&Kubelet{Path: path}).Identity())
}

func TestAnUnusableBinaryGivesAnErrorWithTheReason(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "plain"), "", 0o644)
	t.Setenv("PATH", dir)
	for path, want := range map[string]string{
		filepath.Join(dir, "none"):          "there is no kubelet at " + dir + "/none: file does not exist",
		filepath.Join(dir, "plain"):         "the kubelet at " + dir + "/plain is not executable (mode -rw-r--r--)",
		dir:                                 "the kubelet at " + dir + " is a directory",
		"/dev/null":                         "the kubelet at /dev/null is not a regular file",
		filepath.Join(dir, "plain", "more"): "kubelet " + dir + "/plain/more: not a directory",
		"nokubelet":                         `no kubelet named "nokubelet" in PATH`,
	} {
		assert.Error(t, assert.Err((&Kubelet{Path: path}).Identity()), want)
	}

	assert.Is(t, assert.Err((&Kubelet{Path: dir + "/none"}).Identity()), os.ErrNotExist, "a missing kubelet must be os.ErrNotExist")
}

func TestAVersionIsASafePathElementOrAnError(t *testing.T) {
	for script, want := range map[string]string{
		"echo Kubernetes v1.36.3":              `"v1.36.3" <nil>`,
		"echo Kubernetes v1.33.0-eks-1a2b+k3s": `"v1.33.0-eks-1a2b+k3s" <nil>`,
		"echo Kubernetes v1.36.3/../..":        `"" kubelet --version: exit code 0, "Kubernetes v1.36.3/../.." is not a version`,
		"echo hello":                           `"" kubelet --version: exit code 0, "hello" is not a version`,
		"echo Kubernetes v1.36.3; exit 3":      `"" kubelet --version: exit code 3, "Kubernetes v1.36.3" is not a version`,
		"kill -9 $$":                           `"" kubelet --version: it died: signal: killed`,
	} {
		path := filepath.Join(t.TempDir(), "kubelet")
		write(t, path, "#!/bin/sh\n"+script+"\n", 0o755)
		version, err := (&Kubelet{Path: path}).Version(context.Background())
		assert.Equal(t, fmt.Sprintf("%q %v", version, err), want, script)
	}

	assert.Is(t, assert.Err((&Kubelet{Path: "/nowhere"}).Version(context.Background())), os.ErrNotExist, "version of a missing kubelet")
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	assert.NoError(t, os.WriteFile(path, []byte(text), mode))
}

// slowProgram needs so long to say its version.
type slowProgram struct {
	runner
	needs time.Duration
}

func (slowProgram) identify(context.Context) (Identity, error) { return Identity{}, nil }

func (s slowProgram) run(_ context.Context, _ Identity, p process, out *outputReader) exitStatus {
	if p.deadline < s.needs {
		return exitStatus{err: context.DeadlineExceeded}
	}

	out.last = "Kubernetes v1.37.2"

	return exitStatus{}
}

// On an emulated machine that boots, a kubelet needs more than ten seconds for
// this.
func TestASlowProgramHasTimeToSayItsVersion(t *testing.T) {
	assert.Returns(t, "v1.37.2")(queryVersion(t.Context(), "kubelet", slowProgram{needs: 25 * time.Second}))
	assert.Is(t, assert.Err(queryVersion(t.Context(), "kubelet", slowProgram{needs: time.Hour})), context.DeadlineExceeded)
}
