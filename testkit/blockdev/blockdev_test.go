// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package blockdev

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// written is a part of a log: a flush, or a write of sectors that consist of one
// letter each.
type written struct {
	sector uint64
	data   string // empty: a flush
}

// logOf returns a log as QEMU writes it.
func logOf(t *testing.T, parts ...written) string {
	t.Helper()
	var log bytes.Buffer
	put := func(v any) {
		assert.NoError(t, binary.Write(&log, binary.LittleEndian, v))
		log.Write(make([]byte, (Sector-log.Len()%Sector)%Sector))
	}
	put(head{magic, 1, uint64(len(parts)), Sector})
	for _, p := range parts {
		e := entry{Sector: p.sector, Sectors: uint64(len(p.data))}
		if p.data == "" {
			e.Flags = flush
		}

		put(e)
		for _, letter := range []byte(p.data) {
			put(bytes.Repeat([]byte{letter}, Sector))
		}
	}

	path := filepath.Join(t.TempDir(), "log")
	assert.NoError(t, os.WriteFile(path, log.Bytes(), 0o600))

	return path
}

// disk is an image with 16 sectors.
type disk []byte

func (d disk) WriteAt(p []byte, off int64) (int, error) { return copy(d[off:], p), nil }

// cut returns the first letter of each sector after a cut, and fails if a sector
// is torn.
func cut(t *testing.T, l *Log, at int, seed uint64, whole int64) (string, Loss) {
	t.Helper()
	d := disk(bytes.Repeat([]byte("."), 16*Sector))
	loss, err := l.Cut(at, seed, whole, d)
	assert.NoError(t, err)
	var letters strings.Builder
	for ; len(d) > 0; d = d[Sector:] {
		assert.Must(t, bytes.Count(d[:Sector], d[:1]) == Sector, "a sector is torn")
		letters.WriteByte(d[0])
	}

	return letters.String(), loss
}

// testdata/qemu.log is of QEMU 7.2, which wrote two sectors, flushed, wrote
// another, and ended.
func TestALogOfQEMUIsRead(t *testing.T) {
	const path = "testdata/qemu.log"
	l := assert.Value(Read(path))(t)
	got, loss := cut(t, l, 4, 0, 0)
	assert.That(t, got == ".aa.....b......." && loss == (Loss{Flushed: 4}), "%s, %+v", got, loss)
	assert.Equal(t, l.Size(4), assert.Value(os.Stat(path))(t).Size())
}

func TestWhatWasFlushedSurvivesEveryCut(t *testing.T) {
	l := assert.Value(Read(logOf(t, written{0, "aaaa"}, written{2, "bb"}, written{6, "d"}, written{}, written{0, "c"}, written{})))(t)
	lost := 0
	for seed := range uint64(50) {
		got, loss := cut(t, l, 4, seed, 0)
		assert.That(t, got == "aabb..d........." && loss == (Loss{Flushed: 4}), "seed %d: %s, %+v", seed, got, loss)
		if got, _ := cut(t, l, 5, seed, 0); got[0] == 'a' {
			lost++
		}
	}

	assert.That(t, lost >= 5, "a write before its flush was lost in %d of 50 cuts", lost)
	for _, at := range []int{-1, 7} {
		assert.ErrorHas(t, assert.Err(l.Cut(at, 0, 0, disk{})), "the log has 6 records, not ", at)
	}
}

func TestALaterWriteIsKeptLostOrTornAtSectors(t *testing.T) {
	l := assert.Value(Read(logOf(t, written{4, "abcd"})))(t)
	torn := map[string]bool{}
	for seed := range uint64(1000) {
		got, loss := cut(t, l, 1, seed, 0)
		again, _ := cut(t, l, 1, seed, 0)
		assert.Must(t, got == again, "seed %d: %s, then %s", seed, got, again)
		switch part := got[4:8]; loss {
		case Loss{Kept: 1}:
			assert.Equal(t, part, "abcd", "kept")
		case Loss{Lost: 1}:
			assert.Equal(t, part, "....", "lost")
		case Loss{Torn: 1}:
			torn[part] = true
			for i, sector := range part {
				assert.Must(t, sector == '.' || sector == rune("abcd"[i]), "torn: %s", part)
			}
		default:
			t.Fatalf("seed %d: %+v", seed, loss)
		}
	}

	assert.Equal(t, len(torn), 16, "ways to tear it")
}

