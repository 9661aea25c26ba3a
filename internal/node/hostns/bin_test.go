// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package hostns

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func openProgram(t *testing.T, path string) *Program {
	t.Helper()
	p := assert.Value(OpenProgram(path))(t)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func openBin(t *testing.T, dir string) *Bin {
	t.Helper()
	b := assert.Value(OpenBin(dir))(t)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// put copies a program with this name and content.
func put(t *testing.T, b *Bin, name, content string) (path string, p *Program) {
	t.Helper()
	p = openProgram(t, write(t, filepath.Join(t.TempDir(), name), content))
	path = assert.Value(b.Put(p))(t)
	return path, p
}

func TestCopyIsNamedAfterItsContentAndMadeOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "bin")
	b := openBin(t, dir)
	path, p := put(t, b, "kubelet", "a kubelet")
	want := fmt.Sprintf("%s/kubelet-%.12s", dir, fmt.Sprintf("%x", sha256.Sum256([]byte("a kubelet"))))
	assert.That(t, path == want, "the copy is %s, want %s", path, want)
	first, err := os.Stat(path)
	assert.Must(t, err == nil && first.Mode() == 0o755, "the copy is %v, %v, want mode 0755", first.Mode(), err)

	old := time.Now().Add(-time.Hour)
	assert.NoError(t, os.Chtimes(path, old, old))
	again, err := b.Put(p)
	assert.Must(t, err == nil && again == path, "again it is %s, %v", again, err)
	second, err := os.Stat(path)
	assert.That(t, err == nil && os.SameFile(first, second) && second.ModTime().After(old.Add(time.Minute)),
		"again it is another file, or of %v, %v", second.ModTime(), err)
}

func TestDamagedCopyIsReplaced(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"other content":    func(path string) error { return os.WriteFile(path, []byte("a kobold!"), 0o755) },
		"cut off":          func(path string) error { return os.Truncate(path, 3) },
		"not executable":   func(path string) error { return os.Chmod(path, 0o644) },
		"others may write": func(path string) error { return os.Chmod(path, 0o777) },
		"a symbolic link": func(path string) error {
			return errors.Join(os.Rename(path, path+".elsewhere"), os.Symlink(path+".elsewhere", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := openBin(t, t.TempDir())
			path, p := put(t, b, "kubelet", "a kubelet")
			assert.NoError(t, spoil(path))
			assert.NoError(t, assert.Err(b.Put(p)))
			info, err := os.Lstat(path)
			content, readErr := os.ReadFile(path)
			err = errors.Join(err, readErr)
			assert.That(t, err == nil && info.Mode() == 0o755 && string(content) == "a kubelet",
				"the copy is %v and holds %q, %v", info.Mode(), content, err)
		})
	}
}

func TestFailedCopyLeavesNothing(t *testing.T) {
	dir := mount(t, 0, "size=64k,mode=755")
	b := openBin(t, dir)
	p := openProgram(t, write(t, filepath.Join(t.TempDir(), "kubelet"), strings.Repeat("large", 20_000)))
	path, err := b.Put(p)
	assert.That(t, errors.Is(err, unix.ENOSPC) && path == "", "got %q, %v", path, err)
	says(t, err.Error(), "copy "+p.file.Name()+" to the host: replace "+dir+"/kubelet-")
	left, err := os.ReadDir(dir)
	assert.That(t, err == nil && len(left) == 0, "left: %v, %v", left, err)
}

// mount mounts a new file system on a directory.
func mount(t *testing.T, flags uintptr, data string) string {
	t.Helper()
	needRoot(t)
	dir := t.TempDir()
	assert.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", flags, data))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })

	return dir
}

