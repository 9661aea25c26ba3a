// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/nodetest"
)

// runs runs one of the agent's commands, which must exit with code, and say
// all the words. It returns what it said.
func (n *node) runs(code int, stdin string, args []string, words ...string) string {
	n.t.Helper()
	out, got := n.Run(n.t.Context(), stdin, args...)
	assert.That(n.t, got == code, "%q: exit code %d, want %d: %s", args, got, code, out)
	for _, w := range words {
		assert.That(n.t, strings.Contains(out, w), "%q does not say %q but:\n%s", args, w, out)
	}

	return out
}

func (n *node) stop() {
	n.t.Helper()
	assert.NoError(n.t, n.Stop(time.Minute))
}

func TestTheCommandsShowAndRepairTheState(t *testing.T) {
	n := newNode(t, "commands", "--config-trial-duration=3s", "--crash-loop-threshold=0", "--protected-fields=-tlsCertFile,-tlsPrivateKeyFile")
	n.Up()
	kubelet := n.Steady()
	t.Run("check returns the verdict of the node's kubelet", func(t *testing.T) { n.in(t).checks(t) })
	kubelet.End(t)

	// forget, with an agent that runs: it tries again. And without one.
	crt, key := filepath.Join(n.Node.Dir(), "serving.crt"), filepath.Join(n.Node.Dir(), "serving.key")
	bad := n.assignNew("bad", map[string]any{"tlsCertFile": crt, "tlsPrivateKeyFile": key})
	n.is(rolledBack(bad, "CrashLooped", "(init)", "crash-looped: 1 start in its trial, last: exit status 1"))
	n.Eventually("the kubelet is healthy again", n.Healthy)
	for from, to := range map[string]string{"kubelet.crt": crt, "kubelet.key": key} {
		assert.NoError(t, os.Link(filepath.Join(n.Node.Dir(), "pki", from), to))
	}

	dir := "--dynamic-config-dir=" + n.Dir
	n.runs(0, "", []string{"forget", string(bad.UID), dir}, fmt.Sprintf("the running agent was asked to forget that %s is bad", bad.UID))
	n.is(allChecksPassed(bad))
	n.LastKnownGood(bad)
	worse := n.assignNew("worse", map[string]any{"maxPodz": 3})
	n.is(rejected(worse, fmt.Sprintf("using last-known-good (UID: %s)", bad.UID), `strict decoding error: unknown field "maxPodz"`))
	n.stop()
	n.runs(0, "", []string{"status", dir}, "does not run", fmt.Sprintf("%s (evenkeel-system/commands-worse) since ", worse.UID))
	n.runs(0, "", []string{"forget", string(worse.UID), dir}, fmt.Sprintf("forgot that %s is bad; no agent runs", worse.UID))

	n.local(map[string]any{"imageGCHighThresholdPercent": 101})
	n.start()
	n.exitsWith(4)
	n.logged("evenkeel-agent: the local configuration is invalid: invalid configuration: imageGCHighThresholdPercent")
	assert.That(t, n.Healthy(t.Context()) != nil, "a kubelet runs")
}

// checks runs `check` beside the agent, and requires that it leaves nothing.
func (n *node) checks(t *testing.T) {
	scratch := t.TempDir()
	n.Env = append(n.Env, "TMPDIR="+scratch)
	write := func(name, data string) string {
		file := filepath.Join(t.TempDir(), name)
		assert.NoError(t, os.WriteFile(file, []byte(data), 0o600))
		return file
	}
	config := n.text
	good := config(map[string]any{"maxPods": 131})
	local := slices.DeleteFunc(slices.Clone(n.Kubelet), func(arg string) bool { return strings.HasPrefix(arg, "--config=") })
	broken := append(slices.Clone(local), "--config="+write("broken", config(map[string]any{"imageGCHighThresholdPercent": 101})))
	const groupedHeader = "apiVersion: evenkeel.dev/v1alpha1\nkind: KubeletConfiguration\n"
	for _, c := range []struct {
		name    string
		code    int
		stdin   string
		file    string // and flags of check
		kubelet []string
		words   string
	}{
		{"a drop-in, accepted", 0, nodetest.Upstream + "maxPods: 131\n", "- --drop-in", n.Kubelet, "accepted\n"},
		{"grouped, rejected by its names", 1, groupedHeader + "networking: {maxPods: 131}\n", "- --drop-in", n.Kubelet, `evenkeel-agent: rejected: networking.maxPods: maxPods belongs in resources: resources.maxPods`},
		{"refused", 1, config(map[string]any{"readOnlyPort": 10255}), "-", n.Kubelet, "evenkeel-agent: refused: protected field readOnlyPort would be 10255, but is 0 locally\n"},
		{"a protected field that this node frees", 0, config(map[string]any{"readOnlyPort": 10255}), "- --protected-fields=-readOnlyPort", n.Kubelet, "accepted\n"},
		{"a flag that overrides", 0, good, "-", append(slices.Clone(n.Kubelet), "--max-pods=50"), "overridden by a flag of the kubelet: maxPods\naccepted\n"},
		{"rejected on this host only", 1, config(map[string]any{"reservedSystemCPUs": "0-99"}), "-", n.Kubelet, `evenkeel-agent: rejected: reservedSystemCPUs: "0-99": reserved-cpus: 0-99 is not a subset of online-cpus: `},
		{"local fails in the same way", 2, config(map[string]any{"imageGCHighThresholdPercent": 102}), "-", broken, "evenkeel-agent: could not tell: invalid configuration: imageGCHighThresholdPercent"},
		{"no such kubelet", 3, good, "-", []string{"/not/there"}, "evenkeel-agent: there is no kubelet at /not/there"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n.in(t).runs(c.code, c.stdin, slices.Concat([]string{"check"}, strings.Fields(c.file), []string{"--"}, c.kubelet), c.words)
		})
	}

	left, err := os.ReadDir(scratch)
	assert.That(t, err == nil && len(left) == 0, "check left %q, %v", left, err)
	n.Env = slices.DeleteFunc(n.Env, func(e string) bool { return strings.HasPrefix(e, "TMPDIR=") })
}
