// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// operation is the kind of a change.
type operation string

const (
	installing   operation = "install"
	uninstalling operation = "uninstall"
)

// outcome is the result of a change; empty: it runs, or was interrupted.
type outcome string

const (
	done      outcome = "done"
	takenBack outcome = "taken back"
)

// change is written to disk before the node is changed, and again with its
// outcome. The next run completes an interrupted change, or takes it back.
type change struct {
	Version   int       `json:"version"`
	Operation operation `json:"operation"`
	Unit      string    `json:"unit"`
	Attempt   string    `json:"attempt,omitempty"`
	Begun     time.Time `json:"begun"`

	DropIn     string  `json:"dropIn"`         // path of the drop-in
	Trial      string  `json:"-"`              // path where it is tried
	From       *string `json:"from,omitempty"` // previous content; nil: no file
	To         *string `json:"to,omitempty"`   // desired content; nil: no file
	Invocation string  `json:"invocation"`     // of the unit, before the change
	Healthy    bool    `json:"healthy"`        // the kubelet was healthy before the change
	Target     Target  `json:"target"`         // the kubelet

	// The command that systemd must run after an install: the agent with its
	// flags, and the kubelet, with variables not expanded.
	Agent   []string `json:"agent,omitempty"`
	Kubelet []string `json:"kubelet,omitempty"`
	Prefix  string   `json:"prefix,omitempty"`

	Proven  bool    `json:"proven,omitempty"` // the trial succeeded: move the drop-in to its final path
	Back    bool    `json:"back,omitempty"`   // the change is being taken back
	Outcome outcome `json:"outcome,omitempty"`
	Reason  string  `json:"reason,omitempty"` // why it is taken back
}

const recordVersion = 1

// newChange returns the change of a unit that a request begins.
func (h *Host) newChange(o operation, u Unit, r Request) change {
	return change{
		Version: recordVersion, Operation: o, Unit: u.Name, Attempt: r.Attempt, Begun: time.Now().UTC(),
		DropIn: h.DropIn(u.Name), Trial: h.trial(u.Name), Invocation: u.Invocation,
	}
}

// open reports whether the change has no outcome yet.
func (c *change) open() bool { return c != nil && c.Outcome == "" }

// repeats returns ErrTakenBack for an attempt that failed before: a pod that
// starts again must not restart the kubelet again.
func (c *change) repeats(o operation, attempt string) error {
	if c == nil || attempt == "" || c.Attempt != attempt || c.Operation != o || c.Outcome != takenBack {
		return nil
	}

	return fmt.Errorf("%s of %s: %w: this attempt (%s) has failed before and is not repeated: %s", o, c.Unit, ErrTakenBack, attempt, c.Reason)
}

// dropIns is the content of the two files of a unit; nil: no file.
type dropIns struct {
	lasting *string
	trial   *string
}

// desired returns the content that the files must have now.
func (c *change) desired() dropIns {
	switch {
	case c.Back:
		return dropIns{lasting: c.From}
	case c.Operation == installing && !c.Proven:
		return dropIns{lasting: c.From, trial: c.To}
	}

	return dropIns{lasting: c.To}
}

// writeFiles writes the desired content, durably. During a trial the final file
// stays unchanged. A temporary file beside it proves that the disk has room for
// the final file, which is written only after the trial.
func (c *change) writeFiles(fsys atomicfile.FS, desired dropIns) error {
	path := c.DropIn
	var err error
	if desired.trial != nil {
		if err = atomicfile.MakeDir(fsys, filepath.Dir(path), 0o755); err == nil {
			err = atomicfile.Write(fsys, path+".room"+atomicfile.TempSuffix, []byte(*desired.trial), 0o644)
		}
	} else {
		err = writeDropIn(fsys, path, desired.lasting)
	}

	if err == nil {
		path = c.Trial
		err = writeDropIn(fsys, path, desired.trial)
	}

	if errors.Is(err, syscall.EROFS) {
		err = fmt.Errorf("%w: on this system, add the file the way its unit files are managed; --dry-run prints it", err)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}

	return nil
}

// readFiles returns the content of both files.
func (c *change) readFiles(fsys atomicfile.FS) (dropIns, error) {
	lasting, err := readDropIn(fsys, c.DropIn)
	if err != nil {
		return dropIns{}, err
	}

	trial, err := readDropIn(fsys, c.Trial)

	return dropIns{lasting, trial}, err
}

func (h *Host) lock() string { return filepath.Join(h.StateDir, "lock") }

func (h *Host) record(unit string) string { return filepath.Join(h.StateDir, unit+".json") }

// load returns the last recorded change of a unit, nil if there is none.
func (h *Host) load(unit string) (*change, error) {
	data, err := h.FS.ReadFile(h.record(unit))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	c := change{Trial: h.trial(unit)}
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err == nil && c.Version != recordVersion {
		err = fmt.Errorf("version %d, but this program reads version %d: use the evenkeel-agent that wrote it", c.Version, recordVersion)
	}
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", h.record(unit), err)
	}

	return &c, nil
}

func (h *Host) save(c *change) error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}

	return atomicfile.Write(h.FS, h.record(c.Unit), append(data, '\n'), 0o600)
}

// drop deletes the record of a change that never began.
func (h *Host) drop(unit string) error {
	if err := h.FS.Remove(h.record(unit)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	return h.FS.SyncDir(h.StateDir)
}

// readDropIn returns the content of a file, nil if it does not exist.
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

// writeDropIn writes or removes the file, durably, and removes leftovers of an
// interrupted write. It removes the directory if it is empty.
func writeDropIn(fsys atomicfile.FS, path string, desired *string) error {
	there, err := readDropIn(fsys, path)
	if err == nil {
		err = sweep(fsys, filepath.Dir(path), filepath.Base(path)+".")
	}

	switch {
	case err != nil:
		return err
	case desired != nil && same(there, desired):
		return nil
	case desired != nil:
		if err := atomicfile.MakeDir(fsys, filepath.Dir(path), 0o755); err != nil {
			return err
		}

		return atomicfile.Write(fsys, path, []byte(*desired), 0o644)
	case there != nil:
		if err := fsys.Remove(path); err != nil {
			return err
		}
	}

	dir := filepath.Dir(path)
	_ = fsys.Remove(dir) // fails if other files are in it
	if _, err := fsys.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		dir = filepath.Dir(dir)
	}

	return fsys.SyncDir(dir)
}

// sweep removes leftovers of interrupted writes from a directory, durably:
// temporary files whose names begin with prefix.
func sweep(fsys atomicfile.FS, dir, prefix string) error {
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	found := false
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && strings.HasSuffix(e.Name(), atomicfile.TempSuffix) {
			found = true
			err = errors.Join(err, fsys.Remove(filepath.Join(dir, e.Name())))
		}
	}

	if found && err == nil {
		err = fsys.SyncDir(dir)
	}

	return err
}

func same(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }
