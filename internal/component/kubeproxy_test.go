// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// fakeProxy returns a fake kube-proxy, a shell script with its configuration in
// $config; see fake. Its PATH has no programs.
func fakeProxy(t *testing.T, body string) string {
	t.Helper()
	const prelude = `#!/bin/sh
for a in "$@"; do case "$a" in
--config=*) config=$(/bin/cat "${a#--config=}");;
--write-config-to=*) out="${a#--write-config-to=}";;
esac; done
log() { echo "I1121 07:10:36.358684   21610 options.go:502] $1" >&2; }
end() { echo "E1121 07:10:36.358684   21610 run.go:72] \"command failed\" err=\"$1\"" >&2; exit 1; }
accept() { echo 'apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
oomScoreAdj: -999' >"$out"; exit 0; }
`
	path := filepath.Join(t.TempDir(), "kube-proxy")
	write(t, path, prelude+body+"\n", 0o755)

	return path
}

func TestVerdictsOfAFakeKubeProxy(t *testing.T) {
	for _, tt := range []verdictTest{
		{"words that name throw-away files", `case "$config" in CANDIDATE) end "cannot write $out";; esac; accept`, Rejected, 1, "cannot write effective"},
		{"words of a kube-proxy to come", `case "$config" in CANDIDATE) echo "something new"; exit 7;; esac; accept`, Rejected, 1, "something new"},
		{"no output at all", `case "$config" in CANDIDATE) exit 7;; esac; accept`, Rejected, 1, "the kube-proxy ended with exit code 7 and no message"},
		{"exit code 0, but nothing written", `case "$config" in CANDIDATE) exit 0;; esac; accept`, Rejected, 1, "the kube-proxy ended with exit code 0, but wrote no configuration"},
		{"written, but refused", `case "$config" in CANDIDATE) (accept); end "no good";; esac; accept`, Rejected, 1, "no good"},
		{"killed by somebody", `case "$config" in CANDIDATE) kill -9 $$;; esac; accept`, CouldNotTell, 0, "the dry run of the kube-proxy: it died: signal: killed"},
		{"no YAML written", `case "$config" in CANDIDATE) echo "a: b: c" >"$out"; exit 0;; esac; accept`, CouldNotTell, 0,
			"the configuration that the kube-proxy wrote cannot be read: neither JSON nor YAML: yaml: mapping values are not allowed in this context"},
		{"no apiVersion written", `case "$config" in CANDIDATE) echo "kind: KubeProxyConfiguration" >"$out"; exit 0;; esac; accept`, CouldNotTell, 0,
			"the configuration that the kube-proxy wrote cannot be read: it has no apiVersion"},
		{"something else written", `case "$config" in CANDIDATE) echo "kind: x" >"$out"; exit 0;; esac; accept`, CouldNotTell, 0,
			"the configuration that the kube-proxy wrote cannot be read: its kind is x"},
		{"an empty one is refused too", `case "$config" in "") accept;; CANDIDATE) end "no good";; esac; end "no luck"`, CouldNotTell, 1,
			"no good (but an empty configuration does not pass the dry run either: no luck)"},
		{"nothing is accepted", `end "no luck"`, CouldNotTell, 0, "the dry run does not work with this kube-proxy: no luck"},
	} {
		v := component(t, "kube-proxy", fakeProxy(t, tt.body)).Validate(context.Background(), []byte("CANDIDATE"))
		checkVerdict(t, v, tt.outcome, tt.stage, tt.message, tt.name)
		mustNotWarn(t, v)
		assert.That(t, (v.Effective != nil) == (tt.outcome == Accepted), "%s: effective is %v", tt.name, v.Effective)
	}
}

func TestAKubeProxyThatContinuesHasNoToolsAndNoAPI(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	t.Setenv("NOTIFY_SOCKET", "/run/x")
	c := component(t, "kube-proxy", fakeProxy(t, `[ "$KUBERNETES_SERVICE_HOST$KUBERNETES_SERVICE_PORT$NOTIFY_SOCKET" = "" ] || end "it could"
[ "$PATH" = "$TMPDIR" ] && [ "$TMPDIR" = "${out%/effective}/tmp" ] && [ -d "$TMPDIR" ] || end "PATH is $PATH"
accept`))
	checkVerdict(t, c.Validate(context.Background(), []byte("x")), Accepted, 1, "")
}

func TestOldScratchDirectoriesAreRemoved(t *testing.T) {
	for name, path := range map[string]string{"kube-proxy": fakeProxy(t, "accept"), "kubelet": fake(t, "accept").Path} {
		scratch := t.TempDir()
		left := filepath.Join(scratch, "dryrun-1")
		assert.NoError(t, os.MkdirAll(filepath.Join(left, "tmp"), 0o700))
		old := time.Now().Add(-2 * time.Hour)
		assert.NoError(t, os.Chtimes(left, old, old))
		c := assert.Value(New(name, path, scratch, slogDiscard()))(t)
		checkVerdict(t, c.Validate(context.Background(), []byte("x")), Accepted, 1, "")
		found, _ := os.ReadDir(scratch)
		assert.That(t, len(found) == 0, "%s: left is %v", name, found)
	}
}

func TestAComponentWithoutAScratchDirectoryGivesNoVerdict(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "", 0o600)
	for name, path := range map[string]string{"kube-proxy": fakeProxy(t, "accept"), "kubelet": fake(t, "accept").Path} {
		c := assert.Value(New(name, path, filepath.Join(file, "scratch"), slogDiscard()))(t)
		checkVerdict(t, c.Validate(context.Background(), []byte("x")), CouldNotTell, 0,
			"the dry run does not work with this "+name+": no scratch directory for the dry run: mkdir "+file+": not a directory")
	}
}

