// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package atomicfile

import "syscall"

const (
	noFollow  = syscall.O_NOFOLLOW
	nonBlock  = syscall.O_NONBLOCK
	directory = syscall.O_DIRECTORY
)
