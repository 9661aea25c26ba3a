// Package crashfs is a file system in memory for tests: it fails the operation
// it is told to, stops at a crash, and comes up again as a machine would find
// its disk after that, with what was not synced lost, kept or torn.
//
// It is crueller than any real file system: what was not made durable may be
// lost in any combination, not only from the end. It must not know what is
// stored in it. Nothing but tests may import it.
package crashfs

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// ErrCrashed is the error of every operation after a crash.
var ErrCrashed = errors.New("crashed")

// Op is an operation that changes the disk, or makes a change durable.
type Op string

// The operations that are counted and can be made to fail.
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

// Needed lists the operations that a full disk fails: freeing space works.
var Needed = []Op{Create, Write, Mkdir, Sync}

// FS is the file system. It has one directory, "/", to begin with. It is safe
// for concurrent use.
type FS struct {
	mu      sync.Mutex
	root    *node
	pending []change
	log     []string
	faults  []fault
	reads   map[string]error
	crashAt int // no operation after this one happens; negative: no crash
}

var _ atomicfile.FS = (*FS)(nil)

type node struct {
	dir            bool
	mode           fs.FileMode
	uid            uint32
	changed        time.Time
	data, synced   []byte
	names, lasting map[string]*node // as running programs see them; as a crash leaves them
	clean          bool             // of a file: not changed since it was last synced
}

// change is one operation on names that is not durable yet. Its links happen
// together or not at all.
type change struct {
	path  string
	links []link
}

type link struct {
	dir  *node
	name string
	to   *node // nil: the name is gone
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
	return &node{dir: true, mode: mode, uid: uint32(syscall.Geteuid()), names: map[string]*node{}, lasting: map[string]*node{}}
}

// Operations returns how many operations were asked for, failed ones included.
func (f *FS) Operations() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.log)
}

// Log returns the operations in words, in their order.
func (f *FS) Log() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.log)
}

// FailAt lets operation n fail, counted from now, from 1. A write that fails
// has written half.
func (f *FS) FailAt(n int, err error) { f.fail(n, n, err, nil) }

// FailFrom lets operation n, counted from now, and all after it fail, or of
// them those that are listed.
func (f *FS) FailFrom(n int, err error, only ...Op) { f.fail(n, 1<<62, err, only) }

func (f *FS) fail(from, to int, err error, only []Op) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := len(f.log)
	f.faults = append(f.faults, fault{now + from, max(to, now+to), err, only})
}

// FailRead lets reads of one file or directory fail.
func (f *FS) FailRead(name string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads[path.Clean(name)] = err
}

// Heal takes all faults back.
func (f *FS) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults, f.reads = nil, map[string]error{}
}

// CrashAfter lets the machine crash after n more operations: none after them
// happens.
func (f *FS) CrashAfter(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crashAt = len(f.log) + n
}

// Crashed tells whether an operation came too late.
func (f *FS) Crashed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.crashAt >= 0 && len(f.log) > f.crashAt
}

// Fate is what became of a change that was not synced.
type Fate int

// The fates. Torn is for data: half of it is there. A name is never torn.
const (
	Lost Fate = iota
	Kept
	Torn
)

// Unsynced is a change whose fate is to be chosen.
type Unsynced struct {
	Path string // of data: where it was created
	Data bool   // what a file holds; else a name that was made, moved or removed
}

// Choice chooses fates.
type Choice func(Unsynced) Fate

// The choices that bring the most out: nothing unsynced survives; everything
// does (a process was killed, the machine lives); names do and data does not, as
// on a file system that renames before it writes; the other way round; half of
// each write.
var Choices = map[string]Choice{
	"all lost":     func(Unsynced) Fate { return Lost },
	"all kept":     func(Unsynced) Fate { return Kept },
	"names kept":   func(u Unsynced) Fate { return map[bool]Fate{true: Lost, false: Kept}[u.Data] },
	"data kept":    func(u Unsynced) Fate { return map[bool]Fate{true: Kept, false: Lost}[u.Data] },
	"data torn":    func(u Unsynced) Fate { return map[bool]Fate{true: Torn, false: Kept}[u.Data] },
	"seeded dice":  Dice(1),
	"seeded dice2": Dice(2),
}

// Dice chooses by a generator with that seed.
func Dice(seed uint64) Choice {
	return func(u Unsynced) Fate {
		// Not one stream: the fate of a change must not depend on the order in
		// which a test looks at others.
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

// Reboot returns the file system as the machine finds it when it comes up
// again: all that is there is durable, no fault is left. The file system it is
// called on stays as it is, so that one crash can have many ends.
func (f *FS) Reboot(choose Choice) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := map[*node]map[string]*node{}
	lasting := func(d *node) map[string]*node {
		if names[d] == nil {
			names[d] = map[string]*node{}
			for name, n := range d.lasting {
				names[d][name] = n
			}
		}
		return names[d]
	}
	for _, c := range f.pending {
		if choose(Unsynced{Path: c.path}) == Lost {
			continue
		}
		for _, l := range c.links {
			if l.to == nil {
				delete(lasting(l.dir), l.name)
			} else {
				lasting(l.dir)[l.name] = l.to
			}
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
			c.data = slices.Clone(survivor(n, at, choose))
			c.synced, c.clean = c.data, true
			return &c
		}
		c.names, c.lasting = map[string]*node{}, map[string]*node{}
		for name, child := range lasting(n) {
			c.names[name] = restore(child, path.Join(at, name))
			c.lasting[name] = c.names[name]
		}
		return &c
	}
	up := New()
	up.root = restore(f.root, "/")
	// Time goes on: what was changed before the crash stays older.
	up.log = slices.Clone(f.log)
	return up
}

func survivor(n *node, at string, choose Choice) []byte {
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

// begin counts an operation and says how it fails, if it does.
func (f *FS) begin(op Op, name string) error {
	f.log = append(f.log, string(op)+" "+name)
	n := len(f.log)
	if f.crashAt >= 0 && n > f.crashAt {
		return &fs.PathError{Op: string(op), Path: name, Err: ErrCrashed}
	}
	for _, fault := range f.faults {
		if n >= fault.from && n <= fault.to && (len(fault.only) == 0 || slices.Contains(fault.only, op)) {
			return &fs.PathError{Op: string(op), Path: name, Err: fault.err}
		}
	}
	return nil
}

func (f *FS) now() time.Time { return time.Unix(1_700_000_000+int64(len(f.log)), 0) }

// walk finds a node; an error is one of the operating system's.
func (f *FS) walk(name string) (*node, error) {
	n := f.root
	for _, element := range strings.Split(strings.Trim(path.Clean(name), "/"), "/") {
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

// apply makes links visible, and leaves them to be made durable.
func (f *FS) apply(name string, links ...link) {
	for _, l := range links {
		if l.to == nil {
			delete(l.dir.names, l.name)
		} else {
			l.dir.names[l.name] = l.to
		}
		l.dir.changed = f.now()
	}
	f.pending = append(f.pending, change{name, links})
}
