package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// operation is what is done to a node.
type operation string

const (
	installing   operation = "install"
	uninstalling operation = "uninstall"
)

// outcome is how it ended; empty: it goes on, or was interrupted.
type outcome string

const (
	done      outcome = "done"
	takenBack outcome = "taken back"
)

// record is written before a node is changed, and again when it is known how that ended. With it a run that was
// interrupted, by whatever, is completed or taken back by the next one.
type record struct {
	Version   int       `json:"version"`
	Operation operation `json:"operation"`
	Unit      string    `json:"unit"`
	Attempt   string    `json:"attempt,omitempty"`
	Begun     time.Time `json:"begun"`

	DropIn     string  `json:"dropIn"`         // its path
	Trial      string  `json:"-"`              // the path under which it is tried
	From       *string `json:"from,omitempty"` // what was there; nil: no file
	To         *string `json:"to,omitempty"`   // what is to be there
	Invocation string  `json:"invocation"`     // of the unit, before
	Healthy    bool    `json:"healthy"`        // the kubelet was, before
	Target     Target  `json:"target"`         // the kubelet

	// What systemd is to run, for an install: the agent with its flags, and the kubelet's words as systemd reads them.
	Agent   []string `json:"agent,omitempty"`
	Kubelet []string `json:"kubelet,omitempty"`
	Prefix  string   `json:"prefix,omitempty"`

	Proven  bool    `json:"proven,omitempty"` // what was tried is to last
	Back    bool    `json:"back,omitempty"`   // it is being taken back
	Outcome outcome `json:"outcome,omitempty"`
	Reason  string  `json:"reason,omitempty"` // why it is taken back
}

const recordVersion = 1

// open tells that it is not known how it ended.
func (r *record) open() bool { return r != nil && r.Outcome == "" }

// repeats returns ErrTakenBack for an attempt that has failed: a pod that is started again is no reason to restart a
// kubelet again.
func (r *record) repeats(o operation, attempt string) error {
	if r == nil || attempt == "" || r.Attempt != attempt || r.Operation != o || r.Outcome != takenBack {
		return nil
	}
	return fmt.Errorf("%s of %s: %w: this attempt (%s) has failed before and is not repeated: %s", o, r.Unit, ErrTakenBack, attempt, r.Reason)
}

// dropIns are what the two files of a unit hold; nil: no file.
type dropIns struct {
	lasting *string
	trial   *string
}

// wanted is what they are to hold now.
func (r *record) wanted() dropIns {
	switch {
	case r.Back:
		return dropIns{lasting: r.From}
	case r.Operation == installing && !r.Proven:
		return dropIns{lasting: r.From, trial: r.To}
	}
	return dropIns{lasting: r.To}
}

// put makes the files of a record what is wanted, durably. While one is tried the one that lasts stays as it is, and it is
// seen that there is room for another one: who could not keep it has nothing to try.
func (r *record) put(fsys atomicfile.FS, wanted dropIns) error {
	path := r.DropIn
	var err error
	if wanted.trial != nil {
		if err = makeDirOf(fsys, path); err == nil {
			err = atomicfile.Write(fsys, path+".room"+atomicfile.TempSuffix, []byte(*wanted.trial), 0o644)
		}
	} else {
		err = putDropIn(fsys, path, wanted.lasting)
	}
	if err == nil {
		path = r.Trial
		err = putDropIn(fsys, path, wanted.trial)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, explainReadOnly(err))
	}
	return nil
}

// found returns what the files of a record hold.
func (r *record) found(fsys atomicfile.FS) (dropIns, error) {
	lasting, err := readDropIn(fsys, r.DropIn)
	if err != nil {
		return dropIns{}, err
	}
	trial, err := readDropIn(fsys, r.Trial)
	return dropIns{lasting, trial}, err
}

// store is where the record and the lock are.
type store struct {
	fsys atomicfile.FS
	dir  string
}

func (s store) lock() string { return filepath.Join(s.dir, "lock") }

func (s store) path(unit string) string { return filepath.Join(s.dir, unit+".json") }

// load returns the record of a unit, nil if there is none.
func (s store) load(unit string) (*record, error) {
	data, err := s.fsys.ReadFile(s.path(unit))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var r record
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err == nil && r.Version != recordVersion {
		err = fmt.Errorf("it is of version %d, this is for version %d: use the evenkeel-agent that wrote it", r.Version, recordVersion)
	}
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", s.path(unit), err)
	}
	return &r, nil
}

func (s store) save(r *record) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(s.fsys, s.path(r.Unit), append(data, '\n'), 0o600)
}

// drop forgets a record that nothing came of.
func (s store) drop(unit string) error {
	if err := s.fsys.Remove(s.path(unit)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.fsys.SyncDir(s.dir)
}

// readDropIn returns the content of a file, nil if there is none.
func readDropIn(fsys atomicfile.FS, path string) (*string, error) {
	data, err := fsys.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	content := string(data)
	return &content, nil
}

// putDropIn makes the file what is wanted, durably, and removes what an interrupted run has left. A directory that is left
// empty goes as well.
func putDropIn(fsys atomicfile.FS, path string, wanted *string) error {
	there, err := readDropIn(fsys, path)
	if err == nil {
		err = sweep(fsys, path)
	}
	switch {
	case err != nil:
		return err
	case wanted != nil && same(there, wanted):
		return nil
	case wanted != nil:
		if err := makeDirOf(fsys, path); err != nil {
			return err
		}
		return atomicfile.Write(fsys, path, []byte(*wanted), 0o644)
	case there != nil:
		if err := fsys.Remove(path); err != nil {
			return err
		}
	}
	dir := filepath.Dir(path)
	_ = fsys.Remove(dir) // where other files are in it, it stays
	if _, err := fsys.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		dir = filepath.Dir(dir)
	}
	return fsys.SyncDir(dir)
}

// makeDirOf makes the directory of a drop-in, durably.
func makeDirOf(fsys atomicfile.FS, path string) error {
	dir := filepath.Dir(path)
	if err := fsys.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return fsys.SyncDir(filepath.Dir(dir))
}

// sweep removes what an interrupted write of the drop-in has left.
func sweep(fsys atomicfile.FS, path string) error {
	leftovers, err := filepath.Glob(path + ".*" + atomicfile.TempSuffix)
	for _, l := range leftovers {
		err = errors.Join(err, fsys.Remove(l))
	}
	return err
}

func same(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

// makeStateDir makes the directory of the record, durably.
func makeStateDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return atomicfile.OS{}.SyncDir(filepath.Dir(dir))
}
