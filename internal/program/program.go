// Package program holds what all programs share: how they are started and stopped, their exit codes, errors of wrong usage,
// logging flags, and the version command.
//
// It must not know what any of them is for.
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

// Exit codes that every program has; each may have others.
const (
	ExitError = 1
	ExitUsage = 3
)

// Exit is an error with an exit code of its own.
type Exit struct {
	Code int
	Err  error
}

func (e *Exit) Error() string { return e.Err.Error() }
func (e *Exit) Unwrap() error { return e.Err }

// Coded returns an error with an exit code.
func Coded(code int, err error) error { return &Exit{code, err} }

// Usage returns the error of wrong usage, with words as those of fmt.Errorf.
func Usage(format string, args ...any) error {
	return Coded(ExitUsage, fmt.Errorf(format, args...))
}

// NoArgs is for a command that takes no arguments.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage("%s takes no arguments, got %q; see %[1]s --help", cmd.CommandPath(), args)
	}
	return nil
}

// Root makes a command a program's: Run says what is wrong with it, in one line and without the whole of its usage, and it has
// the commands that it was given only.
func Root(c *cobra.Command) *cobra.Command {
	c.SilenceErrors, c.SilenceUsage = true, true
	c.CompletionOptions.DisableDefaultCmd = true
	c.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Usage("%w; see %s --help", err, cmd.CommandPath())
	})
	return c
}

// Run runs a program's command line until it ends, by itself or told to by SIGTERM or SIGINT, says on standard error what was
// wrong, and returns the exit code.
func Run(root *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// Nothing that a payload, the API or a file says may reach a terminal as a command.
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

// Log are the flags that say how a program logs.
type Log struct {
	verbosity int
	format    string
}

// Bind makes them flags.
func (l *Log) Bind(f *pflag.FlagSet) {
	f.IntVarP(&l.verbosity, "verbosity", "v", 0, "log level: 0 info, 1 and more debug")
	f.StringVar(&l.format, "log-format", "text", "text or json")
}

// Check returns what is wrong with them, as wrong usage.
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
