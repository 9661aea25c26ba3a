// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command testpool runs a command, such as go test, with a pool of control
// planes from which tests borrow:
//
//	go run ./hack/testpool go test ./...
//
// It ends with the command's exit code.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: testpool COMMAND [ARGUMENT...]")
		os.Exit(2)
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	code, err := run(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "testpool:", err)
		code = max(code, 1)
	}

	os.Exit(code)
}

// run runs the command and returns its exit code. The error is about the pool,
// or says why the command has no exit code.
func run(ctx context.Context, argv []string) (code int, err error) {
	defer must.Catch(&err)

	pool := must.Get(localcluster.StartPool())
	defer func() { err = errors.Join(err, pool.Stop()) }()

	// An interrupt stops the command first, and then the control planes that it
	// uses. It goes to the whole process group, because go test does not pass
	// it on to the tests.
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), localcluster.PoolEnv+"="+pool.Socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	err = cmd.Run()
	if n := pool.Started(); n > 0 {
		fmt.Fprintf(os.Stderr, "testpool: started %d control planes\n", n)
	}

	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.Exited() {
		return ended.ExitCode(), nil // it has said why
	}

	return 0, err
}
