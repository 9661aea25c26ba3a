// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package component

import (
	"errors"
	"io/fs"
	"os/exec"
)

// Components run on Linux. On other systems, kubectl-evenkeel is built for its
// cluster commands, and local dry runs work as far as the system supports them.

func newProcessGroup(*exec.Cmd)                {}
func dieWithParent(*exec.Cmd)                  {}
func confine(*exec.Cmd)                        {}
func unmount(string)                           {}
func limitMemory(int, uint64) error            { return nil }
func keepDescriptors()                         {}
func sigkilled(*exec.ExitError) bool           { return false }
func killGroup(cmd *exec.Cmd) error            { return cmd.Process.Kill() }
func deviceInode(fs.FileInfo) (uint64, uint64) { return 0, 0 }
func renameNew(_, _ string) error              { return errors.ErrUnsupported }
