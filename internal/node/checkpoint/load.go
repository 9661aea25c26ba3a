// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// Problem is a defect of a file, and its consequence.
type Problem struct {
	File     string // relative to the directory
	What     string
	SetAside string // the new path of the corrupt file, relative to the directory; empty: it was not moved
}

func (p Problem) String() string {
	if p.SetAside != "" {
		return fmt.Sprintf("%s: %s (set aside as %s)", p.File, p.What, p.SetAside)
	}

	return p.File + ": " + p.What
}

// Load reads the state, sets corrupt files aside, and returns the problems. The
// state is always one that a node can run with:
//
//   - `current` missing or empty: local, and nothing is reset. Corrupt: last-known-good, because corrupt does not mean
//     empty.
//   - `last-known-good` empty: local, as in the proposal. Missing or corrupt: the newest promoted configuration that has a
//     checkpoint and is neither bad nor revoked, unless current is local. Otherwise local, which is always good.
//   - any other record: its part of the state is empty.
//
// A directory in which nothing was ever saved means local, without a problem.
func (s *Store) Load() (trial.State, []Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	syncErr := s.syncDirs()
	l := loader{fsys: s.fsys, dir: s.dir, version: s.version, setAside: s.setAside}
	l.load()
	s.durable, s.unsynced = l.good, syncErr != nil
	if syncErr != nil {
		s.log.Warn("the files may not survive a power cut; the next change writes all of them", "err", syncErr)
		s.durable = map[string][]byte{}
	}

	s.unreadable, s.currentLost = l.unreadable, l.lost["current"]
	s.referenced, s.loaded = []trial.AdoptedConfig{l.state.Current, l.state.LastKnownGood}, true

	return l.state, l.problems
}

// syncDirs makes the files that are about to be read durable, and the names of
// their directories: the process that wrote them may have died before its sync,
// and a node must not act on something that a power cut removes.
func (s *Store) syncDirs() error {
	for _, d := range []string{filepath.Dir(s.dir), s.dir, s.path(checkpointsDir), s.path(s.version)} {
		if err := s.fsys.SyncDir(d); err != nil {
			return err
		}
	}

	return nil
}

// View is the result of ReadOnly.
type View struct {
	Version  string   // of the component that State belongs to; empty: no records were found
	Versions []string // all versions with records, newest first
	State    trial.State
	Problems []Problem
}

// NewerThan returns the newest version of the component that left records, if
// it is newer than the given one, else "". A version that cannot be parsed is
// ignored.
func (v View) NewerThan(version string) string {
	newest, err := utilversion.ParseSemantic(version)
	if err != nil {
		return ""
	}

	name := ""
	for _, v := range v.Versions {
		if parsed, err := utilversion.ParseSemantic(v); err == nil && newest.LessThan(parsed) {
			newest, name = parsed, v
		}
	}

	return name
}

// ReadOnly loads the state for a version of the component, or for the last used
// one if version is empty. It changes nothing and may be called while an agent
// runs; the state may then mix records from before and after a write. It
// returns an error if the directory cannot be read, or the version is not a
// safe name.
func ReadOnly(fsys atomicfile.FS, dir, version string) (View, error) {
	if version != "" {
		if err := checkVersion(version); err != nil {
			return View{}, err
		}
	}

	versions, err := versionDirs(fsys, dir)
	if err != nil {
		return View{}, fmt.Errorf("dynamic config directory: %w", err)
	}

	v := View{Version: version, Versions: versions}
	if version == "" {
		v.Version = lastVersion(fsys, dir, versions)
	}

	l := loader{fsys: fsys, dir: dir, version: v.Version}
	l.load()
	v.State, v.Problems = l.state, l.problems

	return v, nil
}

