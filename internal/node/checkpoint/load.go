package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// Problem is something that was found wrong with a file, and what was made of
// it.
type Problem struct {
	File     string // relative to the directory
	What     string
	SetAside string // where the corrupt file was put, relative to the directory; empty: it was not
	// Unreadable: the file is there and could not be read, so that what the
	// state lacks of it is unknown. Save does not replace it.
	Unreadable bool
}

func (p Problem) String() string {
	if p.SetAside != "" {
		return fmt.Sprintf("%s: %s (set aside as %s)", p.File, p.What, p.SetAside)
	}
	return p.File + ": " + p.What
}

// Load reads the state, sets aside what is corrupt, and says what was wrong. It
// always returns a state that a node can go by:
//
//   - `current` missing or empty: local, and nothing is reset; corrupt: the
//     last-known-good one, for corrupt is not empty.
//   - `last-known-good` missing, empty or corrupt: the newest promoted
//     configuration whose checkpoint is there, is not bad and not revoked, unless
//     current is local; else local, which is always good.
//   - any other record: nothing is known.
//
// A directory in which nothing was ever saved is local, without a problem.
func (s *Store) Load() (trial.State, []Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	syncErr := s.syncDirs()
	l := loader{fsys: s.fsys, dir: s.dir, version: s.version, setAside: s.setAside}
	l.load()
	s.durable = l.good
	if syncErr != nil {
		s.log.Warn("what is on disk may not be durable; the next change is written with all records", "err", syncErr)
		s.durable = map[string][]byte{}
	}
	s.unreadable, s.currentLost = l.unreadable, l.lost["current"]
	s.named, s.loaded = []trial.Record{l.state.Current, l.state.LastKnownGood}, true
	return l.state, l.problems
}

// syncDirs makes durable what is about to be read: who wrote it may have died,
// or failed, between the rename and its sync, and a node must not go by what a
// power cut takes back.
func (s *Store) syncDirs() error {
	for _, d := range []string{filepath.Dir(s.dir), s.dir, s.path(checkpointsDir), s.path(s.version)} {
		if err := s.fsys.SyncDir(d); err != nil {
			return err
		}
	}
	return nil
}

// View is what ReadOnly found.
type View struct {
	Version  string   // of the component, whose records State has; empty: none was found
	Versions []string // all that left records, newest first
	State    trial.State
	Problems []Problem
}

// NewerThan returns the newest version of the component that left records, if it is newer than the given one, else "". A
// version that cannot be parsed is ignored.
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

// ReadOnly loads the state without changing anything, for the given version of
// the component or, if that is empty, for the one that was used last. It may be
// called beside a running agent; what it returns may then be from a moment
// between two records. The error is for a directory that cannot be read, or a
// version that is no safe name.
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

// lastVersion is the version that saved last: as it says itself, else the one
// with the newest directory.
func lastVersion(fsys atomicfile.FS, dir string, versions []string) string {
	if data, err := fsys.ReadFile(recordPath(dir, "", versionRecord)); err == nil {
		if v, err := parse[componentVersion](data, versionRecord); err == nil && slices.Contains(versions, v.Version) {
			return v.Version
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
	type found struct {
		name string
		info fs.FileInfo
	}
	var all []found
	for _, e := range entries {
		if !e.IsDir() || checkVersion(e.Name()) != nil {
			continue
		}
		inside, err := fsys.ReadDir(filepath.Join(dir, e.Name()))
		info, statErr := e.Info()
		if err == nil && statErr == nil && slices.ContainsFunc(inside, isVersioned) {
			all = append(all, found{e.Name(), info})
		}
	}
	slices.SortStableFunc(all, func(a, b found) int { return b.info.ModTime().Compare(a.info.ModTime()) })
	var names []string
	for _, f := range all {
		names = append(names, f.name)
	}
	return names, nil
}

// isVersioned tells whether a directory's entry is a record of a version.
func isVersioned(e fs.DirEntry) bool {
	return slices.ContainsFunc(records, func(r record) bool { return r.versioned && r.name == e.Name() })
}

type loader struct {
	fsys     atomicfile.FS
	dir      string
	version  string             // empty: only the records that are for all
	setAside func(string) error // nil: nothing may be changed

	state      trial.State
	problems   []Problem
	good       map[string][]byte // what was read and made sense, by the record's name
	unreadable map[string]error
	lost       map[string]bool // missing although it was there, empty or corrupt
	corrupt    map[string]bool // of those: it held something, and that is not known
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
		l.miss(r, present)
	}
	l.recover()
}

// read reads one record into the state. It returns false if there is none.
func (l *loader) read(r record) bool {
	data, err := readSane(l.fsys, recordPath(l.dir, l.version, r))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false
	case errors.Is(err, errCorrupt):
		l.aside(r, err)
	case err != nil:
		l.unreadable[r.name] = err
		l.report(r, Problem{What: fmt.Sprintf("it cannot be read: %v", err), Unreadable: true})
	case len(data) == 0:
		l.lost[r.name] = true
		l.report(r, Problem{What: "it is empty"})
	default:
		if err := decodeRecord(r, data, &l.state); err != nil {
			l.aside(r, err)
		} else {
			l.good[r.name] = data
		}
	}
	return true
}

