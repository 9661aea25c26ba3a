// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command guard removes what a local cluster leaves behind when the process
// that runs it ends. Its standard input is a pipe that only that process holds
// open, so the kernel closes the pipe however the process ends. A process that
// has cleaned up itself says so on the pipe first.
//
// The guard must not need anything from that process except the cluster's
// directory.
package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/evenkeel/evenkeel/testkit/localcluster/sweep"
)

func main() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	if len(os.Args) != 3 || (os.Args[2] != "keep" && os.Args[2] != "remove") {
		fmt.Fprintln(os.Stderr, "usage: guard DIRECTORY keep|remove <pipe")
		os.Exit(2)
	}

	dir := os.Args[1]
	spared := sweep.Ancestors() // now, because later other processes may have their process IDs
	said, err := io.ReadAll(os.Stdin)
	if err == nil && string(said) == sweep.Done {
		return
	}

	err = sweep.Cluster(dir, spared)
	if err == nil && os.Args[2] == "remove" {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