// lastVersion returns the version that saved last: the one in versionRecord,
// else the one with the newest directory.
func lastVersion(fsys atomicfile.FS, dir string, versions []string) string {
	if data, err := fsys.ReadFile(recordPath(dir, "", versionRecord)); err == nil {
		var v string
		if versionRecord.decode(data, &v) == nil && slices.Contains(versions, v) {
			return v
		}
	}

	if len(versions) > 0 {
		return versions[0]
	}

	return ""
}

// versionDirs returns the versions of the component that left records, newest
// first.
func versionDirs(fsys atomicfile.FS, dir string) ([]string, error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}

	var all []fs.FileInfo
	for _, e := range entries {
		if !e.IsDir() || checkVersion(e.Name()) != nil {
			continue
		}

		inside, err := fsys.ReadDir(filepath.Join(dir, e.Name()))
		info, statErr := e.Info()
		if err == nil && statErr == nil && slices.ContainsFunc(inside, func(e fs.DirEntry) bool { return isVersioned(e.Name()) }) {
			all = append(all, info)
		}
	}

	slices.SortStableFunc(all, newestFirst)
	var names []string
	for _, info := range all {
		names = append(names, info.Name())
	}

	return names, nil
}

func newestFirst(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) }

// isVersioned reports whether a file is a record that is kept for each version.
func isVersioned(name string) bool {
	return slices.ContainsFunc(records, func(r record) bool { return r.versioned && r.name == name })
}

type loader struct {
	fsys     atomicfile.FS
	dir      string
	version  string             // empty: only the records for all versions
	setAside func(string) error // nil: nothing may be changed

	state      trial.State
	problems   []Problem
	good       map[string][]byte // the valid content that was read, by the record's name
	unreadable map[string]error
	lost       map[string]bool // missing although it should exist, empty, or corrupt
	corrupt    map[string]bool // those of lost that had content, which is unknown
	reset      bool            // last-known-good is empty
}

func (l *loader) load() {
	l.good, l.unreadable = map[string][]byte{}, map[string]error{}
	l.lost, l.corrupt = map[string]bool{}, map[string]bool{}
	var missing []record
	present := map[string]bool{}
	for _, r := range append(slices.Clone(records), versionRecord) {
		if r.versioned && l.version == "" {
			continue
		}

		if l.read(r) {
			present[r.name] = true
		} else {
			missing = append(missing, r)
		}
	}

	for _, r := range missing {
		l.checkMissing(r, present)
	}

	l.recover()
}

// read reads one record into the state. It returns false if the file does not
// exist.
func (l *loader) read(r record) bool {
	data, err := readBounded(l.fsys, recordPath(l.dir, l.version, r))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false
	case errors.Is(err, errCorrupt):
		l.reportCorrupt(r, err)
	case err != nil:
		l.unreadable[r.name] = err
		l.report(r, Problem{What: fmt.Sprintf("the file cannot be read: %v", err)})
	case len(bytes.TrimSpace(data)) == 0:
		l.lost[r.name] = true
		l.reset = l.reset || r.name == "last-known-good"
		l.report(r, Problem{What: "the file is empty"})
	default:
		if err := r.decodeInto(data, &l.state); err != nil {
			l.reportCorrupt(r, err)
		} else {
			l.good[r.name] = data
		}
	}

	return true
}

var errCorrupt = errors.New("corrupt")

// readBounded returns the content of a file; errCorrupt if it is not a regular
// file, or larger than any file of this package.
func readBounded(fsys atomicfile.FS, path string) ([]byte, error) {
	info, err := fsys.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: it is not a regular file but %s", errCorrupt, kindOf(info.Mode()))
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%w: it has %d bytes", errCorrupt, info.Size())
	}

	return fsys.ReadFile(path)
}

// reportCorrupt reports a corrupt record and sets it aside.
func (l *loader) reportCorrupt(r record, cause error) {
	l.lost[r.name], l.corrupt[r.name] = true, true
	p := Problem{What: cause.Error()}
	if !errors.Is(cause, errCorrupt) {
		p.What = "corrupt: " + p.What
	}

	if l.setAside != nil {
		path := recordPath(l.dir, l.version, r)
		if err := l.setAside(path); err != nil {
			p.What += fmt.Sprintf("; cannot set it aside: %v", err)
		} else {
			p.SetAside = l.relative(r) + corruptSuffix
		}
	}

	l.report(r, p)
}