// decodeRecord changes the state only if the record makes sense.
func decodeRecord(r record, data []byte, into *trial.State) error {
	if r.name == versionRecord.name {
		_, err := parse[componentVersion](data, r)
		return err
	}
	state := *into
	if err := r.decode(data, r, &state); err != nil {
		return err
	}
	*into = state
	return nil
}

var errCorrupt = errors.New("corrupt")

// readSane returns what a file holds; errCorrupt if it is none, or larger than
// any of ours.
func readSane(fsys atomicfile.FS, path string) ([]byte, error) {
	info, err := fsys.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: it is not a file but %s", errCorrupt, kindOf(info.Mode()))
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%w: it has %d bytes", errCorrupt, info.Size())
	}
	return fsys.ReadFile(path)
}

// aside reports a corrupt record and moves it out of the way.
func (l *loader) aside(r record, cause error) {
	l.lost[r.name], l.corrupt[r.name] = true, true
	p := Problem{What: cause.Error()}
	if !errors.Is(cause, errCorrupt) {
		p.What = "corrupt: " + p.What
	}
	if l.setAside != nil {
		path := recordPath(l.dir, l.version, r)
		if err := l.setAside(path); err != nil {
			p.What += fmt.Sprintf("; it could not be set aside: %v", err)
		} else {
			p.SetAside = l.relative(r) + corruptSuffix
		}
	}
	l.report(r, p)
}

// miss decides whether a missing record should have been there. Records are
// first written in their order, so one that is missing before one that is there
// was lost; a version's records say nothing of those that are for all, which
// may be older than it, but the other way round they do.
func (l *loader) miss(r record, present map[string]bool) {
	path := recordPath(l.dir, l.version, r)
	if _, err := l.fsys.Lstat(path + corruptSuffix); err == nil && r.name != versionRecord.name {
		l.lost[r.name], l.corrupt[r.name] = true, true
		l.report(r, Problem{What: "it is missing: it was corrupt, and nothing has replaced it since"})
		return
	}
	i := slices.IndexFunc(records, func(x record) bool { return x.name == r.name })
	if i < 0 {
		return
	}
	for _, later := range append(slices.Clone(records[i+1:]), versionRecord) {
		if present[later.name] && (!r.versioned || later.versioned) {
			l.lost[r.name] = true
			l.report(r, Problem{What: fmt.Sprintf("it is missing, although %s is there", l.relative(later))})
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

// explain adds to a record's problem what is made of it.
func (l *loader) explain(name, what string) {
	for i := range l.problems {
		if l.problems[i].File == name {
			l.problems[i].What += "; " + what
		}
	}
}

// recover finds the next best for what was lost.
func (l *loader) recover() {
	s := &l.state
	_, unread := l.unreadable["last-known-good"]
	_, saysCurrent := l.good["current"]
	if l.lost["last-known-good"] || unread {
		if c, ok := l.newestPromoted(); ok && !(saysCurrent && s.Current.IsLocal()) {
			s.LastKnownGood = c
			l.explain("last-known-good", "going by the newest promoted configuration, "+c.Revision)
		} else {
			l.explain("last-known-good", "going by the local configuration, which is always good")
		}
	}
	_, unread = l.unreadable["current"]
	switch {
	case l.corrupt["current"] || unread:
		s.Current = s.LastKnownGood
		l.explain("current", "going by last-known-good")
	case l.lost["current"]:
		l.explain("current", "taken as local; nothing is reset")
	}
}

// newestPromoted returns the newest configuration that passed its trial and can
// still be run. Its payload is on record, so that whoever decodes the
// checkpoint can tell whether it is what was promoted.
func (l *loader) newestPromoted() (trial.Record, bool) {
	for _, p := range l.state.Promoted {
		data, err := l.fsys.ReadFile(filepath.Join(l.dir, checkpointsDir, p.Revision))
		var object struct {
			Metadata struct{ Namespace, Name, UID string }
		}
		if err != nil || json.Unmarshal(data, &object) != nil {
			continue
		}
		m := object.Metadata
		c := trial.Config{Revision: p.Revision, Namespace: m.Namespace, Name: m.Name, UID: m.UID, Payload: p.Payload, Checkpoint: sha256hex(data)}
		if _, bad := l.state.BadEntry(c); bad || l.state.IsRevoked(c) || m.UID == "" || !strings.HasPrefix(p.Revision, m.UID) {
			continue
		}
		return trial.Record{Config: c, Since: p.Time}, true
	}
	return trial.Record{}, false
}
