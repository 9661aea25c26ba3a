// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// boot gives the agent and its kubelet another boot ID, at their next start:
// they run in a mount namespace with a file of ours in its place.
func (n *node) boot(number int) {
	n.t.Helper()
	id := fmt.Sprintf("00000000-0000-4000-8000-%012d", number)
	file := filepath.Join(n.Node.Dir(), "boot_id")
	assert.NoError(n.t, os.WriteFile(file, []byte(id+"\n"), 0o644))
	n.Prefix = []string{"unshare", "--mount", "--propagation=slave", "sh", "-c", `mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"`, file}
}

// counted requires this number of recorded starts in a running trial.
func (n *node) counted(starts int, clean bool) {
	n.t.Helper()
	s := n.onDisk()
	assert.That(n.t, s.Trial != nil && len(s.Startups) == starts && s.Trial.Clean == clean && s.Trial.Fallback == trial.NoFallback,
		"on disk are %d starts and the trial %+v, want %d starts, clean %v", len(s.Startups), s.Trial, starts, clean)
}
