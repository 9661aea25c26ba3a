package lockfile

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWaiting(t *testing.T) {
	path := lockPath(t)
	lock := acquire(t, path)
	waiter := exec.Command("flock", path, "sleep", "60") // of util-linux
	do(t, waiter.Start())
	defer func() {
		_ = waiter.Process.Kill()
		_ = waiter.Wait()
	}()
	queued(t, waiter.Process.Pid)
	if Waiting(os.Getpid()) {
		t.Error("Waiting is true for this process")
	}
	do(t, lock.Release())
	eventually(t, "the waiter has the lock", func() bool { return !Waiting(waiter.Process.Pid) })
}

func TestHeld(t *testing.T) {
	path := lockPath(t)
	if Held(path) {
		t.Error("a missing file is held")
	}
	lock := acquire(t, path)
	if !Held(path) {
		t.Error("not held, although it is")
	}
	do(t, lock.Release())
	if Held(path) {
		t.Error("held, although it was released")
	}
}

func TestWhoHoldsDoesNotOpenTheFile(t *testing.T) {
	path := lockPath(t)
	if pid := WhoHolds(path); pid != 0 {
		t.Errorf("process %d holds a missing file", pid)
	}
	pid, end := startHolder(t, path)
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	do(t, err)
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
		t.Errorf("process %d holds it, although the holder ended", got)
	}
}
