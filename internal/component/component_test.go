// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// component returns a component and checks that its scratch directory is empty
// when the test ends.
func component(t *testing.T, name, path string) Component {
	t.Helper()
	c := assert.Value(New(name, path, scratchDir(t), slogDiscard()))(t)
	assert.Equal(t, c.Name(), name, "its name")

	return c
}

// realComponent returns a component with the pinned binary, which `make tools`
// builds.
func realComponent(t *testing.T, name string) Component {
	t.Helper()
	return component(t, name, filepath.Join(filepath.Dir(realKubelet(t)), name))
}

// defaultsOf returns the effective configuration for an empty one.
func defaultsOf(t *testing.T, c Component) Effective {
	t.Helper()
	version := assert.Value(c.PreferredVersion(t.Context()))(t)
	v := c.Validate(t.Context(), emptyConfig(version, c.(*binary).kind))
	checkVerdict(t, v, Accepted, 1, "")

	return v.Effective
}

func mustNotWarn(t *testing.T, v Verdict) {
	t.Helper()
	assert.That(t, len(v.Warnings) == 0, "warnings are %q", v.Warnings)
}

func TestNewRejectsUnknownNamesAndUnusableBinariesAndReferences(t *testing.T) {
	assert.Equal(t, fmt.Sprint(Names()), "[kube-proxy kubelet]", "names are")
	dir := t.TempDir()
	const unknown = `there is no component "kube-dns"; there are kube-proxy, kubelet`
	const noReference = " is not an image reference such as " + proxyImage
	for _, tt := range []struct {
		create         func(name, at, scratchDir string, log *slog.Logger) (Component, error)
		name, at, want string
	}{
		{New, "kube-dns", "/bin/sh", unknown},
		{New, "kube-proxy", dir + "/none", "there is no kube-proxy at " + dir + "/none: file does not exist"},
		{NewImage, "kube-dns", proxyImage, unknown},
		{NewImage, "kube-proxy", "", `""` + noReference},
		{NewImage, "kube-proxy", "--privileged", `"--privileged"` + noReference},
		{NewImage, "kube-proxy", "a b", `"a b"` + noReference},
	} {
		assert.Error(t, assert.Err(tt.create(tt.name, tt.at, dir, slogDiscard())), tt.want, tt.name, "at", tt.at)
	}
}

func TestARelativeScratchDirectoryBecomesAbsolute(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	c := assert.Value(New("kube-proxy", fakeProxy(t, `case "$config" in *CANDIDATE*) end "$out";; esac; accept`), "scratch", slogDiscard()))(t)
	checkVerdict(t, c.Validate(context.Background(), []byte("CANDIDATE")), Rejected, 1, "effective")
	assert.NoError(t, assert.Err(os.Stat(filepath.Join(dir, "scratch"))))
}

func TestARelativeScratchDirectoryNeedsAWorkingDirectory(t *testing.T) {
	path := fakeProxy(t, "accept")
	dir := t.TempDir()
	t.Chdir(dir)
	assert.NoError(t, os.Remove(dir))
	t.Setenv("PWD", "") // otherwise Go uses it
	for _, err := range []error{assert.Err(New("kube-proxy", path, "scratch", slogDiscard())), assert.Err(NewImage("kube-proxy", proxyImage, "scratch", slogDiscard()))} {
		assert.That(t, err != nil && strings.HasPrefix(err.Error(), "scratch directory: getwd: "), "got %v", err)
	}
}

func TestInputThatBinariesIgnoreSilentlyIsRejectedWithoutARun(t *testing.T) {
	asked := filepath.Join(t.TempDir(), "asked")
	c := component(t, "kube-proxy", fakeProxy(t, "echo x >"+asked+"; accept"))
	for name, tt := range map[string]struct{ data, message string }{
		"nothing":                     {"", "empty"},
		"too much":                    {strings.Repeat("#", 1<<20+1), "larger than 1 MiB"},
		"many aliases":                {"mode: &a ipvs\nx: [*a" + strings.Repeat(",*a", 20) + "]\n", "its YAML aliases may expand to more than 1 MiB: replace the aliases with their values"},
		"two documents":               {"mode: ipvs\n---\nmode: iptables\n", "more than one YAML document: the kube-proxy would read only the first"},
		"a document and what is none": {"mode: ipvs\n---\n: : :\n", "more than one YAML document: the kube-proxy would read only the first"},
	} {
		checkVerdict(t, c.Validate(context.Background(), []byte(tt.data)), Rejected, 0, tt.message, name)
	}

	assert.Is(t, assert.Err(os.Stat(asked)), os.ErrNotExist, "the kube-proxy was asked")
	for name, data := range map[string]string{
		"the end of a document":          "mode: ipvs\n---\n",
		"a comment in a second document": "---\nmode: ipvs\n---\n# more\n",
		"what is no YAML":                "\t: :",
		"as much as there may be":        "mode: ipvs\n" + strings.Repeat("#", 1<<20-11),
	} {
		checkVerdict(t, c.Validate(context.Background(), []byte(data)), Accepted, 1, "", name)
	}
}

