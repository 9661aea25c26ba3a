// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package hostns

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// Program is an open executable, which can be read from any mount namespace.
type Program struct {
	name string
	file *os.File
}

// OpenProgram opens the executable at an absolute path. The error names the
// path.
func OpenProgram(path string) (*Program, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("program %q: not an absolute path", path)
	}

	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // opening a pipe must not wait
	if err != nil {
		return nil, fmt.Errorf("program: %w", err)
	}

	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("program %s: not a regular file", path)
	case info.Mode()&0o111 == 0:
		err = fmt.Errorf("program %s: not executable", path)
	case info.Size() == 0:
		err = fmt.Errorf("program %s: empty", path)
	}

	if err != nil {
		return nil, errors.Join(err, f.Close())
	}

	return &Program{filepath.Base(path), f}, nil
}

// Close closes the program's file.
func (p *Program) Close() error { return p.file.Close() }

// Bin is a directory of the host with copies of programs. The name of a copy,
// NAME-DIGEST, contains the digest of its content, and a copy never changes, so
// running programs stay intact.
type Bin struct {
	path string
	lock *os.File
	put  []string // copied by this process, which has not run them yet
}

// The mode of the directory and of the copies.
const executable = 0o755

// OpenBin opens a directory, creates it if needed, and waits until no other
// process has it open. The error is ErrRefused if programs in it cannot or must
// not run: on a noexec or read-only file system, or if other users can write to
// it.
func OpenBin(path string) (*Bin, error) {
	if err := os.MkdirAll(path, executable); err != nil {
		return nil, refuse("directory for programs: %w", err)
	}

	d, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, refuse("directory for programs: %w", err)
	}
	if err := checkDir(d); err != nil {
		return nil, errors.Join(err, d.Close())
	}

	// Held until the descriptor is closed, at the latest by an exec, so that no
	// other process prunes a program that is about to run.
	for {
		if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err == nil {
			return &Bin{path: path, lock: d}, nil
		} else if !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), d.Close())
		}
	}
}

// checkDir returns an error unless programs of this user, and only those, can
// run from a directory.
func checkDir(d *os.File) error {
	var file unix.Stat_t
	var system unix.Statfs_t
	if err := errors.Join(unix.Fstat(int(d.Fd()), &file), unix.Fstatfs(int(d.Fd()), &system)); err != nil {
		return refuse("directory %s: %w", d.Name(), err)
	}

	switch {
	case int(file.Uid) != os.Geteuid() || file.Mode&0o022 != 0:
		return refuse("directory %s (owner %d, mode %#o): users other than %d can write to it, and so choose what runs here; use another "+
			"directory", d.Name(), file.Uid, file.Mode&0o777, os.Geteuid())
	case system.Flags&unix.ST_NOEXEC != 0:
		return refuse("directory %s is on a file system of the host that is mounted noexec; use another directory", d.Name())
	case system.Flags&unix.ST_RDONLY != 0:
		return refuse("directory %s is on a file system of the host that is mounted read-only; use another directory", d.Name())
	}

	return nil
}

// Close unlocks the directory.
func (b *Bin) Close() error { return b.lock.Close() }

// Put copies the program, durably and with mode 0755, unless a valid copy
// exists, and returns the path of the copy. A symbolic link with the name of
// the program points to the latest copy.
func (b *Bin) Put(p *Program) (string, error) {
	path, err := b.copy(p)
	if err != nil {
		return "", err
	}

	link := filepath.Join(b.path, p.name)
	next := link + ".next"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("link to %s: %w", path, err)
	}
	if err := errors.Join(os.Symlink(filepath.Base(path), next), os.Rename(next, link)); err != nil {
		return "", fmt.Errorf("link to %s: %w", path, err)
	}

	return path, nil
}

