// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package must shortens the handling of errors in programs for contributors: a
// function that defers Catch returns the first error that OK or Get is given.
//
// The package must not know what the errors are about.
package must

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Run runs a program until its first error, which it prints after the program's
// name, and returns the exit code. ctx ends when the program is interrupted.
func Run(name string, program func(ctx context.Context)) (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	return ExitCode(name, func() { program(ctx) })
}

// ExitCode is Run for a program that an interrupt ends at once.
func ExitCode(name string, program func()) int {
	if err := Try(program); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		return 1
	}

	return 0
}

// failure is the panic of OK and Get.
type failure struct{ error }

// OK ends the function that defers Catch if err is not nil.
func OK(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Get returns a value. It ends the function that defers Catch if err is not
// nil.
func Get[V any](v V, err error) V {
	OK(err)
	return v
}

// Get2 is Get for two values.
func Get2[V, W any](v V, w W, err error) (V, W) {
	OK(err)
	return v, w
}

// That ends the function that defers Catch with a message unless ok is true.
// The arguments are evaluated in any case.
func That(ok bool, format string, args ...any) {
	if !ok {
		OK(fmt.Errorf(format, args...))
	}
}

// Try runs a function that ends at its first error, and returns that.
func Try(run func()) (err error) {
	defer Catch(&err)
	run()
	return nil
}

// About runs a function that ends at its first error, and makes that begin with
// what the function is about.
func About(what string, run func()) {
	err := Try(run)
	That(err == nil, "%s: %w", what, err)
}

// Catch makes a function return the error that OK or Get was given. The
// function defers it first, so that its other deferred calls run before and may
// set the error as well. A goroutine that calls OK or Get needs a Catch of its
// own.
func Catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case failure:
		if *err != nil && !errors.Is(r.error, *err) {
			r.error = errors.Join(r.error, *err)
		}

		*err = r.error
	default:
		panic(r)
	}
}