func TestUnusableDirectoryIsRefused(t *testing.T) {
	needRoot(t)
	own := func(change func(dir string) error) string {
		dir := t.TempDir()
		assert.NoError(t, change(dir))
		return dir
	}
	file := write(t, filepath.Join(t.TempDir(), "file"), "x")
	for _, tt := range []struct{ name, dir, words string }{
		{"noexec", mount(t, unix.MS_NOEXEC, "size=64k,mode=755"), "is on a file system of the host that is mounted noexec"},
		{"read-only", mount(t, unix.MS_RDONLY, "size=64k,mode=755"), "is on a file system of the host that is mounted read-only"},
		{"below read-only", mount(t, unix.MS_RDONLY, "size=64k,mode=755") + "/bin", "read-only file system"},
		{"others may write", own(func(dir string) error { return os.Chmod(dir, 0o777) }), "mode 0777): users other than 0 can write to it, and so choose what runs here"},
		{"another owner", own(func(dir string) error { return os.Chown(dir, 65534, 0) }), "(owner 65534, "},
		{"a file", file, "not a directory"},
		{"below a file", file + "/bin", file + ": not a directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, err := OpenBin(tt.dir)
			assert.That(t, b == nil, "it is open")
			wantRefused(t, err, tt.words)
		})
	}
}

func TestOnlyOneProcessHasTheDirectory(t *testing.T) {
	dir := t.TempDir()
	first := openBin(t, dir)
	second := make(chan error)
	go func() {
		b, err := OpenBin(dir)
		if err == nil {
			err = b.Close()
		}

		second <- err
	}()
	assert.Eventually(t, "this process waits for the directory", func() bool { return lockfile.Waiting(os.Getpid()) })
	select {
	case err := <-second:
		t.Fatalf("two processes have the directory: %v", err)
	default:
	}

	assert.NoError(t, first.Close())
	assert.NoError(t, <-second, "the second")
}

