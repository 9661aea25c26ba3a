// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// failure is the panic with which ok ends a step.
type failure struct{ error }

// ok ends the step if err is not nil.
func ok(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// get returns a value. It ends the step if err is not nil.
func get[V any](v V, err error) V {
	ok(err)
	return v
}

// that ends the step with a message unless is is true.
func that(is bool, format string, args ...any) {
	if !is {
		ok(fmt.Errorf(format, args...))
	}
}

// about does a step whose error begins with what it is about.
func about(what string, step func()) {
	err := attempt(step)
	that(err == nil, "%s: %w", what, err)
}

// attempt does a step, and returns the error that has ended it.
func attempt(step func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	step()

	return nil
}
