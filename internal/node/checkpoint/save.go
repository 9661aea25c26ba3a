// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// Save saves next, except its Run. It writes only the records that differ from
// those on disk, in the order of the table.
//
// Save stops at the first record that cannot be written, and names it in the
// error. Another call writes the rest. A record that Load could not read is not
// replaced: Save reports it and continues with the others, until a Load can
// read it.
func (s *Store) Save(next trial.State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	files := map[string][]byte{}
	for _, r := range records {
		data, err := encodeRecord(r, next, s.durable[r.name])
		if err != nil {
			return fmt.Errorf("save %s: %w", r.name, err)
		}

		files[r.name] = data
	}

	s.referenced = append(s.referenced, next.Current, next.LastKnownGood)
	if err := s.ensureDirs(); err != nil { // Open could not create them, or they were removed since
		return err
	}

	s.unsynced = s.unsynced && s.syncDirs() != nil
	var left error
	for _, r := range records {
		if r.name == "current" && s.leaveCurrentMissing(next) {
			continue
		}

		if cause := s.unreadable[r.name]; cause != nil {
			left = errors.Join(left, fmt.Errorf("save %s: it could not be read and is not replaced: %w", r.name, cause))
			continue
		}

		if err := s.writeRecord(r, files[r.name]); err != nil {
			return errors.Join(left, fmt.Errorf("save %s: %w", r.name, err))
		}
		if r.name == "current" {
			s.currentLost = false
		}
	}

	s.referenced = []trial.AdoptedConfig{next.Current, next.LastKnownGood}
	if err := s.saveVersion(); err != nil {
		left = errors.Join(left, fmt.Errorf("save %s: %w", versionRecord.name, err))
	}

	return left
}

// leaveCurrentMissing reports whether writing a local `current` would claim too
// much: that local was assigned, although there may be a last-known-good
// configuration that no one has reset.
func (s *Store) leaveCurrentMissing(next trial.State) bool {
	resets := !next.LastKnownGood.IsLocal() || s.unreadable["last-known-good"] != nil
	return s.currentLost && next.Current == (trial.AdoptedConfig{}) && resets
}

// encodeRecord checks that the encoded record can be decoded: an error now
// costs one change, but later it would cost the record. What is already saved
// was checked before.
func encodeRecord(r record, s trial.State, saved []byte) ([]byte, error) {
	data, err := r.encode(r.part(&s))
	if err != nil || bytes.Equal(data, saved) {
		return data, err
	}

	return data, r.decodeInto(data, &trial.State{})
}

func (s *Store) saveVersion() error {
	data, err := versionRecord.encode(s.version)
	if err != nil {
		return err
	}
	if s.unreadable[versionRecord.name] != nil {
		return nil // reported by Load, and harmless
	}

	return s.writeRecord(versionRecord, data)
}

func (s *Store) writeRecord(r record, data []byte) error {
	path := s.recordPath(r)
	old, err := readBounded(s.fsys, path)
	switch {
	case err == nil && bytes.Equal(old, data) && bytes.Equal(s.durable[r.name], data):
		return nil
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, errCorrupt), err == nil && len(old) > 0 && r.decodeInto(old, &trial.State{}) != nil:
		if err := s.setAside(path); err != nil {
			return fmt.Errorf("it is corrupt, and cannot be set aside: %w", err)
		}

		s.log.Warn("a corrupt file was set aside and written again", "file", path, "setAside", path+corruptSuffix)
	case err != nil:
		return fmt.Errorf("it cannot be read and is not replaced: %w", err)
	case len(s.durable[r.name]) > 0 && !bytes.Equal(old, s.durable[r.name]):
		if err := atomicfile.Write(s.fsys, path+editedSuffix, old, fileMode); err != nil {
			return fmt.Errorf("somebody changed it, and no copy of that can be kept: %w", err)
		}

		s.log.Warn("somebody changed a file: it is written again", "file", path, "copy", path+editedSuffix)
	}

	delete(s.durable, r.name)
	if err := atomicfile.Write(s.fsys, path, data, fileMode); err != nil {
		return err
	}

	s.durable[r.name] = data

	return nil
}
