// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/program"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/output"
)

// Result is the exit code and the output of a command.
type Result struct {
	Code     int
	Out, Err string
}

// Run runs a command line.
func (a *API) Run(args ...string) Result { return <-a.Begin(args...).Ended }

// Running is a command that runs.
type Running struct {
	Out, Err  *output.Buffer
	Interrupt context.CancelFunc
	Ended     chan Result // has one element in the end
}

// Begin starts a command line.
func (a *API) Begin(args ...string) Running {
	ctx, interrupt := context.WithCancel(a.t.Context())
	r := Running{Out: &output.Buffer{}, Err: &output.Buffer{}, Interrupt: interrupt, Ended: make(chan Result, 1)}
	env := command.NewEnv(program.NewInfo("kubectl-evenkeel", "v0.0.0-test", "0123abcd"), genericclioptions.IOStreams{In: strings.NewReader(""), Out: r.Out, ErrOut: r.Err})
	env.Connection.Namespace = nil
	env.API = func() (client.WithWatch, error) { return a.user, nil }
	root := &cobra.Command{Use: "kubectl-evenkeel", Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl evenkeel"}, SilenceUsage: true, SilenceErrors: true}
	root.SetFlagErrorFunc(command.FlagError)
	env.Connection.AddFlags(root.PersistentFlags())
	for _, c := range a.commands {
		if made := c(env); made.Name() == root.Name() {
			root = made
		} else {
			root.AddCommand(made)
		}
	}

	root.SetArgs(args)
	go func() {
		code := env.Execute(ctx, root)
		r.Ended <- Result{code, r.Out.String(), r.Err.String()}
	}()

	return r
}

// WantOutput fails unless the command succeeded and printed these texts in this
// order. Runs of spaces are equal.
func (r Result) WantOutput(t *testing.T, texts ...string) {
	t.Helper()
	r.Want(t, 0, texts)
}

// WantError fails unless the command failed with exit code 1, an error with all
// of these texts, and no output.
func (r Result) WantError(t *testing.T, words ...string) {
	t.Helper()
	if r.Want(t, command.ExitError, nil, words...); r.Out != "" {
		t.Errorf("output beside an error: %s", r.Out)
	}
}

// Want fails unless the command ended with this code, printed these texts in
// this order, and errors or notes with all of these words.
func (r Result) Want(t *testing.T, code int, texts []string, words ...string) {
	t.Helper()
	if r.Code != code {
		t.Fatalf("exit %d, want %d: %s%s", r.Code, code, r.Out, r.Err)
	}

	rest := Squeeze(r.Out)
	for _, text := range texts {
		_, after, found := strings.Cut(rest, Squeeze(text))
		if !found {
			t.Fatalf("no %q (in this order) in:\n%s", text, r.Out)
		}

		rest = after
	}

	for _, w := range words {
		if !strings.Contains(r.Err, w) {
			t.Errorf("no %q in: %s", w, r.Err)
		}
	}
}

// Decoded returns what a command printed as JSON.
func Decoded[T any](t *testing.T, r Result) (v T) {
	t.Helper()
	assert.NoError(t, json.Unmarshal([]byte(r.Out), &v), r)
	return v
}

// Squeeze replaces runs of spaces by one space.
func Squeeze(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}

	return strings.Join(lines, "\n")
}
