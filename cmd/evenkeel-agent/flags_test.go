// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/install"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// flaggedKubelet is a program that behaves like the dry run of a kubelet with --max-pods.
// It ignores the field maxPods of a drop-in if its flags have --deaf.
const flaggedKubelet = `#!/bin/sh
end() { echo "E1121 07:10:36.358684   21610 run.go:72] \"command failed\" err=\"$1\"" >&2; exit 1; }
for a in "$@"; do case "$a" in
--gone*) [ "${0##*/}" = newer ] && end "failed to parse kubelet flag: unknown flag: --gone";;
--version) echo "Kubernetes v1.37.2"; exit;;
--config=*) config=$(cat "${a#--config=}");;
--config-dir=*) dropins=$(cat "${a#--config-dir=}"/*.conf);;
--max-pods=*) flag=${a#*=};;
--deaf) deaf=1;;
--broken) end "broken";;
--picky) picky=1;;
esac; done
case "$config" in *evenkeelUnknownField*) end "strict decoding error: unknown field";; esac
max=$(printf '%s\n' "$dropins" | sed -n 's/^maxPods: //p' | tail -n 1)
[ "$deaf" ] && max=
case "$picky$dropins" in 1*Replaces*) end "picky";; esac
endpoint=$(echo "$config" | sed -n 's/.*"containerRuntimeEndpoint":"\([^"]*\)".*/\1/p')
printf 'I1121 07:10:36.358684   21610 server.go:72] "KubeletConfiguration" configuration=<\n' >&2
printf '\t{"Authentication":{},"Authorization":{},"ContainerRuntimeEndpoint":"%s","HealthzPort":10248,"MaxPods":%s}\n >\n' "$endpoint" "${flag:-${max:-110}}" >&2
end "failed to run Kubelet: cannot exit on lock file contention: no lock file specified"
`

func TestFlagsPrintsADropInAndTheRemainingCommandLine(t *testing.T) {
	dir := t.TempDir()
	kubelet, newer := filepath.Join(dir, "kubelet"), filepath.Join(dir, "newer")
	for _, path := range []string{kubelet, newer} {
		assert.NoError(t, os.WriteFile(path, []byte(flaggedKubelet), 0o755))
	}

	const unchanged = "# The kubelet's effective configuration stays the same, with this drop-in instead of the flags.\n"
	const dropin = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 250\n"
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"an equivalent drop-in", []string{"--", kubelet, "--max-pods=250", "--node-labels=a=it's\x1b,b"}, 0,
			"# These flags of the kubelet can be removed:\n#   --max-pods=250 (maxPods)\n# These flags stay:\n#   '--node-labels=a=it'\\''s\\x1b,b'\n" +
				"# The remaining command line:\n#   " + kubelet + " '--node-labels=a=it'\\''s\\x1b,b'\n" + unchanged + dropin},
		{"flags that a newer kubelet does not have", []string{"--newer-kubelet=" + newer, "--", kubelet, "--max-pods=250", "--gone"}, 0,
			"# These flags of the kubelet can be removed:\n#   --max-pods=250 (maxPods)\n# These flags stay:\n#   --gone (kubelet v1.37.2 does not have this flag)\n" +
				"# The remaining command line:\n#   " + kubelet + " --gone\n" + unchanged + dropin},
		{"nothing to convert", []string{"--", kubelet, "--manifest-url-header=a:b"}, 0,
			"# These flags stay:\n#   --manifest-url-header=a:b (staticPodURLHeader; it stays, because the kubelet does not print the values of this field)\n" +
				"# The remaining command line:\n#   " + kubelet + " --manifest-url-header=a:b\n# No flag can be removed.\n"},
		{"another meaning", []string{"--", kubelet, "--max-pods=250", "--deaf"}, 1,
			"# These flags of the kubelet can be removed:\n#   --max-pods=250 (maxPods)\n# These flags stay:\n#   --deaf\n# The remaining command line:\n#   " + kubelet +
				" --deaf\n# The kubelet's effective configuration would differ:\n#   maxPods: 110 instead of 250\n" + dropin +
				"evenkeel-agent: the drop-in is not equivalent to the flags: effective fields that would differ: 1\n"},
		{"a kubelet that fails", []string{"--", kubelet, "--broken"}, 2,
			"evenkeel-agent: could not tell: the present command line: broken\n"},
		{"no newer kubelet", []string{"--newer-kubelet=" + dir + "/none", "--", kubelet}, 2,
			"evenkeel-agent: could not tell: there is no kubelet at " + dir + "/none: file does not exist\n"},
		{"no kubelet", []string{"--", dir + "/none"}, 3, "evenkeel-agent: there is no kubelet at " + dir + "/none: file does not exist\n"},
	} {
		got, code := says(t, "", append([]string{"flags"}, c.args...)...)
		assert.That(t, code == c.code && got == c.want, "%s: exit code %d, want %d; got\n%swant\n%s", c.name, code, c.code, got, c.want)
	}
}

