package component

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestADryRunWithoutRoomSaysTheSameEachTime(t *testing.T) {
	h := harness(t, fake(t, "accept"))
	if err := os.MkdirAll(h.scratch, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", h.scratch, "tmpfs", 0, "nr_inodes=3"); err != nil {
		t.Skipf("no file system with little room can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(h.scratch, unix.MNT_DETACH) })
	first := h.Check(context.Background(), Candidate{Data: []byte("x")}, "")
	second := h.Check(context.Background(), Candidate{Data: []byte("x")}, "")
	if first.Outcome != CouldNotTell || first.Words != second.Words || !strings.Contains(first.Words, "no space left on device") {
		t.Errorf("%s: %s\n%s", first.Outcome, first.Words, second.Words)
	}
	if left, _ := filepath.Glob(h.scratch + "/*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