func TestDisksDifferInWhatTheyKeep(t *testing.T) {
	var parts []written
	for sector := range uint64(16) {
		parts = append(parts, written{sector, "a"})
	}

	l := assert.Value(Read(logOf(t, parts...)))(t)
	var total Loss
	fewKept, fewLost, reordered := 0, 0, 0
	for seed := range uint64(60) {
		got, loss := cut(t, l, 16, seed, 0)
		total.Torn += loss.Torn
		if loss.Kept < 3 {
			fewKept++
		}
		if loss.Lost < 3 {
			fewLost++
		}
		if strings.Contains(got, ".a") {
			reordered++ // a later write survived, an earlier one did not
		}
	}

	assert.That(t, fewKept >= 10 && fewLost >= 10 && reordered >= 20 && total.Torn > 130 && total.Torn < 260,
		"of 60 disks, %d keep little, %d much; on %d the order is another; %d of 960 writes are torn", fewKept, fewLost, reordered, total.Torn)
}

func TestWritesToTheFirstBytesAreNotTorn(t *testing.T) {
	l := assert.Value(Read(logOf(t, written{1, "aaaa"}, written{8, "bbbb"})))(t)
	torn := false
	for seed := range uint64(50) {
		got, loss := cut(t, l, 2, seed, 8*Sector)
		assert.That(t, got[1:5] == "aaaa" || got[1:5] == "....", "seed %d: %s", seed, got)
		torn = torn || loss.Torn > 0
	}

	assert.That(t, torn, "no other write was torn")
}

func TestASizeOfTheLogIsANumberOfRecords(t *testing.T) {
	l := assert.Value(Read(logOf(t, written{0, "aa"}, written{}, written{1, "b"})))(t)
	for sectors, want := range []int{0, 0, 0, 0, 1, 2, 2, 3, 3} {
		assert.Equal(t, l.Records(int64(sectors)*Sector), want, sectors, "sectors")
	}
	for records, sectors := range []int64{1, 4, 5, 7} {
		assert.Equal(t, l.Size(records), sectors*Sector, records, "records")
	}
}

func TestABrokenLogIsRefused(t *testing.T) {
	path := logOf(t, written{0, "aa"}, written{})
	whole := assert.Value(os.ReadFile(path))(t)
	for _, tt := range []struct {
		at   int
		is   byte
		want string
	}{
		{0, 0, "it is no log"}, {8, 2, "it is no log"}, {25, 3, "it is no log"},
		{Sector + 7, 255, "record 0 of "}, {Sector + 15, 255, "record 0 of "}, {Sector + 16, 2, "record 0 of "},
		{Sector + 24, 1, "record 0 of "}, {4*Sector + 16, 4, "record 1 of "},
	} {
		broken := bytes.Clone(whole)
		broken[tt.at] = tt.is
		assert.NoError(t, os.WriteFile(path, broken, 0o600))
		assert.ErrorHas(t, assert.Err(Read(path)), tt.want, "byte", tt.at)
	}

	assert.NoError(t, os.WriteFile(path, nil, 0o600))
	assert.ErrorHas(t, assert.Err(Read(path)), path+" at byte 0: EOF")
	for sectors, want := range map[int]int{1: 0, 3: 0, 4: 1} { // QEMU was killed
		assert.NoError(t, os.WriteFile(path, whole[:sectors*Sector+Sector/2], 0o600))
		assert.Equal(t, len(assert.Value(Read(path))(t).records), want, sectors, "sectors")
	}
}