func TestAValueWithANewlineStaysInTheComment(t *testing.T) {
	var out strings.Builder
	comment(&out, "Flags:", []string{"--a=b\nmaxPods: 1"})
	want := "# Flags:\n#   --a=b\\nmaxPods: 1\n"
	assert.That(t, out.String() == want, "got %q, want %q", out.String(), want)
}

// fakeInstaller has the command line of a unit, and records the request.
type fakeInstaller struct {
	agent, kubelet []string
	refused        error
	install        func() error // nil: it succeeds
	request        *install.Request
}

func (f *fakeInstaller) CommandLine(context.Context, install.Request) (agent, kubelet []string, err error) {
	return f.agent, f.kubelet, f.refused
}

func (f *fakeInstaller) Install(_ context.Context, r install.Request) (string, error) {
	f.request = &r
	if f.install != nil {
		return "", f.install()
	}

	return "the agent runs", nil
}

// unitWith returns the installer of a unit that runs a fake kubelet with these
// flags, and the directory for drop-ins.
func unitWith(t *testing.T, flags ...string) (f *fakeInstaller, dir string) {
	t.Helper()
	work := t.TempDir()
	kubelet := filepath.Join(work, "kubelet")
	assert.NoError(t, os.WriteFile(kubelet, []byte(flaggedKubelet), 0o755))

	return &fakeInstaller{agent: []string{"--dynamic-config-dir=" + filepath.Join(work, "state")}, kubelet: append([]string{kubelet}, flags...)},
		filepath.Join(work, "etc", "kubelet.conf.d")
}

func (f *fakeInstaller) apply(t *testing.T, dir string) (string, error) {
	t.Helper()
	return applyFlags(t.Context(), f, install.Request{Keep: true, Unit: "kubelet.service"}, dir)
}

func TestFlagsAreReplacedByADropInAndAnAgentThatLeavesThemOut(t *testing.T) {
	f, dir := unitWith(t, "--max-pods=250", "--node-labels=a=b")
	words, err := f.apply(t, dir)
	assert.NoError(t, err)
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	assert.Must(t, len(files) == 1 && words == "the agent runs; "+files[0]+" replaces flags of the kubelet", "%q, files %q", words, files)
	data, err := os.ReadFile(files[0])
	want := "# Replaces the kubelet's flags: [\"--max-pods=250\"]\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 250\n"
	assert.That(t, err == nil && string(data) == want, "got %q, %v", data, err)
	if want := append(f.agent, "--flags-dropin="+files[0]); f.request.Keep || !slices.Equal(f.request.Flags, want) || f.request.Unit != "kubelet.service" {
		t.Errorf("the request is %+v", f.request)
	}

	o := assert.Value(parseAgentFlags(f.request.Flags))(t)
	k := assert.Value(component.ParseKubelet(f.kubelet))(t)
	if k, err = o.replaceFlags(k); err != nil || !slices.Equal(k.Args, []string{"--config-dir=" + dir, "--node-labels=a=b"}) {
		t.Errorf("the agent runs %q, %v", k.Args, err)
	}
	if _, err := f.apply(t, dir); err == nil || err.Error() != files[0]+" replaces flags of the kubelet already, or is left over: remove it to replace them again; nothing was changed" {
		t.Errorf("again: %v", err)
	}
}

