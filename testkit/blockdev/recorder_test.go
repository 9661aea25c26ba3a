// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package blockdev

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// size of the disks of these tests, in bytes.
const size = 64 * Sector

// sectors returns data in which each sector consists of one letter.
func sectors(letters string) []byte {
	var data []byte
	for _, l := range []byte(letters) {
		data = append(data, bytes.Repeat([]byte{l}, Sector)...)
	}

	return data
}

// letters is the reverse of sectors; '?' is a sector with different bytes.
func letters(t *testing.T, s io.ReaderAt) string {
	t.Helper()
	data := make([]byte, size)
	assert.NoError(t, assert.Err(s.ReadAt(data, 0)))
	var out []byte
	for at := 0; at < size; at += Sector {
		sector := data[at : at+Sector]
		switch {
		case !bytes.Equal(sector, bytes.Repeat(sector[:1], Sector)):
			out = append(out, '?')
		case sector[0] == 0:
			out = append(out, '0')
		default:
			out = append(out, sector[0])
		}
	}

	return string(out)
}

// newRecorder returns a disk of which each sector consists of dots.
func newRecorder(t *testing.T) *Recorder {
	t.Helper()
	dir := t.TempDir()
	base := filepath.Join(dir, "base")
	assert.NoError(t, os.WriteFile(base, sectors(strings.Repeat(".", 64)), 0o600))
	file := assert.Value(os.Open(base))(t)
	t.Cleanup(func() { _ = file.Close() })

	return recordOn(t, assert.Value(Image(file))(t), filepath.Join(dir, "disk"))
}

func recordOn(t *testing.T, below Source, path string) *Recorder {
	t.Helper()
	r := assert.Value(Record(below, path))(t)
	t.Cleanup(func() { assert.OK(t, r.Close()) })

	return r
}

func (r *Recorder) put(t *testing.T, sector int64, data string, durable bool) {
	t.Helper()
	assert.NoError(t, r.Write(sectors(data), sector*Sector, durable))
}

func cut(t *testing.T, r *Recorder, at Position, seed uint64, whole int64) (*Layer, Loss) {
	t.Helper()
	l, loss, err := r.Cut(at, seed, whole, filepath.Join(t.TempDir(), "cut"))
	assert.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })

	return l, loss
}

// padded fills a disk's description with dots.
func padded(s string) string { return s + strings.Repeat(".", 64-len(s)) }

func TestWhatWasFlushedSurvivesEveryCut(t *testing.T) {
	r := newRecorder(t)
	r.put(t, 0, "aaaa", false)
	r.put(t, 2, "bb", false)
	r.put(t, 6, "d", false)
	assert.NoError(t, r.Flush())
	flushed := r.Position()
	r.put(t, 0, "cccccccc", false)
	for seed := range uint64(50) {
		l, loss := cut(t, r, flushed, seed, 0)
		got := letters(t, l)
		assert.That(t, got == padded("aabb..d") && loss == (Loss{Flushed: flushed}), "seed %d: %s, %+v", seed, got, loss)
	}

	assert.Equal(t, letters(t, r), padded("cccccccc"), "before the cut")
}

func TestWritesToTheFirstBytesAreNotTorn(t *testing.T) {
	r := newRecorder(t)
	r.put(t, 1, "aaaa", false)
	r.put(t, 8, "bbbb", false)
	torn := false
	for seed := range uint64(50) {
		l, loss := cut(t, r, r.Position(), seed, 8*Sector)
		first := letters(t, l)[1:5]
		assert.That(t, first == "aaaa" || first == "....", "seed %d: %s", seed, first)
		torn = torn || loss.Torn > 0
	}

	assert.That(t, torn, "no other write was torn")
}

func TestLaterWritesAreKeptLostOrTornAtSectors(t *testing.T) {
	r := newRecorder(t)
	r.put(t, 0, "aaaa", false)
	assert.NoError(t, r.Flush())
	r.put(t, 0, "bbbb", false)
	r.put(t, 8, "cccc", false)
	kept, lost, torn, reordered := 0, 0, 0, 0
	for seed := range uint64(200) {
		l, loss := cut(t, r, r.Position(), seed, 0)
		got := letters(t, l)
		assert.Must(t, loss.Kept+loss.Lost+loss.Torn == 2 && loss.Flushed == 2, "seed %d: %+v", seed, loss)
		for _, sector := range got[:4] {
			assert.Must(t, sector == 'a' || sector == 'b', "seed %d: %s", seed, got)
		}

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

func TestADurableWriteSurvivesWithoutAFlushAndMakesNothingElseDurable(t *testing.T) {
	r := newRecorder(t)
	r.put(t, 0, "a", false)
	r.put(t, 1, "b", true)
	lost := 0
	for seed := range uint64(100) {
		l, _ := cut(t, r, r.Position(), seed, 0)
		got := letters(t, l)
		assert.Must(t, got[1] == 'b', "seed %d: %s", seed, got)
		if got[0] == '.' {
			lost++
		}
	}

	assert.That(t, lost >= 20, "an unflushed write was lost in %d of 100 cuts", lost)
}

func TestADiskContinuesAfterACut(t *testing.T) {
	r := newRecorder(t)
	r.put(t, 0, "a", true)
	l, _ := cut(t, r, r.Position(), 1, 0)
	r.put(t, 0, "z", true) // of the run that the cut does not see
	next := recordOn(t, l, filepath.Join(t.TempDir(), "next"))
	next.put(t, 1, "b", true)
	after, _ := cut(t, next, next.Position(), 1, 0)
	assert.Equal(t, letters(t, after), padded("ab"))
	_, _, err := r.Cut(r.Position()+1, 1, 0, filepath.Join(t.TempDir(), "cut"))
	assert.That(t, err != nil && err.Error() == "the log has 2 records, not 3", "a cut behind the end: %v", err)
}

func TestOverwriteChangesAnImage(t *testing.T) {
	r := newRecorder(t)
	r.put(t, 3, "abc", true)
	l, _ := cut(t, r, r.Position(), 1, 0)
	image := assert.Value(os.Create(filepath.Join(t.TempDir(), "image")))(t)
	defer image.Close()
	assert.NoError(t, assert.Err(image.Write(sectors(padded("")))))
	assert.NoError(t, l.Overwrite(image))
	assert.Equal(t, letters(t, image), padded("...abc"))
}
