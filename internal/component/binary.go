// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Identity identifies a program file. It is comparable, so that callers notice
// a replaced binary.
type Identity struct {
	Path   string // absolute, symbolic links resolved; for an image only its digest
	Device uint64
	Inode  uint64
	Size   int64
	Mtime  int64 // in nanoseconds
}

// identify returns the identity of a component's binary. The error says whether
// it is missing, a directory or not executable.
func identify(name, path string) (Identity, error) {
	if !strings.Contains(path, "/") {
		found, err := exec.LookPath(path)
		if err != nil {
			return Identity{}, fmt.Errorf("no %s named %q in PATH", name, path)
		}

		path = found
	}

	resolved, err := filepath.Abs(path)
	if err == nil {
		resolved, err = filepath.EvalSymlinks(resolved)
	}

	var info os.FileInfo
	if err == nil {
		info, err = os.Stat(resolved)
	}

	switch {
	case errors.Is(err, os.ErrNotExist):
		return Identity{}, fmt.Errorf("there is no %s at %s: %w", name, path, os.ErrNotExist)
	case err != nil:
		return Identity{}, fmt.Errorf("%s %s: %w", name, path, err)
	case info.IsDir():
		return Identity{}, fmt.Errorf("the %s at %s is a directory", name, path)
	case !info.Mode().IsRegular():
		return Identity{}, fmt.Errorf("the %s at %s is not a regular file", name, path)
	case info.Mode()&0o111 == 0:
		return Identity{}, fmt.Errorf("the %s at %s is not executable (mode %s)", name, path, info.Mode())
	}

	id := Identity{Path: resolved, Size: info.Size(), Mtime: info.ModTime().UnixNano()}
	id.Device, id.Inode = deviceInode(info)

	return id, nil
}

// The agent uses a version as a directory name, so only one safe path element
// matches.
var versionLine = regexp.MustCompile(`^Kubernetes (v[0-9]+\.[0-9]+\.[0-9]+[0-9A-Za-z.+_-]*)$`)

// versionTimeout is longer than a program needs that must be read from a busy
// disk on a node without free processors.
const versionTimeout = 30 * time.Second

// queryVersion runs a binary to read its version, such as "v1.36.3". It fails
// if the binary does not know the flags. The version is safe to use as a path
// element.
func queryVersion(ctx context.Context, name string, r runner, flags ...string) (string, error) {
	id, err := r.identify(ctx)
	if err != nil {
		return "", err
	}

	out := &outputReader{}
	end := r.run(ctx, id, process{args: append(flags, "--version"), env: dryRunEnv(""), deadline: versionTimeout}, out)
	if end.err != nil {
		return "", fmt.Errorf("%s --version: %w", name, end.err)
	}

	line := strings.TrimSpace(out.last)
	match := versionLine.FindStringSubmatch(line)
	if end.code != 0 || match == nil || len(match[1]) > 64 {
		return "", fmt.Errorf("%s --version: exit code %d, %q is not a version", name, end.code, clip(line, 200))
	}

	return match[1], nil
}

// runner runs a component's binary on this host or in an image.
type runner interface {
	// identify returns the identity of the binary. The error says why it is
	// unusable, for example missing.
	identify(ctx context.Context) (Identity, error)
	// inside returns the path at which the program sees the process's
	// directory.
	inside(dir string) string
	// run runs the program and waits for its exit. It sets p.path.
	run(ctx context.Context, id Identity, p process, out *outputReader) exitStatus
}

// program is a binary on this host.
type program struct{ name, path string }

func (r program) identify(context.Context) (Identity, error) { return identify(r.name, r.path) }

func (r program) inside(dir string) string { return dir }

func (r program) run(ctx context.Context, id Identity, p process, out *outputReader) exitStatus {
	p.path = id.Path
	return execute(ctx, p, out)
}
