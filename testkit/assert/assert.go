// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package assert has the checks that most tests repeat. It must not know what
// it checks.
package assert

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// T is a test, or a run of a property test or of a fuzz target.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// NoError ends the test if err is not nil. The message begins with what the
// error is about.
func NoError(t T, err error, about ...any) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s%v", prefix(about), err)
	}
}

// OK fails the test if err is not nil, and lets it continue. The message begins
// with what the error is about.
func OK(t T, err error, about ...any) {
	t.Helper()
	if err != nil {
		t.Errorf("%s%v", prefix(about), err)
	}
}

// Value returns a function that returns a value, and ends the test if err is
// not nil: assert.Value(os.Open(name))(t).
func Value[V any](v V, err error) func(t T, about ...any) V {
	return func(t T, about ...any) V {
		t.Helper()
		NoError(t, err, about...)
		return v
	}
}

// Error fails the test unless err has exactly these words.
func Error(t T, err error, words string, about ...any) {
	t.Helper()
	if err == nil || err.Error() != words {
		t.Errorf("%sgot the error %v\nwant %s", prefix(about), err, words)
	}
}

// ErrorHas fails the test unless err contains these words.
func ErrorHas(t T, err error, words string, about ...any) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("%sgot the error %v\nwant one with %s", prefix(about), err, words)
	}
}

// Is fails the test unless err is kind, as errors.Is says.
func Is(t T, err, kind error, about ...any) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%sgot the error %v, want one that is %v", prefix(about), err, kind)
	}
}

// Returns returns a function that fails the test unless a value is want and its
// error nil.
func Returns[V comparable](t T, want V, about ...any) func(V, error) {
	return func(got V, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%sgot the error %v, want %+v", prefix(about), err, want)
			return
		}

		Equal(t, got, want, about...)
	}
}

// Err returns the error of a function that has one more result.
func Err[V any](_ V, err error) error { return err }

// Equal fails the test unless got is want.
func Equal[V comparable](t T, got, want V, about ...any) {
	t.Helper()
	if got == want {
		return
	}

	if _, isText := any(got).(string); isText {
		t.Errorf("%sgot  %q\nwant %q", prefix(about), any(got), any(want))
		return
	}

	t.Errorf("%sgot %+v, want %+v", prefix(about), got, want)
}

// NoDiff fails the test if diff, the result of cmp.Diff(want, got), is not
// empty.
func NoDiff(t T, diff string, about ...any) {
	t.Helper()
	if diff != "" {
		t.Errorf("%s-want +got\n%s", prefix(about), diff)
	}
}

// That fails the test with a message unless ok is true. The arguments are
// evaluated in any case.
func That(t T, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Errorf(format, args...)
	}
}

// Must ends the test with a message unless ok is true. The arguments are
// evaluated in any case.
func Must(t T, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Fatalf(format, args...)
	}
}

// Unless returns an error with a message unless ok is true, for conditions that
// a test awaits. The arguments are evaluated in any case.
func Unless(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}

	return fmt.Errorf(format, args...)
}

// Eventually polls until so returns true, and ends the test if it does not
// within a minute, which is long because the machine may be busy.
func Eventually(t T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); <-time.After(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func prefix(about []any) string {
	if len(about) == 0 {
		return ""
	}

	return strings.TrimSuffix(fmt.Sprintln(about...), "\n") + ": "
}
