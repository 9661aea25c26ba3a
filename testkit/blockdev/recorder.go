// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package blockdev

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// record is the fixed part of a record: of a flush, or of a write, whose data
// follows. Durable: the write was complete only when it was durable (FUA).
type record struct {
	Flush   bool
	Durable bool
	Offset  int64
	Length  uint32
}

// Position is a point in the log: the number of records before it.
type Position int64

// Recorder is a disk that logs its changes. It is safe for concurrent use: each
// operation takes effect at one point.
type Recorder struct {
	mu   sync.Mutex
	live *Layer
	log  *os.File
	at   Position
}

// Record returns a disk with the content of a Source. path is the beginning of
// the names of its files.
func Record(below Source, path string) (*Recorder, error) {
	live, err := newLayer(below, path+".live")
	if err != nil {
		return nil, err
	}

	log, err := os.OpenFile(path+".log", os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, errors.Join(err, live.Close())
	}

	return &Recorder{live: live, log: log}, nil
}

// Close removes the files of the disk. Layers that Cut returned can still be
// read.
func (r *Recorder) Close() error {
	return errors.Join(r.live.Close(), r.log.Close(), os.Remove(r.log.Name()))
}

// Position returns the end of the log.
func (r *Recorder) Position() Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at
}

// Size returns the size in bytes.
func (r *Recorder) Size() int64 { return r.live.Size() }

// check returns an error unless a range is on the disk and consists of sectors.
func (r *Recorder) check(off int64, length uint32) error {
	if off < 0 || off%Sector != 0 || length%Sector != 0 || off > r.Size()-int64(length) {
		return fmt.Errorf("%d bytes at %d of a disk of %d bytes: %w", length, off, r.Size(), syscall.EINVAL)
	}

	return nil
}

// ReadAt reads what was written last. The offset and the length must be
// multiples of Sector.
func (r *Recorder) ReadAt(p []byte, off int64) (int, error) {
	if err := r.check(off, uint32(len(p))); err != nil {
		return 0, err
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	return r.live.ReadAt(p, off)
}

// Write writes data. With durable a power cut after its return does not undo
// it.
func (r *Recorder) Write(p []byte, off int64, durable bool) (err error) {
	defer must.Catch(&err)

	must.OK(r.check(off, uint32(len(p))))
	r.mu.Lock()
	defer r.mu.Unlock()
	must.OK(r.live.writeAt(p, off))

	return r.append(record{Durable: durable, Offset: off, Length: uint32(len(p))}, p)
}

// Flush makes all earlier writes durable.
func (r *Recorder) Flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.append(record{Flush: true}, nil)
}

func (r *Recorder) append(rec record, data []byte) error {
	raw, err := binary.Append(nil, binary.BigEndian, rec)
	if err == nil {
		_, err = r.log.Write(append(raw, data...))
	}
	if err == nil {
		r.at++
	}

	return err
}

// Loss says what a power cut did to the writes after the last flush.
type Loss struct {
	Flushed          Position // the last flush before the cut
	Kept, Torn, Lost int      // writes after it
}

// Cut returns the disk after a power cut at a point of the log: everything up
// to the last flush, and of later writes a random subset. Half of the writes
// that are neither kept nor lost are torn: each sector is kept or lost. Writes
// to the first bytes of the disk, as many as whole says, are not torn. The same
// seed gives the same disk. path is the name of the layer's file.
func (r *Recorder) Cut(at Position, seed uint64, whole int64, path string) (l *Layer, loss Loss, err error) {
	defer must.Catch(&err)

	end := r.Position()
	must.That(at >= 0 && at <= end, "the log has %d records, not %d", end, at)
	r.each(at, func(i Position, rec record, _ io.Reader) {
		if rec.Flush {
			loss.Flushed = i + 1
		}
	})
	l = must.Get(newLayer(r.live.below, path))
	dice := rand.New(rand.NewPCG(seed, uint64(at)))
	// Disks differ in how much of their cache they have written: almost
	// nothing, almost everything, or half.
	keep := []float64{0.05, 0.5, 0.95}[dice.IntN(3)]
	r.each(at, func(i Position, rec record, data io.Reader) {
		if rec.Flush {
			return
		}

		fate := func() bool { return true }
		if i >= loss.Flushed && !rec.Durable {
			switch p := dice.Float64(); {
			case p < 0.2 && rec.Offset >= whole:
				fate = func() bool { return dice.IntN(2) == 0 }
				loss.Torn++
			case dice.Float64() < keep:
				loss.Kept++
			default:
				fate = func() bool { return false }
				loss.Lost++
			}
		}

		replay(l, rec, data, fate)
	})
	return l, loss, nil
}

// replay applies the sectors of a write that survive. It asks once for each
// sector, in order.
func replay(l *Layer, rec record, data io.Reader, survives func() bool) {
	chunk := make([]byte, min(rec.Length, 1<<20))
	for off, end := rec.Offset, rec.Offset+int64(rec.Length); off < end; off += int64(len(chunk)) {
		chunk = chunk[:min(int64(len(chunk)), end-off)]
		must.Get(io.ReadFull(data, chunk))
		first := 0 // of the sectors that survive and are not written yet
		for s := 0; s <= len(chunk); s += Sector {
			if s < len(chunk) && survives() {
				continue
			}
			if first < s {
				must.OK(l.writeAt(chunk[first:s], off+int64(first)))
			}

			first = s + Sector
		}
	}
}

// each calls do with the records before a point. What do does not read of the
// data is skipped. It ends at the first error, with package must.
func (r *Recorder) each(end Position, do func(i Position, rec record, data io.Reader)) {
	in := bufio.NewReaderSize(io.NewSectionReader(r.log, 0, 1<<62), 1<<20)
	for i := range end {
		var rec record
		err := binary.Read(in, binary.BigEndian, &rec)
		must.That(err == nil, "record %d of the log: %w", i, err)
		data := &io.LimitedReader{R: in, N: int64(rec.Length)}
		do(i, rec, data)
		must.Get(in.Discard(int(data.N)))
	}
}
