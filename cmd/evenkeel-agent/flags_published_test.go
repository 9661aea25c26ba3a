// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// TestPublishedFlagsContainNoSecret has secrets in flags, in the local configuration, and in what the kubelet says about its command line
// without one flag.
func TestPublishedFlagsContainNoSecret(t *testing.T) {
	dir := t.TempDir()
	kubelet, config := filepath.Join(dir, "kubelet"), filepath.Join(dir, "config.yaml")
	script := strings.NewReplacer("--picky)", "--manifest-url=*) url=${a#*=};;\n--needed) needed=1;;\n--picky)",
		"max=$(", "[ \"$url$needed\" = \"$url\" ] && [ \"$url\" ] && end \"cannot read $url and X-Vault-Token s.0123456789\"\nmax=$(").Replace(flaggedKubelet)
	assert.NoError(t, os.WriteFile(kubelet, []byte(script), 0o755))
	assert.NoError(t, os.WriteFile(config, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodURLHeader: {X: [s.fromthefile]}\n"), 0o600))
	args := []string{kubelet, "--config=" + config, "--needed", "--max-pods=250", "--manifest-url=https://vault/s.inthepath", "--manifest-url-header=X-Vault-Token:s.0123456789"}
	var text string
	assert.NoError(t, withHostKubelet(&options{given: func(string) bool { return false }}, args, func(host *agent.HostKubelet) error {
		var err error
		text, err = publishedFlags(t.Context(), host)
		if got := secretsOf(host)("the header s.fromthefile"); got != "the header masked" {
			t.Errorf("an error says %q", got)
		}
		return err
	}))
	assert.That(t, !strings.Contains(text, "s.0123") && !strings.Contains(text, "s.inthepath"), "%s", text)
	for _, want := range []string{"--max-pods=250 (maxPods)", "--manifest-url=https://vault/masked", "--manifest-url-header=masked", "cannot read https://vault/masked and X-Vault-Token masked", "\nmaxPods: 250\n"} {
		assert.That(t, strings.Contains(text, want), "%s, want in it %q", text, want)
	}
}
