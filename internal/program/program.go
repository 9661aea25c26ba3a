// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package program has the common parts of evenkeel's command lines: the run loop with signals, exit codes, usage errors,
// logging flags, and the version command.
//
// It must not know what a program does.
package program

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evenkeel/evenkeel/internal/printable"
)

// Exit codes of all programs. A program may have others.
const (
	ExitError = 1
	ExitUsage = 3
)

// Exit is an error with an exit code.
type Exit struct {
	Code int
	Err  error
}

func (e *Exit) Error() string { return e.Err.Error() }
func (e *Exit) Unwrap() error { return e.Err }

// WithExitCode returns an error with an exit code.
func WithExitCode(code int, err error) error { return &Exit{code, err} }

// Usage returns a usage error, formatted like fmt.Errorf.
func Usage(format string, args ...any) error {
	return WithExitCode(ExitUsage, fmt.Errorf(format, args...))
}

// NoArgs returns a usage error if a command has arguments.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage("%s takes no arguments, got %q; see %[1]s --help", cmd.CommandPath(), args)
	}
	return nil
}

// Root configures the root command of a program: Run prints an error as one line without the usage, and there is no
// generated completion command.
func Root(c *cobra.Command) *cobra.Command {
	c.SilenceErrors, c.SilenceUsage = true, true
	c.CompletionOptions.DisableDefaultCmd = true
	c.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Usage("%w; see %s --help", err, cmd.CommandPath())
	})
	return c
}

// Run executes a program's command line, cancels its context on SIGTERM or SIGINT, prints the error to standard error, and
// returns the exit code.
func Run(root *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// Text from payloads, the API and files must not control the terminal.
	root.SetOut(printable.NewWriter(os.Stdout))
	root.SetErr(printable.NewWriter(os.Stderr))
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(root.ErrOrStderr(), "%s: %v\n", root.Name(), err)
	if coded := (*Exit)(nil); errors.As(err, &coded) {
		return coded.Code
	}
	return ExitError
}

// Log has the logging flags of a program.
type Log struct {
	verbosity int
	format    string
}

// Bind adds the flags.
func (l *Log) Bind(f *pflag.FlagSet) {
	f.IntVarP(&l.verbosity, "verbosity", "v", 0, "log level: 0 info, 1 and more debug")
	f.StringVar(&l.format, "log-format", "text", "text or json")
}

// Check returns a usage error if a flag is invalid.
func (l *Log) Check() error {
	if l.format != "text" && l.format != "json" {
		return Usage("--log-format must be text or json, not %q", l.format)
	}
	return nil
}

// Logger returns a logger that writes to standard error.
func (l *Log) Logger() *slog.Logger {
	o := &slog.HandlerOptions{Level: slog.LevelInfo}
	if l.verbosity > 0 {
		o.Level = slog.LevelDebug
	}
	if l.format == "json" {
		return slog.New(slog.NewJSONHandler(printable.NewJSONWriter(os.Stderr), o))
	}
	return slog.New(slog.NewTextHandler(printable.NewWriter(os.Stderr), o))
}
