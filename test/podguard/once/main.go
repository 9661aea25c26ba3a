// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command once is the program of init containers: it ends at once.
package main

func main() {}
