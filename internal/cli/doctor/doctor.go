// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package doctor has the command "doctor", which prints the problems of
// evenkeel in a cluster.
//
// It must not look for problems itself: internal/operator/doctor does.
package doctor

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/doctor"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/program"
)

// app runs the commands of this package.
type app struct{ *command.Env }

// Exit codes of doctor. That of wrong usage is program.ExitUsage.
const (
	exitHealthy  = 0
	exitUnknown  = 1
	exitProblems = 2
)

// Command returns "doctor".
func Command(env *command.Env) *cobra.Command {
	a := &app{env}
	var output printing.Format
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find problems of evenkeel in this cluster, and show how to solve them",
		Long: `Find problems of evenkeel in this cluster, and show how to solve them.

The command checks that CRDs, admission policies and roles are the ones that this build expects; and it checks the
controller's lease, the agents' reports, the assigned ConfigMaps, and the rollouts. It writes nothing. Objects that you are
not allowed to read are listed, and everything else is checked.

The first line says what matters most. Findings that follow from a listed one, such as each object of an installation that does
not exist, are only counted; -o wide lists them. -o json and -o yaml have all findings: "explainedBy" is the ID of the one that
explains a finding.

  error    something does not work, or is not protected
  warning  a person must act, but not at once
  unknown  it could not be checked
  note     information; no action is needed

A controller that seems to be gone is watched for the duration of its lease, 15s, because clocks may differ.

Exit codes:
  0  no problems; there may be notes
  1  something could not be checked, and there are no problems otherwise; or the API server does not answer
  2  there are errors or warnings, or the first line names a problem
  3  wrong usage`,
		Example: `  kubectl evenkeel doctor

  # Every finding, also those that follow from others
  kubectl evenkeel doctor -o wide

  # For a script
  kubectl evenkeel doctor -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := command.NoArgs(cmd, args); err != nil {
				return program.Usage("%w", err)
			}

			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context(), output) },
	}
	cmd.SetFlagErrorFunc(command.UsageError)
	printing.FormatFlag(cmd, &output, printing.Wide, printing.JSON, printing.YAML)

	return cmd
}

func (a *app) doctor(ctx context.Context, f printing.Format) error {
	c, err := a.Client()
	if err != nil {
		return err
	}

	facts, err := doctor.Look(ctx, c)
	if err != nil {
		return err
	}

	r := doctor.NewReport(facts)
	if f == "" || f == printing.Wide {
		err = printReport(a.Out, r, f == printing.Wide)
	} else {
		err = printing.Encode(a.Out, f, r)
	}

	if code := exitCode(r); err == nil && code != exitHealthy {
		return &command.Exit{Code: code}
	}

	return err
}

func exitCode(r doctor.Report) int {
	switch {
	case r.Level == describe.LevelProblem:
		return exitProblems
	case r.Count(doctor.Unknown) > 0:
		return exitUnknown
	}

	return exitHealthy
}

// printReport prints the headline, the findings, each with what to do in the
// line below it, and what was checked. Findings that follow from others are
// only counted, unless all is true.
func printReport(w io.Writer, r doctor.Report, all bool) error {
	var out strings.Builder
	fmt.Fprintln(&out, printable.Line(r.Headline))
	if len(r.Findings) > 0 {
		out.WriteByte('\n')
	}

	about := map[string]string{}
	for _, f := range r.Findings {
		about[f.ID] = f.About()
	}

	follow := 0
	for _, f := range r.Findings {
		if f.ExplainedBy != "" && !all {
			follow++
			continue
		}

		fmt.Fprintf(&out, "%-8s %s: %s\n", f.Severity, printable.Line(f.About()), printable.Line(f.Wrong))
		if f.ExplainedBy != "" {
			fmt.Fprintf(&out, "         follows from: %s\n", printable.Line(about[f.ExplainedBy]))
		}
		if f.Do != "" {
			fmt.Fprintf(&out, "         -> %s\n", printable.Line(f.Do))
		}
	}

	if follow > 0 {
		fmt.Fprintf(&out, "\n%s %s from these: -o wide lists everything", printable.Count(follow, "more finding"),
			printable.Verb(follow, "follows", "follow"))
	}

	fmt.Fprintf(&out, "\nchecked %s, %s, %s%s\n", printable.Count(r.Nodes, "node"), fmt.Sprintf("%d with an agent", r.Agents),
		printable.Count(r.Rollouts, "rollout"), counts(r))
	_, err := io.WriteString(w, out.String())

	return err
}

// counts returns the numbers of findings by severity, after a colon; empty if
// there are none.
func counts(r doctor.Report) string {
	var words []string
	for _, s := range []doctor.Severity{doctor.Error, doctor.Warning, doctor.Note} {
		if n := r.Count(s); n > 0 {
			words = append(words, printable.Count(n, string(s)))
		}
	}

	if n := r.Count(doctor.Unknown); n > 0 {
		words = append(words, fmt.Sprintf("%d unknown", n))
	}
	if len(words) == 0 {
		return ""
	}

	return ": " + strings.Join(words, ", ")
}
