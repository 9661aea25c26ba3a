package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// Save makes next durable, all but its Run. It writes only the records that
// differ from what is on disk, in the order in which a crash between any two
// makes the next start decide the same again.
//
// It stops at the first record that cannot be written and names it; saving
// again writes what is missing. A record that Load could not read is left as it
// is and reported the same way, but does not stop the others: only a Load that
// can read it makes an end of that.
//
// Of the lists the newest are kept: 11 startups, 10 promoted, 50 bad ones, among
// these always those that forbid current or last-known-good.
func (s *Store) Save(next trial.State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	files := map[string][]byte{}
	for _, r := range records {
		data, err := encodeRecord(r, next)
		if err != nil {
			return fmt.Errorf("save %s: %w", r.name, err)
		}
		files[r.name] = data
	}
	s.named = append(s.named, next.Current, next.LastKnownGood)
	if err := s.prepare(); err != nil {
		return err
	}
	var left error
	for _, r := range records {
		if r.name == "current" && s.leaveCurrentMissing(next) {
			continue
		}
		if cause := s.unreadable[r.name]; cause != nil {
			left = errors.Join(left, fmt.Errorf("save %s: it could not be read, and is not replaced: %w", r.name, cause))
			continue
		}
		if err := s.writeRecord(r, files[r.name]); err != nil {
			return errors.Join(left, fmt.Errorf("save %s: %w", r.name, err))
		}
		if r.name == "current" {
			s.currentLost = false
		}
	}
	s.named = []trial.Record{next.Current, next.LastKnownGood}
	if err := s.saveVersion(); err != nil {
		left = errors.Join(left, fmt.Errorf("save %s: %w", versionRecord.name, err))
	}
	return left
}

// leaveCurrentMissing tells whether to write a local `current` would say more
// than is known: that local was assigned, while there is a last-known-good
// configuration that nobody reset.
func (s *Store) leaveCurrentMissing(next trial.State) bool {
	resets := !next.LastKnownGood.IsLocal() || s.unreadable["last-known-good"] != nil
	return s.currentLost && next.Current == (trial.Record{}) && resets
}

// encodeRecord makes sure that what is written can be read again: an error now
// costs one change, later it would cost the record.
func encodeRecord(r record, s trial.State) ([]byte, error) {
	data, err := marshal(r.encode(s, header{apiVersion, r.kind}))
	if err != nil {
		return nil, err
	}
	return data, decodeRecord(r, data, &trial.State{})
}

func (s *Store) saveVersion() error {
	data, err := marshal(componentVersion{header{apiVersion, versionRecord.kind}, s.version})
	if err != nil {
		return err
	}
	if s.unreadable[versionRecord.name] != nil {
		return nil // reported by Load, and of no consequence
	}
	return s.writeRecord(versionRecord, data)
}

func (s *Store) writeRecord(r record, data []byte) error {
	path := s.recordPath(r)
	old, err := readSane(s.fsys, path)
	switch {
	case err == nil && bytes.Equal(old, data) && bytes.Equal(s.durable[r.name], data):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		if err := s.ensureDir(filepath.Dir(path)); err != nil { // it may have gone with the record
			return err
		}
	case errors.Is(err, errCorrupt), err == nil && len(old) > 0 && decodeRecord(r, old, &trial.State{}) != nil:
		if err := s.setAside(path); err != nil {
			return fmt.Errorf("it is corrupt, and could not be set aside: %w", err)
		}
		s.log.Warn("a record was corrupt, set aside and written anew", "file", path, "setAside", path+corruptSuffix)
	case err != nil:
		return fmt.Errorf("it cannot be read, and is not replaced: %w", err)
	}
	delete(s.durable, r.name)
	if err := atomicfile.Write(s.fsys, path, data, fileMode); err != nil {
		return err
	}
	s.durable[r.name] = data
	return nil
}
