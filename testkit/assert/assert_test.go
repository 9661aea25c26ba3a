// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package assert

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
)

// recorder is a test that records how it fails.
type recorder struct{ said string }

func (*recorder) Helper()                        {}
func (r *recorder) Errorf(f string, args ...any) { r.said += "error: " + fmt.Sprintf(f, args...) }
func (r *recorder) Fatalf(f string, args ...any) { r.said += "fatal: " + fmt.Sprintf(f, args...) }

func TestEachAssertionFailsWithItsMessage(t *testing.T) {
	missing := fmt.Errorf("read a: %w", fs.ErrNotExist)
	for name, tt := range map[string]struct {
		passes, fails func(T)
		want          string
	}{
		"NoError":          {func(t T) { NoError(t, nil) }, func(t T) { NoError(t, missing, "file", 1) }, "fatal: file 1: read a: file does not exist"},
		"OK":               {func(t T) { OK(t, nil) }, func(t T) { OK(t, missing, "file", 1) }, "error: file 1: read a: file does not exist"},
		"Value":            {func(t T) { Value(1, nil)(t) }, func(t T) { Value(1, missing)(t, "x") }, "fatal: x: read a: file does not exist"},
		"Error, no error":  {func(t T) { Error(t, errors.New("a"), "a") }, func(t T) { Error(t, nil, "a") }, "error: got the error <nil>\nwant a"},
		"Error, another":   {func(t T) { Error(t, missing, missing.Error()) }, func(t T) { Error(t, missing, "read a") }, "error: got the error read a: file does not exist\nwant read a"},
		"ErrorHas":         {func(t T) { ErrorHas(t, missing, "a: file") }, func(t T) { ErrorHas(t, missing, "b", "x") }, "error: x: got the error read a: file does not exist\nwant one with b"},
		"ErrorHas, none":   {func(t T) { ErrorHas(t, missing, "") }, func(t T) { ErrorHas(t, nil, "") }, "error: got the error <nil>\nwant one with "},
		"Is":               {func(t T) { Is(t, missing, fs.ErrNotExist) }, func(t T) { Is(t, nil, fs.ErrNotExist) }, "error: got the error <nil>, want one that is file does not exist"},
		"Equal, texts":     {func(t T) { Equal(t, "a", "a") }, func(t T) { Equal(t, "a", "b", "x") }, "error: x: got  \"a\"\nwant \"b\""},
		"Equal, numbers":   {func(t T) { Equal(t, 1, 1) }, func(t T) { Equal(t, 1, 2) }, "error: got 1, want 2"},
		"Returns":          {func(t T) { Returns(t, 1)(1, nil) }, func(t T) { Returns(t, 1)(2, nil) }, "error: got 2, want 1"},
		"Returns an error": {func(t T) { Returns(t, 1)(1, nil) }, func(t T) { Returns(t, 1)(1, missing) }, "error: got the error read a: file does not exist, want 1"},
		"NoDiff":           {func(t T) { NoDiff(t, "") }, func(t T) { NoDiff(t, "-a", "x") }, "error: x: -want +got\n-a"},
		"That":             {func(t T) { That(t, true, "no") }, func(t T) { That(t, false, "no %d", 1) }, "error: no 1"},
		"Must":             {func(t T) { Must(t, true, "no") }, func(t T) { Must(t, false, "no %d", 1) }, "fatal: no 1"},
		"Unless":           {func(t T) { OK(t, Unless(true, "no")) }, func(t T) { OK(t, Unless(false, "no %d", 1)) }, "error: no 1"},
	} {
		good, bad := &recorder{}, &recorder{}
		tt.passes(good)
		tt.fails(bad)
		if good.said != "" || bad.said != tt.want {
			t.Errorf("%s: passes with %q, fails with %q; want %q", name, good.said, bad.said, tt.want)
		}
	}

	if err := Err(1, missing); err != missing {
		t.Errorf("Err returns %v", err)
	}

	asked := 0
	Eventually(t, "the third time", func() bool { asked++; return asked == 3 })
	if asked != 3 {
		t.Errorf("asked %d times", asked)
	}
}
