// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package blockdev is a disk for virtual machines that can lose its power. A
// Recorder serves the disk over NBD, and logs writes and flushes. From the log,
// Cut makes the disk as it could be after a power cut at any point: a disk with
// a volatile cache keeps what was flushed, and of later writes an arbitrary
// part.
//
// The package must not know what is stored on the disk. Memory does not grow
// with what is written: data is in files.
package blockdev

import (
	"errors"
	"io"
	"os"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// Sector is the unit in bytes that a disk writes as a whole. Offsets and
// lengths of all writes are multiples of it.
const Sector = 512

// Source is a disk that does not change.
type Source interface {
	io.ReaderAt
	Size() int64 // in bytes, a multiple of Sector
}

// Image returns the content of a raw image, whose size must be a multiple of
// Sector.
func Image(f *os.File) (_ Source, err error) {
	defer must.Catch(&err)

	size := must.Get(f.Stat()).Size()
	must.That(size%Sector == 0, "%s has %d bytes, which is no multiple of %d", f.Name(), size, Sector)

	return io.NewSectionReader(f, 0, size), nil
}

// Layer is a Source with changes on top, which are in a sparse file.
type Layer struct {
	below   Source
	file    *os.File
	changed []uint64 // one bit for each sector that is in the file
}

func newLayer(below Source, path string) (*Layer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(below.Size()); err != nil {
		return nil, errors.Join(err, f.Close())
	}

	return &Layer{below: below, file: f, changed: make([]uint64, (below.Size()/Sector+63)/64)}, nil
}

// Size implements Source.
func (l *Layer) Size() int64 { return l.below.Size() }

// Close closes and removes the layer's file. Other layers on top of it cannot
// be read any more.
func (l *Layer) Close() error { return errors.Join(l.file.Close(), os.Remove(l.file.Name())) }

func (l *Layer) has(sector int64) bool { return l.changed[sector/64]&(1<<(sector%64)) != 0 }

// ReadAt implements Source. The offset and the length must be multiples of
// Sector.
func (l *Layer) ReadAt(p []byte, off int64) (int, error) {
	for done := 0; done < len(p); {
		first := (off + int64(done)) / Sector
		n := l.run(first, int64(len(p)-done)/Sector)
		var from io.ReaderAt = l.below
		if l.has(first) {
			from = l.file
		}
		if _, err := from.ReadAt(p[done:done+int(n)*Sector], first*Sector); err != nil {
			return done, err
		}

		done += int(n) * Sector
	}

	return len(p), nil
}

// run returns how many sectors, at most, have the same place as the first one.
func (l *Layer) run(first, most int64) int64 {
	n := int64(1)
	for n < most && l.has(first+n) == l.has(first) {
		n++
	}

	return n
}

func (l *Layer) writeAt(p []byte, off int64) error {
	if _, err := l.file.WriteAt(p, off); err != nil {
		return err
	}

	for s := off / Sector; s < (off+int64(len(p)))/Sector; s++ {
		l.changed[s/64] |= 1 << (s % 64)
	}

	return nil
}

// Overwrite writes the layer's changes to a raw image that has the content
// below them.
func (l *Layer) Overwrite(image *os.File) (err error) {
	defer must.Catch(&err)

	buffer := make([]byte, 1<<20)
	sectors := l.Size() / Sector
	for s := int64(0); s < sectors; {
		n := l.run(s, min(sectors-s, int64(len(buffer))/Sector))
		if l.has(s) {
			part := buffer[:n*Sector]
			must.Get(l.ReadAt(part, s*Sector))
			must.Get(image.WriteAt(part, s*Sector))
		}

		s += n
	}

	return nil
}
