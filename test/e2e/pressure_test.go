// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestPressureThatNoGuardPredictsFailsTheTrial(t *testing.T) {
	t.Parallel()
	n := newNode(t, "evicts", "--config-trial-duration=10m")
	root := filepath.Join(n.Node.Dir(), "kubelet")
	assert.NoError(t, os.MkdirAll(root, 0o755))
	assert.NoError(t, unix.Mount("tmpfs", root, "tmpfs", 0, "size=64m,mode=0755")) // stopping the node unmounts it
	n.Up()
	n.RunPods("1", "2")
	cm := n.assignNew("strict", map[string]any{"evictionHard": map[string]string{"memory.available": "50Mi", "nodefs.available": "16Mi"}})
	n.is(allChecksPassed(cm))
	n.healthyWith(cm)
	assert.NoError(t, os.WriteFile(filepath.Join(root, "ballast"), make([]byte, 52<<20), 0o644))
	n.Says("False", "WorkloadHarmed", fmt.Sprintf("using last-known-good (init): current (UID: %s) harmed the workload: ", cm.UID))
	n.healthyWith(nil)
}
