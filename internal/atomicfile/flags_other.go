// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package atomicfile

// Other systems have no such flags. There, only kubectl-evenkeel is built,
// which keeps no durable state.
const noFollow, nonBlock, directory = 0, 0, 0
