// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sleep is the only program in the images of localcluster's pods: it waits for SIGTERM or SIGINT.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
}