// checkMissing decides whether a missing record was lost. Records are first
// written in the order of the table, so a record that is missing before an
// existing one was lost. A version's records say nothing about those for all
// versions, which may be older; but the other way round they do.
func (l *loader) checkMissing(r record, present map[string]bool) {
	path := recordPath(l.dir, l.version, r)
	if _, err := l.fsys.Lstat(path + corruptSuffix); err == nil && r.name != versionRecord.name {
		l.lost[r.name], l.corrupt[r.name] = true, true
		l.report(r, Problem{What: "the file is missing: it was corrupt, and has not been written since"})
		return
	}

	i := slices.IndexFunc(records, func(x record) bool { return x.name == r.name })
	if i < 0 {
		return
	}

	for _, later := range append(slices.Clone(records[i+1:]), versionRecord) {
		if present[later.name] && (!r.versioned || later.versioned) {
			l.lost[r.name] = true
			l.report(r, Problem{What: fmt.Sprintf("the file is missing, although %s exists", l.relative(later))})
			return
		}
	}
}

func (l *loader) relative(r record) string {
	path, _ := filepath.Rel(l.dir, recordPath(l.dir, l.version, r)) // the one is made of the other
	return path
}

func (l *loader) report(r record, p Problem) {
	p.File = l.relative(r)
	l.problems = append(l.problems, p)
}

// addConsequence adds the consequence to a record's problem.
func (l *loader) addConsequence(name, what string) {
	for i := range l.problems {
		if l.problems[i].File == name {
			l.problems[i].What += "; " + what
		}
	}
}

// recover replaces lost parts of the state by the next best.
func (l *loader) recover() {
	s := &l.state
	_, unread := l.unreadable["last-known-good"]
	_, saysCurrent := l.good["current"]
	if l.lost["last-known-good"] || unread {
		if c, ok := l.newestPromoted(); ok && !l.reset && !(saysCurrent && s.Current.IsLocal()) {
			s.LastKnownGood = c
			l.addConsequence("last-known-good", "using the newest promoted configuration, "+c.Revision)
		} else {
			l.addConsequence("last-known-good", "using the local configuration, which is always good")
		}
	}

	_, unread = l.unreadable["current"]
	switch {
	case l.corrupt["current"] || unread:
		s.Current = s.LastKnownGood
		l.addConsequence("current", "using last-known-good")
	case l.lost["current"]:
		l.addConsequence("current", "using the local configuration; nothing is reset")
	}
}

// newestPromoted returns the newest configuration that passed its trial and can
// still run. It contains the recorded digest of the payload, so that the caller
// can verify the checkpoint.
func (l *loader) newestPromoted() (trial.AdoptedConfig, bool) {
	for _, p := range l.state.Promoted {
		data, err := l.fsys.ReadFile(filepath.Join(l.dir, checkpointsDir, p.Revision))
		var object struct {
			Metadata v1alpha1.ConfigRevision // as far as the names are the same
		}
		if err != nil || json.Unmarshal(data, &object) != nil {
			continue
		}

		m := object.Metadata
		m.SHA256, m.ResolvedSHA256 = p.SHA256, p.Resolved
		c := trial.Config{ConfigRevision: m, Revision: p.Revision, Checkpoint: sha256hex(data)}
		if _, bad := l.state.BadEntry(c); bad || l.state.IsRevoked(c) || m.UID == "" || !strings.HasPrefix(p.Revision, string(m.UID)) {
			continue
		}

		return trial.AdoptedConfig{Config: c, Since: p.Time}, true
	}

	return trial.AdoptedConfig{}, false
}
