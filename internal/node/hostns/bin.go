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

// Program is an executable that is open: it can be read wherever the process goes.
type Program struct {
	name string
	file *os.File
}

// OpenProgram opens the executable at an absolute path. The error names the path.
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

// Bin is the directory of a host's copies of programs. Each has a name of its own content, NAME-DIGEST, and is never
// changed: what runs stays what it is.
type Bin struct {
	path string
	lock *os.File
	put  []string // by this process, which has not run them yet
}

// The mode of the directory and of what is in it.
const executable = 0o755

// OpenBin opens a directory, which it makes if there is none, and waits until no other process has it open. The error
// is ErrRefused for one from which nothing can or may be run: on a noexec or read-only file system, or open to others.
func OpenBin(path string) (*Bin, error) {
	if err := os.MkdirAll(path, executable); err != nil {
		return nil, refuse("directory for programs on the host: %w", err)
	}
	d, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, refuse("directory for programs on the host: %w", err)
	}
	if err := fit(d); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	// Held until the descriptor is closed, at the latest by an exec: nobody takes away what is about to be run.
	for {
		if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err == nil {
			return &Bin{path: path, lock: d}, nil
		} else if !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), d.Close())
		}
	}
}

// fit tells whether programs can be run from a directory, and only ours.
func fit(d *os.File) error {
	var file unix.Stat_t
	var system unix.Statfs_t
	if err := errors.Join(unix.Fstat(int(d.Fd()), &file), unix.Fstatfs(int(d.Fd()), &system)); err != nil {
		return refuse("directory %s: %w", d.Name(), err)
	}
	switch {
	case int(file.Uid) != os.Geteuid() || file.Mode&0o022 != 0:
		return refuse("directory %s (owner %d, mode %#o): others than user %d may write to it, and so choose what runs here; take another one", d.Name(), file.Uid, file.Mode&0o777, os.Geteuid())
	case system.Flags&unix.ST_NOEXEC != 0:
		return refuse("directory %s is on a file system of the host that is mounted noexec: take another one", d.Name())
	case system.Flags&unix.ST_RDONLY != 0:
		return refuse("directory %s is on a file system of the host that is mounted read-only: take another one", d.Name())
	}
	return nil
}

// Close lets others at the directory.
func (b *Bin) Close() error { return b.lock.Close() }

// Put returns the path of a copy of the program, which it makes, durably and with mode 0755, unless it is there with
// the right content. A link of the program's own name leads to it, for whom any version will do.
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

// mapped is the program's content, which unmap lets go of. It is not read: a kubelet in memory is more than many pods may
// have.
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

// pathIn is where a program of this digest is copied to.
func (p *Program) pathIn(dir string, sum [sha256.Size]byte) string {
	return filepath.Join(dir, fmt.Sprintf("%s-%x", p.name, sum[:6]))
}

// In returns the path of the program's copy in a directory, which need not be there.
func (p *Program) In(dir string) (string, error) {
	data, unmap, err := p.mapped()
	if err != nil {
		return "", err
	}
	defer unmap()
	return p.pathIn(dir, sha256.Sum256(data)), nil
}

// copy returns the path of the copy; see Put.
func (b *Bin) copy(p *Program) (string, error) {
	data, unmap, err := p.mapped()
	if err != nil {
		return "", err
	}
	defer unmap()
	sum := sha256.Sum256(data)
	path := p.pathIn(b.path, sum)
	b.put = append(b.put, path)
	if has(path, sum[:]) {
		now := time.Now()
		return path, os.Chtimes(path, now, now) // Prune goes by it
	}
	if err := atomicfile.Write(atomicfile.OS{}, path, data, executable); err != nil {
		return "", fmt.Errorf("copy %s to the host: %w", p.file.Name(), err)
	}
	return path, nil
}

// has tells whether an executable with the digest is at path.
func has(path string, sum []byte) bool {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Mode() != executable { // of a regular file
		return false
	}
	h := sha256.New()
	_, err = io.Copy(h, f)
	return err == nil && bytes.Equal(h.Sum(nil), sum)
}

// Prune removes copies of the programs but the newest keep of each, and what interrupted copies have left. What a
// process runs, or names on its command line, stays, and so does what is needed: it will run, though it does not now.
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

// old are the paths of the copies of a program but the newest, and of copies that were interrupted.
func (b *Bin) old(entries []fs.DirEntry, name string, keep int) []string {
	ours := regexp.MustCompile(`^` + regexp.QuoteMeta(name) + `-[0-9a-f]{12}(\.[0-9a-f]{8}` + regexp.QuoteMeta(atomicfile.TempSuffix) + `)?$`)
	var copies []fs.FileInfo
	var paths []string
	for _, e := range entries {
		match := ours.FindStringSubmatch(e.Name())
		if match == nil {
			continue
		}
		if match[1] != "" {
			paths = append(paths, filepath.Join(b.path, e.Name())) // nobody else writes while this process has the lock
		} else if info, err := e.Info(); err == nil {
			copies = append(copies, info)
		}
	}
	slices.SortFunc(copies, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for i, info := range copies {
		if i >= keep {
			paths = append(paths, filepath.Join(b.path, info.Name()))
		}
	}
	return paths
}

// usedPrograms tells of a path whether a process runs the file, or names it: an agent that waits for its turn has not
// started its kubelet yet.
func usedPrograms() (func(path string) bool, error) {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err == nil && len(processes) == 0 {
		err = errors.New("/proc is not to be seen: what runs is not known")
	}
	if err != nil {
		return nil, err
	}
	named := map[string]bool{}
	var running []fs.FileInfo
	for _, process := range processes {
		if line, err := os.ReadFile(process + "/cmdline"); err == nil { // else it has ended
			for arg := range strings.SplitSeq(string(line), "\x00") {
				named[arg] = true
			}
		}
		if info, err := os.Stat(process + "/exe"); err == nil { // else it has ended, or is the kernel's
			running = append(running, info)
		}
	}
	return func(path string) bool {
		info, err := os.Lstat(path)
		return named[path] || err == nil && slices.ContainsFunc(running, func(r fs.FileInfo) bool { return os.SameFile(r, info) })
	}, nil
}
