// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package must_test

import (
	"context"
	"errors"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/must"
)

func TestAFunctionEndsAtTheFirstError(t *testing.T) {
	a := errors.New("a")
	for name, run := range map[string]func() error{
		"OK":       func() error { must.OK(a); return nil },
		"Get":      func() error { return errors.New(must.Get("b", a)) },
		"Get2":     func() error { b, c := must.Get2("b", "c", a); return errors.New(b + c) },
		"That":     func() error { must.That(true, "b"); must.That(false, "%w", a); return nil },
		"About":    func() error { return errors.Unwrap(must.Try(func() { must.About("b", func() { must.OK(a) }) })) },
		"Try":      func() error { return errors.Join(must.Try(func() {}), must.Try(func() { must.OK(a) })) },
		"returned": func() error { must.OK(nil); return errors.New(must.Get("a", nil)) },
	} {
		err := func() (err error) {
			defer must.Catch(&err)
			return run()
		}()
		assert.Error(t, err, "a", name)
	}
}

func TestTheErrorOfACleanUpIsAdded(t *testing.T) {
	err := func() (err error) {
		defer must.Catch(&err)
		defer func() { err = errors.Join(err, errors.New("clean up")) }()
		must.OK(errors.New("first"))
		return nil
	}()
	assert.Error(t, err, "first\nclean up")
}

func TestAnErrorThatIsExplainedIsNotRepeated(t *testing.T) {
	err := func() (err error) {
		defer must.Catch(&err)
		err = errors.New("a")
		must.That(err == nil, "b: %w", err)
		return nil
	}()
	assert.Error(t, err, "b: a")
}

func TestAProgramThatFailsHasAnExitCode(t *testing.T) {
	assert.Equal(t, must.Run("passes", func(context.Context) {}), 0)
	assert.Equal(t, must.Run("fails", func(context.Context) { must.OK(errors.New("as the test wants")) }), 1)
}

func TestAPanicIsNoError(t *testing.T) {
	defer func() { assert.Equal(t, recover(), any("panic"), "the panic") }()
	_ = func() (err error) {
		defer must.Catch(&err)
		panic("panic")
	}()
}