func TestAKubeProxyThatCannotWriteTemporaryFilesGivesNoVerdict(t *testing.T) {
	// The path is short enough for the directory of a dry run and for the
	// result file, but not for the longer name of the configuration file.
	const room = 4095 - len("/dryrun-0123456789/effective")
	long := t.TempDir()
	for len(long) < room-200 {
		long += "/" + strings.Repeat("x", 99)
	}

	long += "/" + strings.Repeat("x", room-len(long)-1)
	c := assert.Value(New("kube-proxy", fakeProxy(t, "accept"), long, slogDiscard()))(t)
	v := c.Validate(context.Background(), []byte("x"))
	assert.That(t, v.Outcome == CouldNotTell && strings.HasPrefix(v.Message, "no scratch file for the dry run: open "+long+"/dryrun-"),
		"got %s: %.200s ... %s", v.Outcome, v.Message, v.Message[max(0, len(v.Message)-100):])
}

func proxyConfig(more string) []byte {
	return append(emptyConfig("kubeproxy.config.k8s.io/v1alpha1", kubeProxyKind), more...)
}

func TestTheRealKubeProxyValidatesAConfiguration(t *testing.T) {
	c := realComponent(t, "kube-proxy")
	for _, tt := range []struct {
		name, data string
		message    string // "" for accepted
	}{
		{"the defaults", "", ""},
		{"what is not there", "clientConnection: {kubeconfig: /not/there}\ndetectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: not-there}\n", ""},
		{"the wrong case", "Mode: ipvs\n", `strict decoding error: unknown field "Mode"`},
		{"a duplicate key", "mode: ipvs\nmode: iptables\n", `strict decoding error: yaml: unmarshal errors: line 4: key "mode" already set in map`},
		{"out of range and unknown", "iptables: {masqueradeBit: 99}\nbogus: 1\n",
			`KubeProxyConfiguration.KubeProxyIPTablesConfiguration.MasqueradeBit: Invalid value: 99: must be within the range [0, 31]; strict decoding error: unknown field "bogus"`},
		{"an unknown mode", "mode: userspace\n", `KubeProxyConfiguration.Mode.ProxyMode: Invalid value: "userspace": must be iptables, ipvs, nftables or blank ` +
			"(blank means the best-available proxy [currently iptables])"},
		{"a wrong type", "oomScoreAdj: lots\n", "failed to decode: json: cannot unmarshal string into Go struct field KubeProxyConfiguration.oomScoreAdj of type int32"},
		{"an unknown log format", "logging: {format: xml}\n", `initialize logging: logging.format: Invalid value: "xml": Unsupported log format`},
		{"JSON logging and out of range", "logging: {format: json}\noomScoreAdj: 2000\n",
			"KubeProxyConfiguration.KubeProxyLinuxConfiguration.OOMScoreAdj: Invalid value: 2000: must be within the range [-1000, 1000]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := c.Validate(context.Background(), proxyConfig(tt.data))
			mustNotWarn(t, v)
			if tt.message != "" {
				checkVerdict(t, v, Rejected, 1, tt.message)
				return
			}

			checkVerdict(t, v, Accepted, 1, "")
			assert.Equal(t, v.Effective.String("healthzBindAddress"), "0.0.0.0:10256", "the defaults are not under it: healthzBindAddress =")
		})
	}

	v := c.Validate(context.Background(), config(""))
	const unknown = `failed to decode: no kind "KubeletConfiguration" is registered for version "kubelet.config.k8s.io/v1beta1"`
	assert.That(t, v.Outcome == Rejected && strings.HasPrefix(v.Message, unknown), "another kind: got %+v", v)
	checkVerdict(t, c.Validate(context.Background(), []byte("a: b: c")), Rejected, 1,
		"failed to decode: yaml: mapping values are not allowed in this context", "no YAML")
	e := c.Validate(context.Background(), proxyConfig("mode: ipvs\nclientConnection: {qps: 7.5}\nfeatureGates: {AllAlpha: false}\n")).Effective
	got := fmt.Sprint(e["mode"], e["featureGates"], e["clientConnection"])
	burst, _ := e.Int("clientConnection.burst")
	assert.That(t, burst == 10 && strings.Contains(got, "qps:7.5") && strings.HasPrefix(got, "ipvsmap[AllAlpha:false]"), "got %s", got)
}

// With this configuration, a kube-proxy that continued would change the first
// sysctl and fail at the second.
func TestTheRealKubeProxyChangesNothingOnTheHost(t *testing.T) {
	sysctls := func() string {
		var all strings.Builder
		for _, name := range []string{"nf_conntrack_max", "nf_conntrack_tcp_timeout_established", "nf_conntrack_tcp_timeout_close_wait", "nf_conntrack_tcp_be_liberal"} {
			value, err := os.ReadFile("/proc/sys/net/netfilter/" + name)
			fmt.Fprintln(&all, name, string(value), err)
		}

		return all.String()
	}
	var data strings.Builder
	data.WriteString("bindAddressHardFail: true\nconntrack: {min: 131077, maxPerCore: 32771, tcpEstablishedTimeout: 7h3m, tcpCloseWaitTimeout: 17m, tcpBeLiberal: true}\n")
	for _, name := range []string{"healthzBindAddress", "metricsBindAddress"} {
		held := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
		defer held.Close()
		fmt.Fprintf(&data, "%s: %s\n", name, held.Addr())
	}

	before := sysctls()
	checkVerdict(t, realComponent(t, "kube-proxy").Validate(context.Background(), proxyConfig(data.String())), Accepted, 1, "")
	assert.Equal(t, sysctls(), before, "before after")
}