func TestPruneKeepsUsedNamedAndNeededCopies(t *testing.T) {
	dir := t.TempDir()
	real := assert.Value(exec.LookPath("sleep"))(t)
	binary := assert.Value(os.ReadFile(real))(t)
	b := openBin(t, dir)
	running, _ := put(t, b, "kubelet", string(binary))
	named, _ := put(t, b, "kubelet", "an agent that waits will start it")
	needed, _ := put(t, b, "kubelet", "a unit starts it, as soon as that is started")
	var more []string
	for i := range 4 {
		path, _ := put(t, b, "kubelet", fmt.Sprint("kubelet ", i))
		more = append(more, path)
	}

	for i, path := range append([]string{running, named, needed}, more...) { // the later, the newer
		when := time.Now().Add(time.Duration(i-10) * time.Hour)
		assert.NoError(t, os.Chtimes(path, when, when))
	}

	leftover := more[0] + ".0123abcd.tmp"
	others := []string{dir + "/agent-0123456789ab", dir + "/kubelet", dir + "/kubelet-0123456789ab.mine", dir + "/mykubelet-0123456789ab"}
	for _, path := range append(others, leftover) {
		write(t, path, "x")
	}

	runs := exec.Command(running, "600")
	runs.Args[0] = "another name"
	names := exec.Command("sh", "-c", "read line", named)
	in := assert.Value(names.StdinPipe())(t)
	t.Cleanup(func() { _ = in.Close() })
	for _, cmd := range []*exec.Cmd{runs, names} {
		assert.NoError(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}

	assert.NoError(t, b.Close())

	b = openBin(t, dir)
	// A second program of the same name was copied by the same process, and
	// must stay too.
	oldest, p := put(t, b, "kubelet", "kubelet 0")
	latest, q := put(t, b, "kubelet", "the latest")
	assert.Must(t, oldest == more[0], "%s is not %s", oldest, more[0])
	isNeeded := func(path string) bool { return path == needed }
	assert.NoError(t, b.Prune(1, isNeeded, p, q))
	kept := append([]string{running, named, needed, oldest, latest}, others...)
	for _, path := range kept {
		assert.NoError(t, assert.Err(os.Stat(path)), "gone")
	}
	left, err := os.ReadDir(dir)
	assert.That(t, err == nil && len(left) == len(kept), "left: %v, %v, want %q", left, err, kept)

	assert.NoError(t, names.Process.Kill())
	_ = names.Wait()
	assert.NoError(t, b.Prune(2, isNeeded, p))
	assert.Is(t, assert.Err(os.Stat(named)), fs.ErrNotExist, "a copy that is no longer named")
}

func TestOpenProgramRefusesOtherFiles(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	assert.NoError(t, unix.Mkfifo(pipe, 0o755))
	data := write(t, filepath.Join(dir, "data"), "x")
	assert.NoError(t, os.Chmod(data, 0o644))
	for path, want := range map[string]string{
		"kubelet":                  `program "kubelet": not an absolute path`,
		dir + "/none":              "program: open " + dir + "/none: no such file or directory",
		dir:                        "program " + dir + ": not a regular file",
		pipe:                       "program " + pipe + ": not a regular file",
		data:                       "program " + data + ": not executable",
		write(t, dir+"/empty", ""): "program " + dir + "/empty: empty",
	} {
		p, err := OpenProgram(path)
		assert.That(t, p == nil && err != nil && err.Error() == want, "%s: got %v, want %s", path, err, want)
	}
}

func TestClosedOrMissingDirectoryIsAnError(t *testing.T) {
	dir := t.TempDir()
	b := openBin(t, dir)
	p := openProgram(t, write(t, filepath.Join(t.TempDir(), "kubelet"), "a kubelet"))
	assert.NoError(t, os.Remove(dir))
	assert.Is(t, b.Prune(1, func(string) bool { return false }, p), fs.ErrNotExist, "Prune")
	assert.Is(t, assert.Err(b.Put(p)), fs.ErrNotExist, "Put")
	_ = p.Close()
	assert.Is(t, assert.Err(b.Put(p)), fs.ErrClosed, "Put of a closed program")
	assert.That(t, checkDir(p.file) != nil, "a closed directory is accepted")
}

func TestLinkPointsToTheNewestCopy(t *testing.T) {
	dir := t.TempDir()
	b := openBin(t, dir)
	link := filepath.Join(dir, "agent")
	assert.NoError(t, os.Symlink("nowhere", link+".next")) // of one that was interrupted
	for _, content := range []string{"one", "two", "one"} {
		path, _ := put(t, b, "agent", content)
		to, err := os.Readlink(link)
		assert.That(t, err == nil && filepath.Join(dir, to) == path, "it leads to %s, %v, want %s", to, err, path)
	}

	assert.NoError(t, os.Remove(link))
	assert.NoError(t, os.MkdirAll(filepath.Join(link, "in the way"), 0o755))
	p := openProgram(t, write(t, filepath.Join(t.TempDir(), "agent"), "three"))
	assert.ErrorHas(t, assert.Err(b.Put(p)), "link to "+dir)
	assert.NoError(t, errors.Join(os.RemoveAll(link), os.Remove(link+".next")))
	assert.NoError(t, os.MkdirAll(filepath.Join(link+".next", "in the way"), 0o755))
	assert.ErrorHas(t, assert.Err(b.Put(p)), "link to "+dir)
}

func TestPutRemovesInterruptedCopies(t *testing.T) {
	dir := t.TempDir()
	b := openBin(t, dir)
	for range 2 { // also if there is a copy already
		for _, name := range []string{"kubelet-0123456789ab.0123abcd.tmp", "kubelet-0123456789ab.mine.tmp", "agent-0123456789ab.0123abcd.tmp"} {
			write(t, filepath.Join(dir, name), "half")
		}

		copied, _ := put(t, b, "kubelet", "a kubelet")
		got, err := filepath.Glob(filepath.Join(dir, "*-*"))
		want := []string{dir + "/agent-0123456789ab.0123abcd.tmp", dir + "/kubelet-0123456789ab.mine.tmp", copied}
		assert.That(t, err == nil && slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))), "left %q, %v; want %q", got, err, want)
	}
}
