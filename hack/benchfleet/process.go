// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// child is a running program that dies with this process.
type child struct{ *localcluster.Process }

// start starts a program with its output in a file, and with further
// environment variables.
func start(log string, env []string, argv ...string) *child {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	// SIGTERM, so that the program can clean up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}

	return &child{must.Get(localcluster.StartProcess(filepath.Base(argv[0]), log, cmd))}
}

// says waits until the output contains words.
func (c *child) says(ctx context.Context, text string, within time.Duration) {
	eventually(ctx, within, 50*time.Millisecond, c.Done, func() {
		must.That(strings.Contains(c.Said(), text), "%s has not said %q; its last words: %s", c.Name, text, c.Tail())
	})
}

// stop ends the program, and returns its error.
func (c *child) stop() error {
	_ = c.Stop(2 * time.Minute) // one that was killed has no success
	if state := c.Cmd.ProcessState; !state.Success() {
		return fmt.Errorf("%s: %s: %s", c.Name, state, c.Tail())
	}

	return nil
}

// eventually calls check until it does not fail. It fails if over is closed, or
// the time is over.
func eventually(ctx context.Context, within, every time.Duration, over <-chan struct{}, check func()) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for err := must.Try(check); err != nil; err = must.Try(check) {
		select {
		case <-ctx.Done():
			must.OK(fmt.Errorf("%w: %w", ctx.Err(), err))
		case <-over:
			must.OK(fmt.Errorf("it has ended: %w", err))
		case <-tick.C:
		}
	}
}
