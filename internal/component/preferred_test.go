// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// knows makes a fake kubelet accept only these versions of the configuration.
func knows(versions string) string {
	return `version=$(echo "$config" | sed -n 's/.*kubelet.config.k8s.io\/\(v[0-9a-z]*\).*/\1/p')
case " ` + versions + ` " in *" $version "*) ;; *) end "failed to load kubelet config file, path: $file, error: failed to load Kubelet config file $file, ` +
		`error failed to decode: no kind \\\"KubeletConfiguration\\\" is registered for version \\\"kubelet.config.k8s.io/$version\\\" in scheme \\\"x.go:1\\\"";; esac
`
}

func TestThePreferredVersionIsTheFirstThatTheKubeletAccepts(t *testing.T) {
	const cannot = "cannot determine the preferred version of the kubelet's configuration: the dry run does not work with this kubelet: "
	for _, tt := range []struct{ body, want string }{
		{knows("v1beta1"), "kubelet.config.k8s.io/v1beta1"},
		{knows("v1beta1 v1"), "kubelet.config.k8s.io/v1"},
		{knows("v1alpha1"), "kubelet.config.k8s.io/v1alpha1"},
		{`case "$config" in *v1beta1*) ;; *) end "no luck";; esac`, cannot + "no luck"},
		{knows("v7"), cannot + `failed to decode: no kind "KubeletConfiguration" is registered for version ` +
			`"kubelet.config.k8s.io/v1alpha1" in scheme "x.go:1"`},
	} {
		got, err := component(t, "kubelet", fake(t, tt.body+"\naccept").Path).PreferredVersion(t.Context())
		if err != nil {
			got = err.Error()
		}

		assert.Equal(t, got, tt.want)
	}
}

func TestAConfigurationInARemovedVersionIsRejected(t *testing.T) {
	c := component(t, "kubelet", fake(t, knows("v1")+dump+"accept").Path)
	checkVerdict(t, c.Validate(t.Context(), bareConfig("")), Rejected, 1,
		`failed to decode: no kind "KubeletConfiguration" is registered for version "kubelet.config.k8s.io/v1beta1" in scheme "x.go:1"`)
	defaults := defaultsOf(t, c)
	assert.That(t, defaults["apiVersion"] == "kubelet.config.k8s.io/v1" && defaults["kind"] == "KubeletConfiguration", "defaults are %v", defaults)

	c = component(t, "kube-proxy", fakeProxy(t, `accept() { printf 'apiVersion: kubeproxy.config.k8s.io/v1\nkind: KubeProxyConfiguration\n' >"$out"; exit; }
case "$config" in *v1alpha1*) end "failed complete: failed to decode: no kind";; esac
accept`))
	checkVerdict(t, c.Validate(t.Context(), proxyConfig("")), Rejected, 1, "failed to decode: no kind")
	assert.Returns(t, "kubeproxy.config.k8s.io/v1")(c.PreferredVersion(t.Context()))
	assert.Equal(t, defaultsOf(t, c).String("apiVersion"), "kubeproxy.config.k8s.io/v1")
}

func TestAnswersOfABinaryAreCachedUntilItIsReplaced(t *testing.T) {
	validate := func(c Component) string { return c.Validate(t.Context(), bareConfig("")).Message }
	preferred := func(c Component) string {
		if err := assert.Err(c.PreferredVersion(t.Context())); err != nil {
			return err.Error()
		}

		return ""
	}
	kubelet := func(body string) string { return fake(t, body+"\n"+knows("v1 v1beta1")+dump+"accept").Path }
	proxy := func(body string) string { return fakeProxy(t, body+"\naccept") }
	const none, cannot = "there is no NAME at PATH: file does not exist", "cannot determine the preferred version of the NAME's configuration: "
	for _, tt := range []struct {
		name, counted string // what is counted
		binary        func(body string) string
		ask           func(Component) string
		missing       string
	}{
		{"kubelet", `case "$config" in *no-runtime*) COUNT;; esac`, kubelet, validate, none},
		{"kube-proxy", `case "$config" in "") COUNT;; esac`, proxy, validate, none},
		{"kubelet", "COUNT", kubelet, preferred, cannot + none},
		{"kube-proxy", "COUNT", proxy, preferred, cannot + none},
	} {
		count := filepath.Join(t.TempDir(), "count")
		binary := func() string { return tt.binary(strings.Replace(tt.counted, "COUNT", "echo x >>"+count, 1)) }
		path := binary()
		c := component(t, tt.name, path)
		runs := func() int {
			assert.Equal(t, tt.ask(c), "", tt.name)
			text, _ := os.ReadFile(count)
			return strings.Count(string(text), "x")
		}
		once := runs()
		assert.That(t, once > 0, "%s: it did not run", tt.name)
		assert.Equal(t, runs(), once, tt.name, "the second time")
		assert.NoError(t, os.Rename(binary(), path))
		assert.Equal(t, runs(), 2*once, tt.name, "another binary")
		assert.NoError(t, os.Remove(path))
		assert.Equal(t, tt.ask(c), strings.NewReplacer("NAME", tt.name, "PATH", path).Replace(tt.missing), tt.name, "a missing one")
	}
}
