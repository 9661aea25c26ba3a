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
)

// child is a running program that dies with this process.
type child struct{ *localcluster.Process }

// start starts a program with its output in a file, and with further
// environment variables.
func start(log string, env []string, argv ...string) (*child, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	// SIGTERM, so that the program can clean up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	p, err := localcluster.StartProcess(filepath.Base(argv[0]), log, cmd)

	return &child{p}, err
}

// says waits until the output contains words.
func (c *child) says(ctx context.Context, text string, within time.Duration) error {
	return eventually(ctx, within, 50*time.Millisecond, func() error {
		if !strings.Contains(c.Said(), text) {
			return fmt.Errorf("%s has not said %q; its last words: %s", c.Name, text, c.Tail())
		}

		return nil
	}, c.Done)
}

// stop ends the program, and returns its error.
func (c *child) stop() error {
	_ = c.Stop(2 * time.Minute) // one that was killed has no success
	if state := c.Cmd.ProcessState; !state.Success() {
		return fmt.Errorf("%s: %s: %s", c.Name, state, c.Tail())
	}

	return nil
}

// eventually calls try until it succeeds, over is closed, or the time is over.
func eventually(ctx context.Context, within, every time.Duration, try func() error, over <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-over:
			return fmt.Errorf("it has ended: %w", err)
		case <-tick.C:
		}
	}
}
