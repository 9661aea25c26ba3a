// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sleep is the only program in the images of localcluster's pods: it
// waits for SIGTERM or SIGINT. With -v, like the pause image of Kubernetes, it
// ends at once: kubeadm's health check before an upgrade runs that.
package main

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	if slices.Contains(os.Args, "-v") {
		return
	}

	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
}
