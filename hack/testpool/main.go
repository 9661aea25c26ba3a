// Command testpool runs a command, such as go test, with a pool of control planes from which tests borrow:
//
//	go run ./hack/testpool go test ./...
//
// It ends with the command's exit code. The pool must not know the tests.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: testpool COMMAND [ARGUMENT...]")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := run(ctx, os.Args[1:])
	if ended, ok := err.(*exec.ExitError); ok && ended.ExitCode() > 0 { //nolint:errorlint // no other error is joined to it
		os.Exit(ended.ExitCode()) // the command has said why
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testpool:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, argv []string) (err error) {
	dir, err := os.MkdirTemp("", "evk-pool-")
	if err != nil {
		return fmt.Errorf("make the pool's directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return fmt.Errorf("make the pool's log: %w", err)
	}
	defer log.Close()
	socket := filepath.Join(dir, "socket")
	pool, err := localcluster.NewPool(socket, localcluster.Options{Log: log})
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- pool.Serve(serving) }()
	defer func() { stop(); err = errors.Join(err, <-served) }()

	// An interrupt stops the command first, and then the control planes that it uses. It goes to the whole process group, because go test
	// does not pass it on to the tests.
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), localcluster.PoolEnv+"="+socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = time.Minute
	err = cmd.Run()
	if n := pool.Started(); n > 0 {
		fmt.Fprintf(os.Stderr, "testpool: started %d control planes\n", n)
	}
	return err
}
