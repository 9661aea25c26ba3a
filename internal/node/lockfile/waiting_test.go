package lockfile

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestAProcessThatWaitsForALockIsSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	lock, err := TryAcquire(path)
	if err != nil {
		t.Fatal(err)
	}
	waiter := exec.Command("flock", path, "sleep", "60") // of util-linux
	if err := waiter.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = waiter.Process.Kill()
		_ = waiter.Wait()
	}()
	seen := func(want bool) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); Waiting(waiter.Process.Pid) != want; <-time.After(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("Waiting never said %t", want)
			}
		}
	}
	seen(true)
	if Waiting(os.Getpid()) {
		t.Error("this process waits for nothing")
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	seen(false)
}

func TestOnlyAFlockThatIsWaitedForCounts(t *testing.T) {
	locks := "1: FLOCK  ADVISORY  WRITE 11 fd:01:1 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 12 fd:01:1 0 EOF\n2: -> POSIX  ADVISORY  WRITE 13 fd:01:2 0 EOF\nshort\n"
	for pid, want := range map[string]bool{"11": false, "12": true, "13": false} {
		if got := findWaiter(strings.NewReader(locks), pid); got != want {
			t.Errorf("process %s waits: %t, want %t", pid, got, want)
		}
	}
}

func TestALockThatIsHeldIsSeenWithoutTakingIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if Held(path) {
		t.Error("a file that is not there is held")
	}
	lock, err := TryAcquire(path)
	if err != nil {
		t.Fatal(err)
	}
	if !Held(path) {
		t.Error("not held, though it is")
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if Held(path) {
		t.Error("held, though it was released")
	}
}

func TestWhoHoldsALockIsToldWithoutOpeningTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if pid := WhoHolds(path); pid != 0 {
		t.Errorf("process %d holds a file that is not there", pid)
	}
	pid, end := startHolder(t, path)
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watch)
	if _, err := unix.InotifyAddWatch(watch, path, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	if got := WhoHolds(path); got != pid {
		t.Errorf("process %d holds it, want %d", got, pid)
	}
	if n, err := unix.Read(watch, make([]byte, 256)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("the file was opened: %d bytes, %v", n, err)
	}
	end()
	if got := WhoHolds(path); got != 0 {
		t.Errorf("process %d holds it, though its holder is gone", got)
	}
}
