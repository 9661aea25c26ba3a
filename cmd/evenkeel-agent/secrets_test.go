// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// A kubelet quotes its command line and its local configuration in errors.
func TestTheSecretsOfAKubeletAreHiddenInMessages(t *testing.T) {
	dir := t.TempDir()
	kubelet, config := filepath.Join(dir, "kubelet"), filepath.Join(dir, "config.yaml")
	assert.NoError(t, os.WriteFile(kubelet, []byte(flaggedKubelet), 0o755))
	assert.NoError(t, os.WriteFile(config, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodURLHeader: {X: [s.fromthefile]}\n"), 0o600))
	args := []string{kubelet, "--config=" + config, "--manifest-url=https://vault/s.inthepath", "--manifest-url-header=X-Vault-Token:s.0123456789"}
	assert.NoError(t, withHostKubelet(&options{given: func(string) bool { return false }}, args, func(host *agent.HostKubelet) error {
		got := secretsOf(host)("cannot read https://vault/s.inthepath with X-Vault-Token s.0123456789 and s.fromthefile")
		assert.Equal(t, got, "cannot read https://vault/masked with X-Vault-Token masked and masked", "message")
		return nil
	}))
}
