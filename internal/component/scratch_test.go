// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// mountedScratch returns a scratch directory whose root directory a kubelet
// that continued has mounted on itself, twice.
func mountedScratch(t *testing.T, h *DryRunner) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}

	dir := assert.Value(h.makeScratch())(t)
	root := filepath.Join(dir, "root")
	t.Cleanup(func() { unmount(root) })
	for range 2 {
		assert.NoError(t, unix.Mount(root, root, "", unix.MS_BIND, ""))
	}

	return dir
}

func TestARootDirectoryThatAKubeletMountedIsRemoved(t *testing.T) {
	h := dryRunner(t, fake(t, "accept"))
	dir := mountedScratch(t, h)
	removeScratch(dir, h.log)
	assert.That(t, errors.Is(assert.Err(os.Stat(dir)), fs.ErrNotExist), "%s is left", dir)

	dir = mountedScratch(t, h)
	assert.NoError(t, os.Chtimes(dir, time.Time{}, time.Now().Add(-2*time.Hour)))
	removeLeftovers(h.scratch, h.log)
	assert.That(t, errors.Is(assert.Err(os.Stat(dir)), fs.ErrNotExist), "%s is left", dir)
}

func TestAMissingLocalFileNeedsNoDryRun(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "runs")
	k := fake(t, `echo x >>`+runs+`; accept`)
	k.Config = filepath.Join(t.TempDir(), "config.yaml")
	h := dryRunner(t, k)
	checkVerdict(t, h.CheckLocal(context.Background(), ""), Rejected, 0, "the kubelet's configuration file "+k.Config+" does not exist: has this node joined its cluster?")
	_, err := os.Stat(runs)
	assert.That(t, err != nil, "the kubelet was run")

	write(t, k.Config, "x", 0o600)
	checkVerdict(t, h.CheckLocal(context.Background(), ""), Accepted, 1, "")
}