func TestYAMLStartsWithAPIVersionAndKind(t *testing.T) {
	e := assert.Value(decodeWritten([]byte("a: 1\nzones: [\"1\", 2.50]\nkind: KubeProxyConfiguration\napiVersion: v1\nnone: null\n")))(t)
	for want, e := range map[string]Effective{
		"apiVersion: v1\nkind: KubeProxyConfiguration\na: 1\nnone: null\nzones:\n- \"1\"\n- 2.5\n": e,
		"apiVersion: v1\nkind: K\n": {"apiVersion": "v1", "kind": "K"},
		"a: 1\n":                    {"a": 1},
	} {
		assert.Equal(t, string(assert.Value(e.YAML())(t)), want)
	}

	assert.ErrorHas(t, assert.Err(Effective{"a": func() {}}.YAML()), "unsupported type")
}

// A component must accept its own printed defaults, with the same meaning.
func TestRealComponentsAcceptTheirOwnDefaults(t *testing.T) {
	for name, want := range map[string]map[string]string{
		"kubelet": {
			"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "failCgroupV1": "true",
			"maxPods": "110", "logging.verbosity": "0", "tlsCertFile": "", "tlsPrivateKeyFile": "", "resolvConf": "/etc/resolv.conf",
			"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock", "evictionHard[memory.available]": "100Mi",
		},
		"kube-proxy": {
			"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "iptables",
			"clientConnection.kubeconfig": "", "conntrack.maxPerCore": "32768", "iptables.syncPeriod": "30s",
		},
	} {
		c := realComponent(t, name)
		assert.Returns(t, "v1.37.2", name, "version")(c.Version(context.Background()))
		assert.Returns(t, want["apiVersion"], name, "preferred version")(c.PreferredVersion(context.Background()))
		defaults := defaultsOf(t, c)
		mustBeFields(t, defaults, want)
		text := assert.Value(defaults.YAML())(t)
		v := c.Validate(context.Background(), text)
		checkVerdict(t, v, Accepted, 1, "", name)
		assert.NoDiff(t, cmp.Diff(defaults, v.Effective), name, "what was printed means something else")
	}
}

func TestBinariesOfAnotherComponentGiveNoVerdict(t *testing.T) {
	kubelet := realKubelet(t)
	for _, tt := range []struct{ name, path, words string }{
		{"kubelet", filepath.Join(filepath.Dir(kubelet), "kube-proxy"), "unknown flag: --cert-dir"},
		{"kube-proxy", kubelet, "failed to parse kubelet flag: unknown flag: --write-config-to"},
	} {
		v := component(t, tt.name, tt.path).Validate(context.Background(), []byte("kind: x"))
		checkVerdict(t, v, CouldNotTell, 0, "the dry run does not work with this "+tt.name+": "+tt.words)
	}
}

func TestAComponentThatHangsIsKilledWithItsChildren(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	const hang = `case "$config" in HANG) /bin/sleep 600 & echo $$ $! >`
	for name, path := range map[string]string{
		"kubelet":    fake(t, hang+pids+`; wait;; esac; accept`).Path,
		"kube-proxy": fakeProxy(t, hang+pids+`; wait;; esac; accept`),
	} {
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			defer cancel()
			for text := []byte(nil); len(text) == 0 && ctx.Err() == nil; <-time.After(10 * time.Millisecond) {
				text, _ = os.ReadFile(pids)
			}
		}()
		v := component(t, name, path).Validate(ctx, []byte("HANG"))
		cancel()
		checkVerdict(t, v, CouldNotTell, 0, "the dry run of the "+name+": context canceled")
		mustBeGone(t, pids)
		assert.NoError(t, os.Remove(pids))
	}
}
