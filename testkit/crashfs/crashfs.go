// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crashfs is an in-memory file system for tests of durability: it
// injects I/O errors and crashes, and reboots to a disk where unsynced changes
// are lost, kept or torn.
//
// It is stricter than real file systems: any combination of unsynced changes
// may be lost, not only the latest. It must not know what is stored in it. Only
// tests may import it.
package crashfs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// ErrCrashed is returned by every operation after a crash.
var ErrCrashed = errors.New("crashed")

// Op is an operation that changes the disk or makes a change durable.
type Op string

// Operations that are counted and can fail.
const (
	Create  Op = "create"
	Write   Op = "write"
	Sync    Op = "sync"
	Close   Op = "close"
	Mkdir   Op = "mkdir"
	Rename  Op = "rename"
	Remove  Op = "remove"
	Chmod   Op = "chmod"
	SyncDir Op = "syncdir"
)

// NeedSpace are the operations that fail on a full disk. Freeing space works.
var NeedSpace = []Op{Create, Write, Mkdir, Sync}

// FS is the file system. It starts with the directory "/". It is safe for
// concurrent use.
type FS struct {
	mu      sync.Mutex
	root    *node
	pending []change
	log     []string
	faults  []fault
	reads   map[string]error
	crashAt int // the last operation before the crash; negative: no crash
	onCrash func()
	before  func() // each operation
}

var _ atomicfile.FS = (*FS)(nil)

type node struct {
	dir            bool
	mode           fs.FileMode
	uid            uint32
	changed        time.Time
	data, synced   []byte
	names, durable map[string]*node // names before a crash; names that survive it
	clean          bool             // a file without changes since its last sync
}

// change is an operation on names that is not durable yet. Its links take
// effect together.
type change struct {
	path  string
	links []link
}

type link struct {
	dir  *node
	name string
	to   *node // nil: the name is removed
}

// set makes names have the link.
func (l link) set(names map[string]*node) {
	if l.to == nil {
		delete(names, l.name)
	} else {
		names[l.name] = l.to
	}
}

type fault struct {
	from, to int
	err      error
	only     []Op
}

// New returns an empty file system.
func New() *FS {
	return &FS{root: newDir(0o755), crashAt: -1, reads: map[string]error{}}
}

func newDir(mode fs.FileMode) *node {
	return &node{dir: true, mode: mode, uid: uint32(syscall.Geteuid()), names: map[string]*node{}, durable: map[string]*node{}}
}

// Operations returns the number of operations so far, including failed ones.
func (f *FS) Operations() int { return len(f.Log()) }

// Log returns the operations as text, in order.
func (f *FS) Log() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.log)
}

// FailAt makes the n-th operation from now fail; 1 is the next one. A failed
// write writes half of its data.
func (f *FS) FailAt(n int, err error) { f.fail(n, n, err, nil) }

// FailFrom makes the n-th operation from now and all later ones fail. With
// only, it is limited to these operations.
func (f *FS) FailFrom(n int, err error, only ...Op) { f.fail(n, 1<<62, err, only) }

func (f *FS) fail(from, to int, err error, only []Op) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := len(f.log)
	f.faults = append(f.faults, fault{now + from, max(to, now+to), err, only})
}

// FailRead makes reads of a file or directory fail.
func (f *FS) FailRead(name string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads[path.Clean(name)] = err
}

// Failing reports whether there are injected errors.
func (f *FS) Failing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.faults)+len(f.reads) > 0
}

// Heal removes all injected errors.
func (f *FS) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults, f.reads = nil, map[string]error{}
}

// CrashAfter crashes after n more operations. Later operations have no effect.
func (f *FS) CrashAfter(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crashAt = len(f.log) + n
}

// OnCrash sets what is called with the first operation after a crash, while the
// file system is locked.
func (f *FS) OnCrash(call func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onCrash = call
}

// BeforeEach sets what is called before each operation, while the file system
// is locked. It may panic.
func (f *FS) BeforeEach(call func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = call
}

// Crashed reports whether an operation came after the crash.
func (f *FS) Crashed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.crashAt >= 0 && len(f.log) > f.crashAt
}

// Fate is the result of a crash for an unsynced change.
type Fate int

// The fates. Torn applies to data and keeps half of it; a name is never torn.
const (
	Lost Fate = iota
	Kept
	Torn
)

// Unsynced is an unsynced change.
type Unsynced struct {
	Path string // for data, the path of the file when it was created
	Data bool   // content of a file; otherwise a created, renamed or removed name
}

// Choice returns the fate of a change.
type Choice func(Unsynced) Fate

