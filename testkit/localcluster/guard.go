// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/evenkeel/evenkeel/testkit/localcluster/sweep"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// guard is a process that cleans up after this process if this process cannot.
type guard struct {
	cmd  *exec.Cmd
	pipe *os.File
}

// startGuard starts the guard of the cluster's directory in its own session, so
// signals to this process or its terminal do not reach the guard.
func (c *Cluster) startGuard(ctx context.Context) (_ *guard, err error) {
	defer must.Catch(&err)

	path := must.Get(c.buildHelper(ctx, "guard"))
	log := must.Get(os.OpenFile(c.logFile("guard"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644))
	defer log.Close()
	read, write := must.Get2(os.Pipe())
	defer read.Close()
	after := "keep"
	if c.temporary {
		after = "remove"
	}

	cmd := exec.Command(path, c.dir, after)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = read, log, log
	cmd.ExtraFiles = []*os.File{c.lock} // the directory stays locked until the guard has ended
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the guard: %w", err), write.Close())
	}

	return &guard{cmd: cmd, pipe: write}, nil
}

// dismiss ends the guard: immediately if everything is clean, otherwise after
// the guard has cleaned up.
func (g *guard) dismiss(clean bool) error {
	var err error
	if clean {
		_, err = g.pipe.WriteString(sweep.Done)
	}
	if err := errors.Join(err, g.pipe.Close(), g.cmd.Wait()); err != nil {
		return fmt.Errorf("dismiss the guard: %w", err)
	}

	return nil
}

// buildHelper compiles a program of this package into the tools' directory,
// unless it is newer than its source.
func (c *Cluster) buildHelper(ctx context.Context, name string) (_ string, err error) {
	defer must.Catch(&err)

	target := c.tool("localcluster-" + name)
	testkit := filepath.Join(c.module, "testkit")
	source := filepath.Join(testkit, "localcluster")
	if must.Get(newer(target, filepath.Join(source, name), filepath.Join(source, "sweep"),
		filepath.Join(testkit, "must"), filepath.Join(testkit, "procs"))) {
		return target, nil
	}

	// Another test may build or run the program at the same time, so replace
	// the file atomically.
	scratch := must.Get(os.MkdirTemp(filepath.Dir(target), ".localcluster-"))
	defer os.RemoveAll(scratch)
	built := filepath.Join(scratch, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", built, "./testkit/localcluster/"+name)
	cmd.Dir = c.module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}

	return target, os.Rename(built, target)
}

// newer reports whether target exists and is newer than all files in the source
// directories.
func newer(target string, sources ...string) (fresh bool, err error) {
	defer must.Catch(&err)

	made, err := os.Stat(target)
	if err != nil {
		return false, nil
	}

	fresh = true
	for _, source := range sources {
		for _, entry := range must.Get(os.ReadDir(source)) {
			fresh = fresh && !must.Get(entry.Info()).ModTime().After(made.ModTime())
		}
	}

	return fresh, nil
}
