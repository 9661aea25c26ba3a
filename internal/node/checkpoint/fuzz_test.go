// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

func put(t *testing.T, fsys atomicfile.FS, name, text string) {
	t.Helper()
	assert.NoError(t, atomicfile.Write(fsys, dir+"/"+name, []byte(text), 0o600))
}

// Whatever is in a record, the node gets a state that it can run with, and that
// is loaded as it was saved. A record that is damaged has a problem that names
// it, and the others stay.
func FuzzRecords(f *testing.F) {
	fsys, _ := saved(f, full())
	for i, name := range files {
		text := read(f, fsys, name)
		for _, seed := range []string{text, text[:len(text)/2], strings.Replace(text, "uid-", "../", 1)} {
			f.Add(byte(i), []byte(seed))
		}
	}

	f.Add(byte(1), []byte(`{"apiVersion":"state.evenkeel.dev/v2","kind":"CurrentConfig","content":null}`))
	f.Fuzz(func(t *testing.T, which byte, data []byte) {
		name := files[int(which)%len(files)]
		fsys, _ := saved(t, full())
		put(t, fsys, name, string(data))
		before := assert.Value(checkpoint.ReadOnly(fsys, dir, version))(t)

		store := open(t, fsys)
		state, problems := store.Load()
		assert.NoDiff(t, cmp.Diff(before.State, state), name, string(data), "is read in two ways")
		view, err := checkpoint.ReadOnly(fsys, dir, version)
		assert.That(t, err == nil && (len(problems) != 0 || len(view.Problems) == 0), "%s: %q: %v, %v", name, data, view.Problems, err)

		for _, p := range problems {
			assert.That(t, p.File != "" && p.What != "", "%s: %q has the problem %+v", name, data, p)
		}

		err = store.Save(state)
		assert.Must(t, err == nil, "%s: %q gave a state that cannot be saved: %v", name, data, err)

		again, problemsAgain := open(t, fsys).Load()
		if diff := cmp.Diff(state, again); diff != "" || len(problemsAgain) > len(problems) { // an empty file stays until it changes
			t.Errorf("%s: %q gave a state that is saved as another one: %s %v", name, data, diff, problemsAgain)
		}
	})
}

func FuzzGivenUp(f *testing.F) {
	for _, text := range []string{`{"by":"a","at":"2026-05-01T12:00:00Z","times":3}`, "", "null", "{}", `{"times":-1}`, "[]", `{"times":1e99}`} {
		f.Add([]byte(text))
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		fsys := crashfs.New()
		open(t, fsys)
		put(t, fsys, "given-up", string(data))
		g, err := checkpoint.LastGivenUp(fsys, dir)
		if err != nil {
			assert.That(t, g == (checkpoint.GivenUp{}) && strings.Contains(err.Error(), dir+"/given-up"), "%q is %+v, %v", data, g, err)

			return
		}

		assert.NoError(t, checkpoint.SetGivenUp(fsys, dir, g), string(data), "cannot be saved")
		again, err := checkpoint.LastGivenUp(fsys, dir)
		a, _ := json.Marshal(g)
		b, _ := json.Marshal(again)
		assert.That(t, err == nil && string(a) == string(b), "%s is read again as %s, %v", a, b, err)
	})
}
