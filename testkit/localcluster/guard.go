// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/evenkeel/evenkeel/testkit/localcluster/sweep"
)

// guard is a process that cleans up after this process if this process cannot.
type guard struct {
	cmd  *exec.Cmd
	pipe *os.File
}

// startGuard starts the guard of the cluster's directory in its own session, so
// signals to this process or its terminal do not reach the guard.
func (c *Cluster) startGuard(ctx context.Context) (*guard, error) {
	path, err := c.buildHelper(ctx, "guard")
	if err != nil {
		return nil, err
	}

	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}

	defer read.Close()
	log, err := os.OpenFile(c.logFile("guard"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the guard: %w", err), write.Close())
	}

	defer log.Close()
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
func (c *Cluster) buildHelper(ctx context.Context, name string) (string, error) {
	target := c.tool("localcluster-" + name)
	source := filepath.Join(c.module, "testkit", "localcluster")
	fresh, err := newer(target, filepath.Join(source, name), filepath.Join(source, "sweep"))
	if err != nil {
		return "", fmt.Errorf("build %s: %w", name, err)
	}
	if fresh {
		return target, nil
	}

	// Another test may build or run the program at the same time, so replace
	// the file atomically.
	scratch, err := os.MkdirTemp(c.tools, ".localcluster-")
	if err != nil {
		return "", fmt.Errorf("build %s: %w", name, err)
	}

	defer os.RemoveAll(scratch)
	built := filepath.Join(scratch, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", built, "./testkit/localcluster/"+name)
	cmd.Dir = c.module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	if err := os.Rename(built, target); err != nil {
		return "", fmt.Errorf("build %s: %w", name, err)
	}

	return target, nil
}

// newer reports whether target exists and is newer than all files in the source
// directories.
func newer(target string, sources ...string) (bool, error) {
	made, err := os.Stat(target)
	if err != nil {
		return false, nil
	}

	fresh := true
	for _, source := range sources {
		err := filepath.WalkDir(source, func(_ string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}

			info, err := entry.Info()
			if err == nil && info.ModTime().After(made.ModTime()) {
				fresh = false
			}

			return err
		})
		if err != nil {
			return false, err
		}
	}

	return fresh, nil
}
