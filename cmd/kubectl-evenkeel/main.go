// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-evenkeel rolls kubelet configuration over a fleet and shows
// how it is; kubectl runs it as "kubectl evenkeel". This package holds its main
// alone: the commands are in internal/cli.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/evenkeel/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/internal/program"
)

// version and commit are set by the linker.
var (
	version = "v0.0.0-unknown"
	commit  string
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	program := program.NewInfo("kubectl-evenkeel", version, commit)
	code := cli.Run(ctx, program, os.Args[1:], genericclioptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	stop()
	os.Exit(code)
}
