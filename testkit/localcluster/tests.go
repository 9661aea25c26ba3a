// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// startTestTimeout limits the time to start and prepare a cluster that tests
// share.
const startTestTimeout = 10 * time.Minute

// RunTests runs the tests of a TestMain with a cluster that they share: it
// borrows or starts the cluster, calls run, which prepares the cluster and runs
// the tests, stops the cluster, and returns run's exit code. After an error it
// prints the error and returns 1. The context is for the preparation.
func RunTests(o Options, run func(context.Context, *Cluster) (code int, err error)) int {
	code, err := forTests(o, run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	return code
}

func forTests(o Options, run func(context.Context, *Cluster) (int, error)) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTestTimeout)
	defer cancel()
	c, err := Borrow(ctx, o)
	if err != nil {
		return 0, err
	}

	defer func() { err = errors.Join(err, c.Stop()) }()

	return run(ctx, c)
}

// RunWithPool runs the tests of a package that starts several clusters one
// after another: if the environment names no pool, it serves one until the
// tests have ended. It returns their exit code.
func RunWithPool(m *testing.M) int {
	code, err := withPool(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}

	return code
}

func withPool(run func() int) (code int, err error) {
	defer must.Catch(&err)

	if poolSocket() != "" {
		return run(), nil
	}

	dir, err := os.MkdirTemp("", "evk-pool-")
	if err != nil {
		return 0, fmt.Errorf("make the directory of a pool: %w", err)
	}

	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	socket := filepath.Join(dir, "socket")
	pool := must.Get(NewPool(socket, Options{}))
	must.OK(os.Setenv(PoolEnv, socket))
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- pool.Serve(ctx) }()
	defer func() { stop(); err = errors.Join(err, <-served) }()

	return run(), nil
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
	t.Cleanup(func() {
		assert.OK(t, c.Stop())
	})

	return c
}

// FreeAddressForTest is FreeAddress, and fails the test if there is none.
func FreeAddressForTest(t testing.TB) string {
	t.Helper()
	address := assert.Value(FreeAddress())(t)
	return address
}