// mapped maps the content of the program into memory until unmap. It is not
// read: a copy of a kubelet in memory exceeds the memory limit of many pods.
func (p *Program) mapped() (data []byte, unmap func(), err error) {
	info, err := p.file.Stat()
	if err != nil {
		return nil, nil, err
	}

	data, err = unix.Mmap(int(p.file.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", p.file.Name(), err)
	}

	return data, func() { _ = unix.Munmap(data) }, nil
}

// pathIn returns the path of a copy with this digest.
func (p *Program) pathIn(dir string, sum [sha256.Size]byte) string {
	return filepath.Join(dir, fmt.Sprintf("%s-%x", p.name, sum[:6]))
}

// In returns the path of the program's copy in a directory, which need not be
// there.
func (p *Program) In(dir string) (string, error) {
	data, unmap, err := p.mapped()
	if err != nil {
		return "", err
	}

	defer unmap()

	return p.pathIn(dir, sha256.Sum256(data)), nil
}

// copy is Put without the link.
func (b *Bin) copy(p *Program) (string, error) {
	data, unmap, err := p.mapped()
	if err != nil {
		return "", err
	}

	defer unmap()
	sum := sha256.Sum256(data)
	path := p.pathIn(b.path, sum)
	b.put = append(b.put, path)
	b.removeInterrupted(p.name) // first: they may have filled the disk
	if hasCopy(path, sum[:]) {
		now := time.Now()
		// Prune uses this time. The process that made the copy may have been
		// killed before its name was durable.
		return path, errors.Join(os.Chtimes(path, now, now), atomicfile.OS{}.SyncDir(b.path))
	}

	if err := atomicfile.Write(atomicfile.OS{}, path, data, executable); err != nil {
		return "", fmt.Errorf("copy %s to the host: %w", p.file.Name(), err)
	}

	return path, nil
}

// interrupted matches the end of the name of an interrupted copy.
var interrupted = regexp.MustCompile(`^-[0-9a-f]{12}\.[0-9a-f]{8}` + regexp.QuoteMeta(atomicfile.TempSuffix) + `$`)

// removeInterrupted removes leftovers of interrupted copies of a program. No
// other process writes while this one has the lock. They are harmless, so a
// failure does not matter.
func (b *Bin) removeInterrupted(name string) {
	entries, _ := os.ReadDir(b.path)
	for _, e := range entries {
		if end, ok := strings.CutPrefix(e.Name(), name); ok && interrupted.MatchString(end) {
			_ = os.Remove(filepath.Join(b.path, e.Name()))
		}
	}
}

// hasCopy reports whether path is an executable with the digest.
func hasCopy(path string, sum []byte) bool {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}

	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Mode() != executable { // also requires a regular file
		return false
	}

	h := sha256.New()
	_, err = io.Copy(h, f)

	return err == nil && bytes.Equal(h.Sum(nil), sum)
}

// Prune removes all copies of the programs except the newest keep of each. It
// keeps a copy that a process runs or names on its command line, and one that
// is needed: it may run later.
func (b *Bin) Prune(keep int, needed func(path string) bool, programs ...*Program) error {
	entries, err := os.ReadDir(b.path)
	if err != nil {
		return err
	}

	used, err := usedPrograms()
	if err != nil {
		return err
	}

	var errs []error
	for _, p := range programs {
		for _, path := range b.old(entries, p.name, keep) {
			if slices.Contains(b.put, path) || used(path) || needed(path) {
				continue
			}
			if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) { // two programs may have one name
				errs = append(errs, err)
			}
		}
	}

	return errors.Join(errs...)
}

// old returns the paths of all copies of a program except the newest.
func (b *Bin) old(entries []fs.DirEntry, name string, keep int) []string {
	ours := regexp.MustCompile(`^` + regexp.QuoteMeta(name) + `-[0-9a-f]{12}$`)
	var copies []fs.FileInfo
	var paths []string
	for _, e := range entries {
		if !ours.MatchString(e.Name()) {
			continue
		}
		if info, err := e.Info(); err == nil {
			copies = append(copies, info)
		}
	}

	slices.SortFunc(copies, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for _, info := range copies[min(len(copies), keep):] {
		paths = append(paths, filepath.Join(b.path, info.Name()))
	}

	return paths
}

// usedPrograms returns a function that reports whether a process runs a file,
// or names it on its command line: an agent that waits for the lock has not
// started its kubelet yet.
func usedPrograms() (func(path string) bool, error) {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err == nil && len(processes) == 0 {
		err = errors.New("/proc cannot be read, so the running programs are unknown")
	}
	if err != nil {
		return nil, err
	}

	named := map[string]bool{}
	var running []fs.FileInfo
	for _, process := range processes {
		if line, err := os.ReadFile(process + "/cmdline"); err == nil { // otherwise it has ended
			for arg := range strings.SplitSeq(string(line), "\x00") {
				named[arg] = true
			}
		}

		if info, err := os.Stat(process + "/exe"); err == nil { // otherwise it has ended, or is a kernel thread
			running = append(running, info)
		}
	}

	return func(path string) bool {
		info, err := os.Lstat(path)
		return named[path] || err == nil && slices.ContainsFunc(running, func(r fs.FileInfo) bool { return os.SameFile(r, info) })
	}, nil
}
