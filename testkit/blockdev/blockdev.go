// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package blockdev makes disks of virtual machines as they could be after a
// power cut. QEMU's filter blklogwrites logs what is written to a disk. From
// that log, Cut makes the disk at any point: a disk with a volatile cache keeps
// what was flushed, and of later writes an arbitrary part.
//
// The package must not know what is stored on the disk.
package blockdev

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"sort"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// Sector is the size in bytes of what a disk writes as a whole. All parts of a
// log are multiples of it.
const Sector = 512

// The log has the format of Linux's log-writes target, with little-endian
// numbers: https://docs.kernel.org/admin-guide/device-mapper/log-writes.html
type (
	head struct {
		Magic, Version, Entries uint64
		SectorSize              uint32
	}
	entry struct{ Sector, Sectors, Flags, Inline uint64 }
)

const (
	magic = 0x6a736677736872
	flush = 1 << 0 // a flag of an entry
)

// record is a flush or a write.
type record struct {
	flush  bool
	offset int64 // on the disk
	length int64
	data   int64 // where it is in the log
}

// Log is a complete log: QEMU no longer writes to it.
type Log struct {
	path    string
	records []record
}

// Loss says what a power cut did to the writes after the last flush.
type Loss struct {
	Flushed          int // records up to that flush
	Kept, Torn, Lost int // writes after it
}

// Read reads a log. An incomplete last record is left out: QEMU was killed. The
// error names the first record that is neither a write nor a flush.
func Read(path string) (l *Log, err error) {
	defer must.Catch(&err)

	file := must.Get(os.Open(path))
	defer file.Close()
	read := func(at int64, v any) {
		err := binary.Read(io.NewSectionReader(file, at, Sector), binary.LittleEndian, v)
		must.That(err == nil, "%s at byte %d: %w", path, at, err)
	}
	var h head
	read(0, &h)
	must.That(h.Magic == magic && h.Version == 1 && h.SectorSize == Sector, "%s begins with %+v: it is no log", path, h)
	l = &Log{path: path}
	for at, size := int64(Sector), must.Get(file.Stat()).Size(); at+Sector <= size; {
		var e entry
		read(at, &e)
		must.That(e.Flags&^flush == 0 && e.Inline == 0 && max(e.Sector, e.Sectors) < 1<<50, "record %d of %s is %+v", len(l.records), path, e)
		r := record{flush: e.Flags&flush != 0, offset: int64(e.Sector * Sector), length: int64(e.Sectors * Sector), data: at + Sector}
		if at = r.data + r.length; at <= size {
			l.records = append(l.records, r)
		}
	}

	return l, nil
}

// Size returns the size in bytes of the log with a number of records.
func (l *Log) Size(records int) int64 {
	if records == 0 {
		return Sector
	}

	last := l.records[records-1]

	return last.data + last.length
}

// Records returns how many records the log had when it had this size in bytes.
func (l *Log) Records(size int64) int {
	return sort.Search(len(l.records), func(i int) bool { return l.Size(i+1) > size })
}

// Cut makes the disk after a power cut behind a number of records from an image
// with the disk before the first: it writes everything up to the last flush,
// and of later writes a random subset. A fifth of the later writes are torn:
// each sector is kept or lost. Writes to the first bytes of the disk, as many as
// whole says, are not torn. The same seed gives the same disk.
func (l *Log) Cut(at int, seed uint64, whole int64, image io.WriterAt) (loss Loss, err error) {
	defer must.Catch(&err)

	must.That(at >= 0 && at <= len(l.records), "the log has %d records, not %d", len(l.records), at)
	file := must.Get(os.Open(l.path))
	defer file.Close()
	for i, r := range l.records[:at] {
		if r.flush {
			loss.Flushed = i + 1
		}
	}

	dice := rand.New(rand.NewPCG(seed, uint64(at)))
	// Disks differ in how much of their cache they have written: almost
	// nothing, almost everything, or half.
	keep := []float64{0.05, 0.5, 0.95}[dice.IntN(3)]
	for i, r := range l.records[:at] {
		part, odds := max(r.length, 1), 1.0 // what is kept or lost together, and how often it is kept
		if i >= loss.Flushed {
			switch p := dice.Float64(); {
			case p < 0.2 && r.offset >= whole:
				part, odds = Sector, 0.5
				loss.Torn++
			case dice.Float64() < keep:
				loss.Kept++
			default:
				odds = 0
				loss.Lost++
			}
		}

		for from := int64(0); from < r.length; from += part {
			if dice.Float64() < odds {
				must.Get(io.Copy(io.NewOffsetWriter(image, r.offset+from), io.NewSectionReader(file, r.data+from, part)))
			}
		}
	}

	return loss, nil
}