func TestFlagsAreReplacedInTheKubeletsOwnDirectory(t *testing.T) {
	own := t.TempDir()
	f, dir := unitWith(t, "--max-pods=250", "--config-dir="+own+"/")
	assert.NoError(t, os.WriteFile(filepath.Join(own, "10-own.conf"), []byte("maxPods: 7\n"), 0o600))
	words, err := f.apply(t, dir)
	assert.That(t, err == nil && strings.HasPrefix(words, "the agent runs; "+own+"/99-evenkeel-flags-"), "%q, %v", words, err)
}

func TestADropInIsRemovedIfItsAgentIsNotInstalled(t *testing.T) {
	for name, fails := range map[string]error{"taken back": install.ErrTakenBack, "refused": errors.New("the node is not healthy")} {
		f, dir := unitWith(t, "--max-pods=250")
		f.install = func() error { return fails }
		assert.Is(t, assert.Err(f.apply(t, dir)), fails, name)
		_, err := os.Stat(dir)
		assert.That(t, os.IsNotExist(err) && f.request != nil, "%s: %s: %v, request %+v", name, dir, err, f.request)

		assert.NoError(t, os.MkdirAll(dir, 0o755))
		assert.Is(t, assert.Err(f.apply(t, dir)), fails, name)
		left, err := os.ReadDir(dir)
		assert.That(t, err == nil && len(left) == 0, "%s: left %v, %v", name, left, err)
	}

	f, dir := unitWith(t, "--max-pods=250")
	f.install = func() error { return errors.Join(install.ErrTakenBack, os.RemoveAll(dir)) }
	_, err := f.apply(t, dir)
	assert.That(t, errors.Is(err, install.ErrTakenBack) && errors.Is(err, os.ErrNotExist), "a drop-in that cannot be removed: %v", err)
}

func TestFlagsThatCannotBeReplacedStay(t *testing.T) {
	own := t.TempDir()
	assert.NoError(t, os.WriteFile(filepath.Join(own, "zz.conf"), []byte("maxPods: 7\n"), 0o600))
	for name, c := range map[string]struct {
		flags []string
		with  func(f *fakeInstaller, dir *string)
		want  string
	}{
		"a unit that cannot be wrapped":   {nil, func(f *fakeInstaller, _ *string) { f.refused = errors.New("no unit") }, "no unit"},
		"a flag that the agent lost":      {nil, func(f *fakeInstaller, _ *string) { f.agent = []string{"--lost"} }, "flags of the agent: unknown flag: --lost"},
		"a relative directory":            {[]string{"--max-pods=250", "--config-dir=conf.d"}, nil, `the kubelet's --config-dir must be an absolute path, not "conf.d"`},
		"a directory that is no pattern":  {[]string{"--max-pods=250"}, func(_ *fakeInstaller, dir *string) { *dir = "/[" }, "syntax error in pattern"},
		"a directory that cannot be made": {[]string{"--max-pods=250"}, func(f *fakeInstaller, dir *string) { *dir = f.kubelet[0] + "/d" }, "stat "},
		"a kubelet that fails":            {[]string{"--broken"}, nil, "cannot convert the kubelet's flags: the present command line: broken"},
		"another meaning": {[]string{"--max-pods=250", "--deaf"}, nil,
			"no drop-in is equivalent to the flags: maxPods would be 110 instead of 250; nothing was changed"},
		"a file that overrides the drop-in": {[]string{"--max-pods=250", "--config-dir=" + own}, nil, own + "/99-evenkeel-flags-"},
		"a kubelet that refuses the file": {[]string{"--max-pods=250", "--picky"}, nil,
			"cannot compare the kubelet's configuration with and without its flags: rejected: picky"},
	} {
		f, dir := unitWith(t, c.flags...)
		if c.with != nil {
			c.with(f, &dir)
		}

		words, err := f.apply(t, dir)
		assert.That(t, err != nil && strings.HasPrefix(err.Error(), c.want) && words == "" && f.request == nil,
			"%s: %q, %v, request %+v; want %s", name, words, err, f.request, c.want)

		left, _ := filepath.Glob(filepath.Join(dir, "*"))
		assert.That(t, left == nil, "%s: left %q", name, left)
	}

	left, _ := filepath.Glob(own + "/99-*")
	assert.That(t, left == nil, "left %q", left)

	f, dir := unitWith(t, "--node-labels=a=b")
	if words, err := f.apply(t, dir); err != nil || words != "no flag of the kubelet can be removed: nothing to do" || f.request != nil {
		t.Errorf("without such a flag: %q, %v, request %+v", words, err, f.request)
	}
}

