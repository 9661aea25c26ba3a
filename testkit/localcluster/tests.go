// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// startTestTimeout limits the time to start and prepare a cluster that tests
// share.
const startTestTimeout = 10 * time.Minute

// RunTests runs the tests of a TestMain with a cluster that they share: it
// borrows or starts the cluster, calls run, which prepares the cluster and runs
// the tests, stops the cluster, and returns run's exit code. After an error it
// prints the error and returns 1. The context is for the preparation.
func RunTests(o Options, run func(context.Context, *Cluster) (code int, err error)) int {
	return exitCode(func() (code int, err error) {
		ctx, cancel := context.WithTimeout(context.Background(), startTestTimeout)
		defer cancel()
		c, err := Borrow(ctx, o)
		if err != nil {
			return 0, err
		}

		defer func() { err = errors.Join(err, c.Stop()) }()

		return run(ctx, c)
	})
}

// RunWithPool runs the tests of a package that starts several clusters one
// after another: if the environment names no pool, it serves one until the
// tests have ended. It returns their exit code.
func RunWithPool(m *testing.M) int {
	if poolSocket() != "" {
		return m.Run()
	}

	return exitCode(func() (code int, err error) {
		pool, err := StartPool()
		if err != nil {
			return 0, err
		}

		defer func() { err = errors.Join(err, pool.Stop()) }()
		if err := os.Setenv(PoolEnv, pool.Socket); err != nil {
			return 0, err
		}

		return m.Run(), nil
	})
}

// exitCode prints the error of run, if there is one.
func exitCode(run func() (code int, err error)) int {
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	return code
}

// SkipShort skips a test that needs a server, programs of Kubernetes or root,
// or that waits for many seconds, if -short is set, as make check does.
func SkipShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("not with -short")
	}
}

// StartForTest borrows or starts a cluster for one test, and stops it when the
// test ends.
func StartForTest(t testing.TB, o Options) *Cluster {
	t.Helper()
	SkipShort(t)
	ctx, cancel := context.WithTimeout(t.Context(), startTestTimeout)
	defer cancel()
	c := assert.Value(Borrow(ctx, o))(t)
	t.Cleanup(func() { assert.OK(t, c.Stop()) })

	return c
}

// FreeAddressForTest is FreeAddress, and fails the test if there is none.
func FreeAddressForTest(t testing.TB) string {
	t.Helper()
	return assert.Value(FreeAddress())(t)
}
