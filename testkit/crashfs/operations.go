// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package crashfs

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

func failed(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// startRead starts a read.
func (f *FS) startRead(op, name string) (*node, error) {
	if f.crashAt >= 0 && len(f.log) > f.crashAt {
		return nil, failed(op, name, ErrCrashed)
	}

	n, err := f.walk(name)
	if err != nil {
		return nil, failed(op, name, err)
	}

	return n, nil
}

// ReadFile implements atomicfile.FS.
func (f *FS) ReadFile(name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.reads[path.Clean(name)]; err != nil {
		return nil, failed("read", name, err)
	}

	n, err := f.startRead("read", name)
	if err != nil {
		return nil, err
	}
	if n.dir {
		return nil, failed("read", name, syscall.EISDIR)
	}

	return slices.Clone(n.data), nil
}

// ReadDir implements atomicfile.FS.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.reads[path.Clean(name)]; err != nil {
		return nil, failed("readdir", name, err)
	}

	d, err := f.startRead("readdir", name)
	if err != nil {
		return nil, err
	}
	if !d.dir {
		return nil, failed("readdir", name, syscall.ENOTDIR)
	}

	var entries []fs.DirEntry
	for name, n := range d.names {
		entries = append(entries, fs.FileInfoToDirEntry(newInfo(name, n)))
	}

	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })

	return entries, nil
}

// Lstat implements atomicfile.FS.
func (f *FS) Lstat(name string) (fs.FileInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.startRead("lstat", name)
	if err != nil {
		return nil, err
	}

	return newInfo(path.Base(name), n), nil
}

// Create implements atomicfile.FS.
func (f *FS) Create(name string, mode fs.FileMode) (atomicfile.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin(Create, name); err != nil {
		return nil, err
	}

	d, base, err := f.parent(name)
	if err == nil && d.names[base] != nil {
		err = syscall.EEXIST
	}
	if err != nil {
		return nil, failed("create", name, err)
	}

	n := &node{mode: mode, uid: uint32(syscall.Geteuid()), changed: f.now(), clean: true}
	f.apply(name, link{d, base, n})

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
		if w.fs.crashAt >= 0 && len(w.fs.log) > w.fs.crashAt {
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
	w.fs.mu.Lock()
	defer w.fs.mu.Unlock()
	if err := w.fs.begin(Sync, w.name); err != nil {
		return err
	}

	w.node.synced, w.node.clean = slices.Clone(w.node.data), true

	return nil
}

func (w *file) Close() error {
	w.fs.mu.Lock()
	defer w.fs.mu.Unlock()
	return w.fs.begin(Close, w.name)
}

// Mkdir implements atomicfile.FS.
func (f *FS) Mkdir(name string, mode fs.FileMode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin(Mkdir, name); err != nil {
		return err
	}

	d, base, err := f.parent(name)
	if err == nil && d.names[base] != nil {
		err = syscall.EEXIST
	}
	if err != nil {
		return failed("mkdir", name, err)
	}

	n := newDir(mode)
	n.changed = f.now()
	f.apply(name, link{d, base, n})

	return nil
}

// Rename implements atomicfile.FS.
func (f *FS) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin(Rename, from+" -> "+to); err != nil {
		return err
	}

	oldDir, oldName, err := f.parent(from)
	if err != nil {
		return failed("rename", from, err)
	}

	newDir, newName, err := f.parent(to)
	if err != nil {
		return failed("rename", to, err)
	}

	n, over := oldDir.names[oldName], newDir.names[newName]
	switch {
	case n == nil:
		return failed("rename", from, syscall.ENOENT)
	case over != nil && over.dir && !n.dir:
		return failed("rename", to, syscall.EISDIR)
	case over != nil && !over.dir && n.dir:
		return failed("rename", to, syscall.ENOTDIR)
	case over != nil && over.dir && len(over.names) > 0:
		return failed("rename", to, syscall.ENOTEMPTY)
	}

	f.apply(to, link{oldDir, oldName, nil}, link{newDir, newName, n})

	return nil
}

// Remove implements atomicfile.FS.
func (f *FS) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin(Remove, name); err != nil {
		return err
	}

	d, base, err := f.parent(name)
	if err == nil && d.names[base] == nil {
		err = syscall.ENOENT
	}
	if err == nil && len(d.names[base].names) > 0 {
		err = syscall.ENOTEMPTY
	}
	if err != nil {
		return failed("remove", name, err)
	}

	f.apply(name, link{d, base, nil})

	return nil
}

// Chmod implements atomicfile.FS. The change is durable at once, which is
// enough for the tests.
func (f *FS) Chmod(name string, mode fs.FileMode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin(Chmod, name); err != nil {
		return err
	}

	n, err := f.walk(name)
	if err != nil {
		return failed("chmod", name, err)
	}

	n.mode = mode

	return nil
}

// SyncDir implements atomicfile.FS. Like in a real file system, the directory's
// own name belongs to its parent.
func (f *FS) SyncDir(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin(SyncDir, name); err != nil {
		return err
	}

	d, err := f.walk(name)
	if err == nil && !d.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return failed("syncdir", name, err)
	}

	var rest []change
	for _, c := range f.pending {
		if !slices.ContainsFunc(c.links, func(l link) bool { return l.dir == d }) {
			rest = append(rest, c)
			continue
		}

		for _, l := range c.links {
			if l.to == nil {
				delete(l.dir.durable, l.name)
			} else {
				l.dir.durable[l.name] = l.to
			}

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

	return nil
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