func TestFlagsStayWhereADropInHasNoEffect(t *testing.T) {
	initDir, state, file := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "file")
	for path, content := range map[string]string{filepath.Join(initDir, "kubelet"): "x", file: ""} {
		assert.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}

	store := assert.Value(checkpoint.Open(atomicfile.OS{}, state, "v1.37.2", nil))(t)
	assigned := trial.Config{Revision: "u1", ConfigRevision: v1alpha1.ConfigRevision{Namespace: "n", Name: "c", UID: "u1", SHA256: strings.Repeat("a", 64)}, Checkpoint: strings.Repeat("b", 64)}
	assert.NoError(t, store.Save(trial.State{Current: trial.AdoptedConfig{Config: assigned, Since: time.Unix(1, 0).UTC()}}))
	for _, c := range []struct{ flag, want string }{
		{"--init-config-dir=" + initDir, initDir + "/kubelet of --init-config-dir replaces the kubelet's drop-ins: put the fields into that file"},
		{"--init-config-dir=" + file, "--init-config-dir " + file + " is not a directory that can be read"},
		{"--dynamic-config-dir=" + state, "this node has a configuration from the API, which its flags override too"},
		{"--dynamic-config-dir=" + file, "dynamic config directory: "},
	} {
		f, dir := unitWith(t, "--max-pods=250")
		f.agent = []string{c.flag}
		_, err := f.apply(t, dir)
		assert.That(t, err != nil && strings.HasPrefix(err.Error(), c.want) && f.request == nil, "%s: %v, want %s", c.flag, err, c.want)
	}
}

func TestADropInThatIsGoneIsNotTheSame(t *testing.T) {
	f, _ := unitWith(t)
	err := withHostKubelet(&options{given: func(string) bool { return false }}, f.kubelet, func(host *agent.HostKubelet) error {
		return (&options{}).checkSame(t.Context(), host, "/none.conf")
	})
	assert.Error(t, err, "/none.conf: open /none.conf: no such file or directory")
}

func TestFlagsStayIfTheAgentCannotUseTheDropIn(t *testing.T) {
	initDir := t.TempDir()
	missing, initFile := filepath.Join(initDir, "none.conf"), filepath.Join(initDir, "kubelet")
	assert.NoError(t, os.WriteFile(initFile, nil, 0o600))
	k := assert.Value(component.ParseKubelet([]string{"/usr/bin/kubelet", "--max-pods=250"}))(t)
	for _, c := range []struct {
		o    options
		want string
	}{
		{options{flagsDropin: missing}, "--flags-dropin " + missing + ": open " + missing + ": no such file or directory"},
		{options{flagsDropin: missing, initConfigDir: initDir}, "--flags-dropin " + missing + ": " + initFile + " of --init-config-dir replaces the kubelet's drop-ins"},
		{options{flagsDropin: missing, initConfigDir: missing}, "--flags-dropin " + missing + ": --init-config-dir " + missing + " is not a directory that can be read"},
	} {
		got, err := c.o.replaceFlags(k)
		assert.That(t, got == k && err != nil && err.Error() == c.want, "%v, %v, want %s", got, err, c.want)
	}

	assert.Returns(t, k, "without the flag")((&options{}).replaceFlags(k))
	wantUsage(t, assert.Err(parseAgentFlags([]string{"--flags-dropin=relative"})), `--flags-dropin must be an absolute path, not "relative"`)
}

func TestInstallSaysThatFlagsWouldNotBeReplaced(t *testing.T) {
	f, _ := unitWith(t, "--max-pods=250", "--hostname-override=n")
	flags := append(f.agent, "--flags-dropin=/none.conf")
	checked, err := checkAgent(t.Context(), flags, f.kubelet, false)
	want := "flags of the kubelet would not be replaced: --flags-dropin /none.conf: open /none.conf: no such file or directory"
	assert.That(t, err == nil && slices.Contains(checked.Warnings, want), "%q, %v", checked.Warnings, err)
	checked, err = checkAgent(t.Context(), flags, f.kubelet, true)
	assert.That(t, err == nil && len(checked.Warnings) == 0, "without the agent: %q, %v", checked.Warnings, err)
}
