// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package crashfs

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// failed returns the error of an operation on a file or directory.
func failed(op Op, name string, err error) error {
	return &fs.PathError{Op: string(op), Path: name, Err: err}
}

// read calls do with the node of a path, which must be there and readable.
func (f *FS) read(op Op, name string, do func(n *node) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.reads[path.Clean(name)]; err != nil && op != "lstat" {
		return failed(op, name, err)
	}
	if f.crashAt >= 0 && len(f.log) > f.crashAt {
		return failed(op, name, ErrCrashed)
	}

	n, err := f.walk(name)
	if err == nil {
		err = do(n)
	}
	if err != nil {
		return failed(op, name, err)
	}

	return nil
}

// ReadFile implements atomicfile.FS.
func (f *FS) ReadFile(name string) (data []byte, err error) {
	err = f.read("read", name, func(n *node) error {
		if n.dir {
			return syscall.EISDIR
		}

		data = slices.Clone(n.data)

		return nil
	})
	return data, err
}

// ReadDir implements atomicfile.FS.
func (f *FS) ReadDir(name string) (entries []fs.DirEntry, err error) {
	err = f.read("readdir", name, func(n *node) error {
		if !n.dir {
			return syscall.ENOTDIR
		}

		for _, name := range slices.Sorted(maps.Keys(n.names)) {
			entries = append(entries, fs.FileInfoToDirEntry(newInfo(name, n.names[name])))
		}

		return nil
	})
	return entries, err
}

// Lstat implements atomicfile.FS.
func (f *FS) Lstat(name string) (i fs.FileInfo, err error) {
	err = f.read("lstat", name, func(n *node) error {
		i = newInfo(path.Base(name), n)
		return nil
	})
	return i, err
}

// do counts an operation, and carries it out unless an error was injected or
// the crash has happened.
func (f *FS) do(op Op, name string, act func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin(op, name); err != nil {
		return err
	}
	if err := act(); err != nil {
		return failed(op, name, err)
	}

	return nil
}

// add links a new node to a name that is not there yet.
func (f *FS) add(name string, n *node) error {
	d, base, err := f.parent(name)
	if err != nil {
		return err
	}
	if d.names[base] != nil {
		return syscall.EEXIST
	}

	n.changed = f.now()
	f.apply(name, link{d, base, n})

	return nil
}

// Create implements atomicfile.FS.
func (f *FS) Create(name string, mode fs.FileMode) (atomicfile.File, error) {
	n := &node{mode: mode, uid: uint32(syscall.Geteuid()), clean: true}
	if err := f.do(Create, name, func() error { return f.add(name, n) }); err != nil {
		return nil, err
	}

	return &file{f, name, n}, nil
}

type file struct {
	fs   *FS
	name string
	node *node
}

func (w *file) Write(p []byte) (int, error) {
	w.fs.mu.Lock()
	defer w.fs.mu.Unlock()
	err := w.fs.begin(Write, w.name)
	if err != nil {
		p = p[:len(p)/2]
		if errors.Is(err, ErrCrashed) {
			p = nil
		}
	}

	if len(p) > 0 {
		w.node.data = append(w.node.data, p...)
		w.node.clean, w.node.changed = false, w.fs.now()
	}

	return len(p), err
}

func (w *file) Sync() error {
	return w.fs.do(Sync, w.name, func() error {
		w.node.synced, w.node.clean = slices.Clone(w.node.data), true
		return nil
	})
}

func (w *file) Close() error { return w.fs.do(Close, w.name, func() error { return nil }) }

// Mkdir implements atomicfile.FS.
func (f *FS) Mkdir(name string, mode fs.FileMode) error {
	return f.do(Mkdir, name, func() error { return f.add(name, newDir(mode)) })
}

