// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

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
