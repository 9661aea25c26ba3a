// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package program has the common parts of evenkeel's command lines: the run
// loop with signals, exit codes, usage errors, logging flags, and the version
// command.
//
// It must not know what a program does.
package program

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Exit codes of all programs. A program may have others.
const (
	ExitError = 1
	ExitUsage = 3
)

// Exit is an error with an exit code. Without Err nothing more is to be
// printed: the command has shown what is wrong.
type Exit struct {
	Code int
	Err  error
}

func (e *Exit) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit %d", e.Code)
	}

	return e.Err.Error()
}

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

// Root configures the root command of a program: Run prints an error as one
// line without the usage, and there is no generated completion command.
func Root(c *cobra.Command) *cobra.Command {
	c.SilenceErrors, c.SilenceUsage = true, true
	c.CompletionOptions.DisableDefaultCmd = true
	c.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Usage("%w; see %s --help", err, cmd.CommandPath())
	})

	return c
}

// Run executes a program's command line, cancels its context on SIGTERM or
// SIGINT, prints the error to standard error, and returns the exit code.
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

// Info is the output of "version".
type Info struct {
	Program string `json:"program"`
	Version string `json:"version"`
	// Commit is the commit of the source, with "-dirty" if the source had other
	// changes; "" if unknown.
	Commit   string   `json:"commit,omitempty"`
	Go       string   `json:"go"`
	Platform string   `json:"platform"` // linux/amd64
	Kubelets Kubelets `json:"kubelets"`
}

// Kubelets are the supported minor versions of the kubelet.
type Kubelets struct {
	Oldest string `json:"oldest"`
	Newest string `json:"newest"`
}

// NewInfo describes the running program. Version and commit were set by the
// linker; the default commit is the one that the Go command stored when it
// built from a repository.
func NewInfo(program, version, commit string) Info {
	build, _ := debug.ReadBuildInfo()
	return Info{
		Program: program, Version: version, Commit: cmp.Or(commit, revision(build)),
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Kubelets: Kubelets{fmt.Sprintf("1.%d", component.OldestMinor), fmt.Sprintf("1.%d", component.NewestMinor)},
	}
}

// revision returns the commit stored by the Go command, or "".
func revision(build *debug.BuildInfo) string {
	if build == nil {
		return ""
	}

	settings := map[string]string{}
	for _, s := range build.Settings {
		settings[s.Key] = s.Value
	}
	if settings["vcs.revision"] != "" && settings["vcs.modified"] == "true" {
		return settings["vcs.revision"] + "-dirty"
	}

	return settings["vcs.revision"]
}

// String formats the information for people, with program and version in the
// first line.
func (i Info) String() string {
	return fmt.Sprintf("%s %s\ncommit    %s\nbuilt     with %s for %s\nkubelets  %s to %s\n",
		i.Program, i.Version, cmp.Or(i.Commit, "unknown"), i.Go, i.Platform, i.Kubelets.Oldest, i.Kubelets.Newest)
}

// Print writes the information as JSON or for people.
func (i Info) Print(w io.Writer, asJSON bool) error {
	if !asJSON {
		_, err := io.WriteString(w, i.String())
		return err
	}

	out := json.NewEncoder(w)
	out.SetIndent("", "  ")

	return out.Encode(i)
}

// Command returns the "version" command.
func (i Info) Command() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the supported kubelet versions",
		Args:  NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return i.Print(cmd.OutOrStdout(), output == "json") },
	}
	Choice(cmd, &output, "output", "o", "output format", "json")

	return cmd
}

// Choice adds a flag that takes one of these values, whatever their case. Its
// usage and its completion have them in lower case.
func Choice[T ~string](cmd *cobra.Command, value *T, name, shorthand, usage string, all ...T) {
	c := &choice[T]{value, all}
	cmd.Flags().VarP(c, name, shorthand, usage+": "+strings.Join(c.words(), ", "))
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(c.words(), cobra.ShellCompDirectiveNoFileComp))
}

type choice[T ~string] struct {
	value *T
	all   []T
}

func (c *choice[T]) words() (words []string) {
	for _, one := range c.all {
		words = append(words, strings.ToLower(string(one)))
	}

	return words
}

func (c *choice[T]) String() string { return strings.ToLower(string(*c.value)) }
func (c *choice[T]) Type() string   { return "string" }
func (c *choice[T]) Set(s string) error {
	i := slices.IndexFunc(c.all, func(one T) bool { return strings.EqualFold(string(one), s) })
	switch {
	case i < 0 && len(c.all) == 1:
		return fmt.Errorf("must be %s", c.words()[0])
	case i < 0:
		return fmt.Errorf("must be one of %s", strings.Join(c.words(), ", "))
	}

	*c.value = c.all[i]

	return nil
}