// Rename implements atomicfile.FS.
func (f *FS) Rename(from, to string) error {
	return f.do(Rename, from+" -> "+to, func() error {
		oldDir, oldName, err := f.parent(from)
		if err != nil {
			return err
		}

		newDir, newName, err := f.parent(to)
		if err != nil {
			return err
		}

		n, over := oldDir.names[oldName], newDir.names[newName]
		switch {
		case n == nil:
			return syscall.ENOENT
		case over != nil && over.dir && !n.dir:
			return syscall.EISDIR
		case over != nil && !over.dir && n.dir:
			return syscall.ENOTDIR
		case over != nil && over.dir && len(over.names) > 0:
			return syscall.ENOTEMPTY
		}

		f.apply(to, link{oldDir, oldName, nil}, link{newDir, newName, n})

		return nil
	})
}

// Remove implements atomicfile.FS.
func (f *FS) Remove(name string) error {
	return f.do(Remove, name, func() error {
		d, base, err := f.parent(name)
		switch {
		case err != nil:
			return err
		case d.names[base] == nil:
			return syscall.ENOENT
		case len(d.names[base].names) > 0:
			return syscall.ENOTEMPTY
		}

		f.apply(name, link{d, base, nil})

		return nil
	})
}

// Chmod implements atomicfile.FS. The change is durable at once, which is
// enough for the tests.
func (f *FS) Chmod(name string, mode fs.FileMode) error {
	return f.do(Chmod, name, func() error {
		n, err := f.walk(name)
		if err == nil {
			n.mode = mode
		}

		return err
	})
}

// SyncDir implements atomicfile.FS. Like in a real file system, the directory's
// own name belongs to its parent.
func (f *FS) SyncDir(name string) error {
	return f.do(SyncDir, name, func() error {
		d, err := f.walk(name)
		if err != nil {
			return err
		}
		if !d.dir {
			return syscall.ENOTDIR
		}

		f.settle(d)

		return nil
	})
}

// settle makes the pending changes of a directory durable.
func (f *FS) settle(d *node) {
	var rest []change
	for _, c := range f.pending {
		if !slices.ContainsFunc(c.links, func(l link) bool { return l.dir == d }) {
			rest = append(rest, c)
			continue
		}

		for _, l := range c.links {
			l.set(l.dir.durable)
			// Drop older changes of the same name. Otherwise Reboot could apply
			// them after this one.
			for i := range rest {
				rest[i].links = slices.DeleteFunc(slices.Clone(rest[i].links), func(old link) bool {
					return old.dir == l.dir && old.name == l.name
				})
			}
		}
	}

	f.pending = rest
}

// Plant creates or replaces a durable file without counting an operation.
// Missing parents get mode 0700.
func (f *FS) Plant(name string, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plant(name, &node{mode: 0o600, uid: uint32(syscall.Geteuid()), data: slices.Clone(data), synced: slices.Clone(data), clean: true, changed: f.now()})
}

// PlantDir does the same for a directory.
func (f *FS) PlantDir(name string, mode fs.FileMode) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plant(name, newDir(mode))
}

func (f *FS) plant(name string, n *node) {
	if _, err := f.walk(path.Dir(name)); err != nil {
		f.plant(path.Dir(name), newDir(0o700))
	}

	d, base, err := f.parent(name)
	if err != nil {
		panic(err) // invalid use in a test
	}

	d.names[base], d.durable[base] = n, n
}

// Own sets the owner of a file or directory.
func (f *FS) Own(name string, uid uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.walk(name)
	if err != nil {
		panic(err) // invalid use in a test
	}

	n.uid = uid
}

type info struct {
	name    string
	mode    fs.FileMode
	size    int64
	changed time.Time
	stat    syscall.Stat_t
}

func newInfo(name string, n *node) *info {
	mode := n.mode
	if n.dir {
		mode |= fs.ModeDir
	}

	return &info{name, mode, int64(len(n.data)), n.changed, syscall.Stat_t{Uid: n.uid}}
}

func (i *info) Name() string       { return i.name }
func (i *info) Size() int64        { return i.size }
func (i *info) Mode() fs.FileMode  { return i.mode }
func (i *info) ModTime() time.Time { return i.changed }
func (i *info) IsDir() bool        { return i.mode.IsDir() }
func (i *info) Sys() any           { return &i.stat }