// Choices are the most revealing ones: nothing survives; everything survives (a
// killed process on a running machine); only names, as in a file system that
// renames before it writes; only data; half of the data; and random ones.
var Choices = map[string]Choice{
	"all lost":     func(Unsynced) Fate { return Lost },
	"all kept":     func(Unsynced) Fate { return Kept },
	"names kept":   func(u Unsynced) Fate { return map[bool]Fate{true: Lost, false: Kept}[u.Data] },
	"data kept":    func(u Unsynced) Fate { return map[bool]Fate{true: Kept, false: Lost}[u.Data] },
	"data torn":    func(u Unsynced) Fate { return map[bool]Fate{true: Torn, false: Kept}[u.Data] },
	"seeded dice":  Dice(1),
	"seeded dice2": Dice(2),
}

// Dice returns a random choice with this seed.
func Dice(seed uint64) Choice {
	return func(u Unsynced) Fate {
		// Do not use one random stream: the fate of a change must not depend on
		// the order of calls.
		h := seed
		for _, b := range []byte(u.Path) {
			h = h*1099511628211 + uint64(b)
		}

		r := rand.New(rand.NewPCG(h, seed))
		if u.Data {
			return Fate(r.IntN(3))
		}

		return Fate(r.IntN(2))
	}
}

// Reboot returns the file system after the crash: everything in it is durable
// and no errors are injected. f does not change, so one crash can have many
// outcomes.
func (f *FS) Reboot(choose Choice) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := map[*node]map[string]*node{}
	durable := func(d *node) map[string]*node {
		if names[d] == nil {
			names[d] = maps.Clone(d.durable)
		}

		return names[d]
	}
	for _, c := range f.pending {
		if choose(Unsynced{Path: c.path}) == Lost {
			continue
		}

		for _, l := range c.links {
			l.set(durable(l.dir))
		}
	}

	copies := map[*node]*node{}
	var restore func(n *node, at string) *node
	restore = func(n *node, at string) *node {
		if copies[n] != nil {
			return copies[n]
		}

		c := *n
		copies[n] = &c
		if !n.dir {
			c.data = slices.Clone(survivingData(n, at, choose))
			c.synced, c.clean = c.data, true
			return &c
		}

		c.names, c.durable = map[string]*node{}, map[string]*node{}
		for name, child := range durable(n) {
			c.names[name] = restore(child, path.Join(at, name))
			c.durable[name] = c.names[name]
		}

		return &c
	}
	up := New()
	up.root = restore(f.root, "/")
	// Times continue, so that earlier changes stay older.
	up.log = slices.Clone(f.log)

	return up
}

func survivingData(n *node, at string, choose Choice) []byte {
	if n.clean {
		return n.synced
	}

	switch choose(Unsynced{Path: at, Data: true}) {
	case Kept:
		return n.data
	case Torn:
		return n.data[:len(n.data)/2]
	default:
		return n.synced
	}
}

// begin counts an operation and returns its injected error.
func (f *FS) begin(op Op, name string) error {
	if f.before != nil {
		f.before()
	}

	f.log = append(f.log, string(op)+" "+name)
	n := len(f.log)
	if f.crashAt >= 0 && n > f.crashAt {
		if f.onCrash != nil {
			f.onCrash()
			f.onCrash = nil
		}

		return failed(op, name, ErrCrashed)
	}

	for _, fault := range f.faults {
		if n >= fault.from && n <= fault.to && (len(fault.only) == 0 || slices.Contains(fault.only, op)) {
			return failed(op, name, fault.err)
		}
	}

	return nil
}

func (f *FS) now() time.Time { return time.Unix(1_700_000_000+int64(len(f.log)), 0) }

// walk returns the node at a path, or an error of the operating system.
func (f *FS) walk(name string) (*node, error) {
	n := f.root
	for element := range strings.SplitSeq(strings.Trim(path.Clean(name), "/"), "/") {
		if element == "" {
			continue
		}
		if !n.dir {
			return nil, syscall.ENOTDIR
		}
		if n = n.names[element]; n == nil {
			return nil, syscall.ENOENT
		}
	}

	return n, nil
}

func (f *FS) parent(name string) (*node, string, error) {
	if !path.IsAbs(name) {
		return nil, "", fmt.Errorf("crashfs: %q is not an absolute path", name)
	}

	d, err := f.walk(path.Dir(name))
	if err != nil {
		return nil, "", err
	}
	if !d.dir {
		return nil, "", syscall.ENOTDIR
	}

	return d, path.Base(name), nil
}

// apply makes links visible, but not durable.
func (f *FS) apply(name string, links ...link) {
	for _, l := range links {
		l.set(l.dir.names)
		l.dir.changed = f.now()
	}

	f.pending = append(f.pending, change{name, links})
}
