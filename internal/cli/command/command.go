// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package command holds what all commands of kubectl-evenkeel share: streams,
// the connection to the API server, exit codes, confirmation, completion, and
// flags that several commands have.
//
// It must not know any single command.
package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/program"
)

// Exit codes, for scripts.
const (
	ExitComplete = 0
	ExitError    = 1 // wrong usage, or the API server refuses or does not answer
	ExitHalted   = 2 // the rollout is halted or degraded
	ExitTimeout  = 3
	ExitApproval = 4 // the rollout waits for approval
)

// Exit is an error with an exit code of its own.
type Exit = program.Exit

// Env is the environment of a command.
type Env struct {
	genericclioptions.IOStreams // Out and ErrOut escape control characters, see printable.Writer
	// Terminal is the stream under Out, for colors. Everything else that is
	// written to it must be made printable first.
	Terminal   io.Writer
	Connection *genericclioptions.ConfigFlags
	loader     clientcmd.ClientConfig // of Connection; nil: not yet needed
	Program    program.Info
	// API returns a client for the cluster of Connection.
	API func() (client.WithWatch, error)
}

// NewEnv returns the environment of a program.
func NewEnv(info program.Info, streams genericclioptions.IOStreams) *Env {
	env := &Env{IOStreams: streams, Terminal: streams.Out, Connection: genericclioptions.NewConfigFlags(false), Program: info}
	env.API = env.connect
	env.Out, env.ErrOut = printable.NewWriter(streams.Out), printable.NewWriter(streams.ErrOut)
	return env
}

// Execute runs a program's root command, prints its error, and returns its exit
// code.
func (e *Env) Execute(ctx context.Context, root *cobra.Command) int {
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitComplete
	}

	code := ExitError
	if exit, ok := errors.AsType[*Exit](err); ok {
		code, err = exit.Code, exit.Err
	}
	if err != nil {
		fmt.Fprintln(e.ErrOut, "error:", describe.Printable(describe.WithAdvice(err, e.Program.Version, rolesOf(cmd)...).Error()))
	}

	return code
}

// NeedsRoles notes the roles of evenkeel that a command and its subcommands
// need.
func NeedsRoles(cmd *cobra.Command, roles ...string) {
	cmd.Annotations = map[string]string{needsRoles: strings.Join(roles, " ")}
}

const needsRoles = "evenkeel.dev/roles"

func rolesOf(cmd *cobra.Command) []string {
	for ; cmd != nil; cmd = cmd.Parent() {
		if roles, is := cmd.Annotations[needsRoles]; is {
			return strings.Fields(roles)
		}
	}

	return nil
}

// Colored returns the stream for output with colors, and whether colors may be
// used: on a terminal, unless the environment asks for plain output.
func (e *Env) Colored() (w io.Writer, colors bool) {
	f, isFile := e.Terminal.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return e.Out, false
	}

	return e.Terminal, true
}

// Confirm asks a question, unless yes is true. The error says why the command
// must not continue. stdinUsed reports whether the command has read standard
// input for something else.
func (e *Env) Confirm(ctx context.Context, question string, yes, stdinUsed bool) error {
	if yes {
		return nil
	}

	if in, ok := e.In.(*os.File); stdinUsed || !ok || !term.IsTerminal(int(in.Fd())) {
		return errors.New("cannot ask for confirmation: standard input is not a terminal; use --yes, or --dry-run to only look; nothing was " +
			"written")
	}

	fmt.Fprintf(e.Out, "%s [y/N] ", question)
	answer, err := Interruptible(ctx, func() (string, error) { return bufio.NewReader(e.In).ReadString('\n') })
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}

	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}

	return errors.New("not confirmed: nothing was written")
}

// Interruptible calls read, which may block forever, and returns early with an
// error when ctx ends.
func Interruptible[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() { // a blocked read cannot be cancelled: it ends with the program
		value, err := read()
		done <- result{value, err}
	}()
	select {
	case <-ctx.Done():
		return *new(T), errors.New("interrupted: nothing was written")
	case r := <-done:
		return r.value, r.err
	}
}

// WarnIfControllerSilent prints a note if no controller leads: the status is
// old then. needsLease: without a Lease none does.
func (e *Env) WarnIfControllerSilent(ctx context.Context, c client.Client, settings v1alpha1.RolloutController, needsLease bool) {
	lease := query.ControllerRenewal(ctx, c, settings.Namespace)
	lease.Missing = lease.Missing && needsLease
	e.Notes(describe.NoController(lease, settings.Namespace, time.Now()))
}

// Notes prints notes, each in a line, without those that are empty.
func (e *Env) Notes(notes ...string) {
	for _, words := range notes {
		if words != "" {
			fmt.Fprintln(e.ErrOut, "note:", printable.Line(words))
		}
	}
}

// PrintDiff prints the differences between two configurations, as
// describe.ContentDiff returns them.
func (e *Env) PrintDiff(words string) {
	if words == "" {
		words = "no field differs"
	}

	fmt.Fprintln(e.Out, describe.Printable(strings.TrimSuffix(words, "\n")))
}

// CompleteRollout completes the name of a rollout as the first argument.
func (e *Env) CompleteRollout(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}

	return e.Complete(cmd, query.RolloutNames)
}

// CompleteNode completes the name of a node as the first argument.
func (e *Env) CompleteNode(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}

	return e.Complete(cmd, query.NodeNames)
}

// CompleteNodes completes the name of a node as any argument.
func (e *Env) CompleteNodes(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return e.Complete(cmd, query.NodeNames)
}

// Complete completes a word with what names reads, within three seconds.
func (e *Env) Complete(cmd *cobra.Command, names func(context.Context, client.Reader) ([]string, error)) ([]string,
	cobra.ShellCompDirective) {
	c, err := e.Client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}

	ctx, cancel := context.WithTimeout(cmd.Context(), 3*time.Second)
	defer cancel()
	all, err := names(ctx, c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}

	return all, cobra.ShellCompDirectiveNoFileComp
}
