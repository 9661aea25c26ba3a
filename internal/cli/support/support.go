// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package support has the command "support-bundle", which writes what a
// maintainer needs into one file.
//
// It must not read the cluster itself: internal/operator/support does.
package support

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/operator/support"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// app runs the commands of this package.
type app struct{ *command.Env }

// Command returns "support-bundle".
func Command(env *command.Env) *cobra.Command {
	a := &app{env}
	var output string
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Collect what a maintainer needs into one file, without Secrets",
		Long: `Collect what a maintainer needs into one file, a tar.gz archive, without Secrets.

The file contains:
  - the versions of this program, the API server, the controller and the agents
  - the report of "kubectl evenkeel doctor"
  - all rollouts, NodeConfigs and NodeConfigPreflights, and the ConfigMaps in the controller's namespace
  - of each Node: labels, taints, conditions, versions and sizes
  - the controller's Lease and the end of its logs; Deployments, DaemonSets and Pods in evenkeel's namespaces
  - Events of evenkeel
  - CRDs, admission policies and roles
  - MANIFEST.txt: this list, and what could not be read, with the reason

` + support.Masked + `
Review the file before you send it.

The command only reads. What you are not allowed to read is left out and listed. At most ` + fmt.Sprint(support.MostBytes>>20) + ` MiB are
collected, before compression; nodes come last. Only you can read the file, and no existing file is replaced.

Exit codes:
  0  the file was written, although it may lack something
  1  wrong usage, nothing could be read, or the file could not be written: there is no file`,
		Example: `  kubectl evenkeel support-bundle

  # Look at the content before you send it
  kubectl evenkeel support-bundle -o bundle.tar.gz && tar xzf bundle.tar.gz

  # To another machine
  kubectl evenkeel support-bundle -o - | ssh jump 'cat > bundle.tar.gz'`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.run(cmd.Context(), output) },
	}
	cmd.Flags().StringVarP(&output, "output", "o", "",
		"file to write, which must not exist yet; - is standard output (default evenkeel-support-CONTEXT-TIME.tar.gz)")
	_ = cmd.MarkFlagFilename("output", "gz")

	return cmd
}

func (a *app) run(ctx context.Context, output string) error {
	current, err := a.CurrentContext()
	if err != nil {
		return err
	}

	now, name := time.Now(), cmp.Or(current.Name, "cluster")
	dir := fmt.Sprintf("evenkeel-support-%s-%s", fileName(name), now.UTC().Format("20060102-150405"))
	path := output
	if path == "" {
		path = dir + ".tar.gz"
	}
	if err := a.check(path); err != nil {
		return err
	}

	c, err := a.Client()
	if err != nil {
		return err
	}

	var contents *support.Contents
	var failed error // without the step of writing the file
	collect := func(w io.Writer) error {
		contents, failed = support.Collect(ctx, c, current.Config, w,
			support.Options{Program: a.Program, Context: name, Dir: dir, Now: now, Most: support.MostBytes})
		return failed
	}
	if path == "-" {
		if err := collect(a.Terminal); err != nil {
			return fmt.Errorf("write the bundle to standard output, which is incomplete: %w", err)
		}

		return a.describe(a.ErrOut, path, contents)
	}

	fmt.Fprintln(a.ErrOut, "collecting; this takes some seconds for each 1,000 nodes ...")
	err = atomicfile.WriteNew(atomicfile.OS{}, path, collect)
	switch {
	case errors.Is(err, fs.ErrExist):
		return exists(path)
	case err != nil && ctx.Err() != nil:
		return errors.New("interrupted: no file was written")
	case errors.Is(failed, support.ErrNothing):
		return fmt.Errorf("no file was written: %w\nask an administrator to run this command", failed)
	case failed != nil:
		return fmt.Errorf("no file was written: %w", failed)
	case err != nil:
		return fmt.Errorf("no file was written: %w; choose another place with -o", err)
	}

	return a.describe(a.Out, path, contents)
}

// check refuses a place to which the bundle cannot go, before anything is read.
func (a *app) check(path string) error {
	if path == "-" {
		if f, ok := a.Terminal.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			return errors.New("-o -: standard output is a terminal, which cannot show an archive: use -o FILE, or redirect the output")
		}

		return nil
	}

	if _, err := os.Lstat(path); err == nil {
		return exists(path)
	}

	return nil
}

func exists(path string) error {
	return fmt.Errorf("%s already exists: remove it, or choose another name with -o; nothing was written", path)
}

var notInFileName = regexp.MustCompile(`[^A-Za-z0-9.]+`)

// fileName returns a context's name as a part of a file's name: contexts can
// contain slashes and colons.
func fileName(name string) string {
	name = strings.Trim(notInFileName.ReplaceAllString(name, "-"), "-.")
	if name == "" {
		return "cluster"
	}

	return name[:min(len(name), 60)]
}

// describe prints what the bundle contains and lacks.
func (a *app) describe(w io.Writer, path string, contents *support.Contents) error {
	var out strings.Builder
	if path != "-" {
		fmt.Fprintf(&out, "wrote %s:\n", path)
	}

	for _, e := range contents.Entries {
		fmt.Fprintf(&out, "  %-*s  %s\n", contents.Width(), printable.Line(e.Name), printable.Line(e.What))
	}

	if len(contents.Failures) > 0 {
		out.WriteString("\nnote: could not be read; the bundle is useful without it:\n")
		for _, f := range contents.Failures {
			fmt.Fprintf(&out, "  %s: %s\n", printable.Line(f.What), printable.Line(f.Why))
		}
	}

	fmt.Fprintf(&out, "\n%s\nReview it before you send it", support.Masked)
	if path != "-" {
		fmt.Fprintf(&out, ": tar tzf %s", path)
	}

	out.WriteByte('\n')
	_, err := io.WriteString(w, out.String())

	return err
}
