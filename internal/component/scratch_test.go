// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestErrorsOfAFullDiskAreEqualEachTime(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}
	h := dryRunner(t, fake(t, "accept"))
	assert.NoError(t, os.MkdirAll(h.scratch, 0o700))
	assert.NoError(t, unix.Mount("tmpfs", h.scratch, "tmpfs", 0, "nr_inodes=3"))
	t.Cleanup(func() { _ = unix.Unmount(h.scratch, unix.MNT_DETACH) })
	first := h.Check(context.Background(), Candidate{Data: []byte("x")}, "")
	second := h.Check(context.Background(), Candidate{Data: []byte("x")}, "")
	assert.That(t, first.Outcome == CouldNotTell && first.Message == second.Message && strings.Contains(first.Message, "no space left on device"),
		"%s: %s\n%s", first.Outcome, first.Message, second.Message)
	left, _ := filepath.Glob(h.scratch + "/*")
	assert.That(t, len(left) == 0, "left: %v", left)
}

func TestAMissingLocalFileNeedsNoDryRun(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "runs")
	k := fake(t, `echo x >>`+runs+`; accept`)
	k.Config = filepath.Join(t.TempDir(), "config.yaml")
	h := dryRunner(t, k)
	checkVerdict(t, h.CheckLocal(context.Background(), ""), Rejected, 0, "the kubelet's configuration file "+k.Config+" does not exist: has this node joined its cluster?")
	if _, err := os.Stat(runs); err == nil {
		t.Error("the kubelet was run")
	}
	write(t, k.Config, "x", 0o600)
	checkVerdict(t, h.CheckLocal(context.Background(), ""), Accepted, 1, "")
}
