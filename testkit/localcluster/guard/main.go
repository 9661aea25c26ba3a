// Command guard waits until the process that runs a local cluster is gone, and cleans up behind it. Its standard input
// is a pipe that only that process holds open: the kernel closes it, however the process ends. A process that has
// cleaned up itself says so first.
//
// It must not need anything of the process that started it but the cluster's directory.
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
	spared := sweep.Ancestors() // now: later they may be gone, and others have their numbers
	said, err := io.ReadAll(os.Stdin)
	if err == nil && string(said) == sweep.Done {
		return
	}
	if err := sweep.Cluster(dir, spared); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Args[2] == "remove" {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
