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

// logOf returns a log as QEMU writes it. `make vm STEPS=cuts` compares what is
// read from QEMU's with the disk.
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

// cut returns the first letter of each sector after a cut behind all records,
// and fails if a sector is torn.
func cut(t *testing.T, l *Log, seed uint64, whole int64) (string, Loss) {
	t.Helper()
	d := disk(bytes.Repeat([]byte("."), 16*Sector))
	loss, err := l.Cut(len(l.records), seed, whole, d)
	assert.NoError(t, err)
	var letters strings.Builder
	for ; len(d) > 0; d = d[Sector:] {
		assert.Must(t, bytes.Count(d[:Sector], d[:1]) == Sector, "a sector is torn")
		letters.WriteByte(d[0])
	}

	return letters.String(), loss
}

func TestWhatWasFlushedSurvivesEveryCut(t *testing.T) {
	l := assert.Value(Read(logOf(t, written{0, "aaaa"}, written{2, "bb"}, written{6, "d"}, written{})))(t)
	for seed := range uint64(50) {
		got, loss := cut(t, l, seed, 0)
		assert.That(t, got == "aabb..d........." && loss == (Loss{Flushed: 4}), "seed %d: %s, %+v", seed, got, loss)
	}
}

func TestLaterWritesAreKeptLostOrTornAtSectors(t *testing.T) {
	l := assert.Value(Read(logOf(t, written{0, "aaaa"}, written{}, written{0, "bbbb"}, written{8, "cccc"})))(t)
	kept, lost, torn, reordered := 0, 0, 0, 0
	for seed := range uint64(200) {
		got, loss := cut(t, l, seed, 0)
		again, _ := cut(t, l, seed, 0)
		assert.Must(t, got == again && loss.Kept+loss.Lost+loss.Torn == 2 && loss.Flushed == 2, "seed %d: %s, %s, %+v", seed, got, again, loss)
		assert.Must(t, strings.Trim(got[:4], "ab") == "" && strings.Trim(got[8:12], "c.") == "", "seed %d: %s", seed, got)
		switch first, second := got[:4], got[8:12]; {
		case first == "bbbb":
			kept++
		case first != "aaaa":
			torn++
		case second == "cccc":
			reordered++ // the later write survived, the earlier one did not
		default:
			lost++
		}
	}

	assert.That(t, kept >= 20 && lost >= 20 && torn >= 10 && reordered >= 10,
		"kept %d, lost %d, torn %d, reordered %d", kept, lost, torn, reordered)
}

func TestWritesToTheFirstBytesAreNotTorn(t *testing.T) {
	l := assert.Value(Read(logOf(t, written{1, "aaaa"}, written{8, "bbbb"})))(t)
	torn := false
	for seed := range uint64(50) {
		got, loss := cut(t, l, seed, 8*Sector)
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

	_, err := l.Cut(4, 0, 0, disk{})
	assert.Error(t, err, "the log has 3 records, not 4")
}

func TestABrokenLogIsRefused(t *testing.T) {
	path := logOf(t, written{0, "aa"}, written{})
	whole := assert.Value(os.ReadFile(path))(t)
	for want, breaks := range map[string]func([]byte) []byte{
		"it is no log":              func(b []byte) []byte { b[0]++; return b },
		"record 0 of ":              func(b []byte) []byte { b[Sector+16] = 4; return b }, // a discard
		"record 1 of ":              func(b []byte) []byte { b[4*Sector+8] = 1; return b },
		"Sectors:18446744073709551": func(b []byte) []byte { return append(b[:Sector+8], bytes.Repeat([]byte{255}, Sector)...) },
		"unexpected EOF":            func(b []byte) []byte { return b[:4*Sector+8] },
		"EOF":                       func([]byte) []byte { return nil },
	} {
		assert.NoError(t, os.WriteFile(path, breaks(bytes.Clone(whole)), 0o600))
		assert.ErrorHas(t, assert.Err(Read(path)), want)
	}
}
