// Package doctor has the command "doctor", which prints the problems of evenkeel in a cluster.
//
// It must not look for problems itself: internal/fleet/doctor does.
package doctor

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/fleet/doctor"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// app runs the commands of this package.
type app struct{ *command.Env }

// Exit codes of doctor.
const (
	ExitHealthy  = 0
	ExitUnknown  = 1
	ExitProblems = 2
	ExitUsage    = 3
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

  error    something does not work, or is not protected
  warning  a person must act, but not at once
  unknown  it could not be checked
  note     information; no action is needed

A controller that seems to be gone is watched for the duration of its lease, 15s, because clocks may differ.

Exit codes:
  0  no problems; there may be notes
  1  something could not be checked, and there are no problems otherwise; or the API server does not answer
  2  there are errors or warnings
  3  wrong usage`,
		Example: `  kubectl evenkeel doctor

  # For a script
  kubectl evenkeel doctor -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := command.NoArgs(cmd, args); err != nil {
				return &command.Exit{Code: ExitUsage, Err: err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context(), output) },
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &command.Exit{Code: ExitUsage, Err: command.FlagError(cmd, err)}
	})
	printing.FormatFlag(cmd, &output, printing.JSON, printing.YAML)
	return cmd
}

// Report is the output of "doctor".
type Report struct {
	Nodes    int              `json:"nodes"`
	Agents   int              `json:"agents"`
	Rollouts int              `json:"rollouts"`
	Findings []doctor.Finding `json:"findings"`
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
	d := Report{Rollouts: len(facts.Rollouts), Findings: doctor.Judge(facts)}
	for _, n := range facts.Nodes {
		if n.Exists {
			d.Nodes++
		}
		if n.Reported {
			d.Agents++
		}
	}
	if d.Findings == nil {
		d.Findings = []doctor.Finding{}
	}
	if f != "" {
		err = printing.Encode(a.Out, f, d)
	} else {
		err = d.print(a.Out)
	}
	if code := d.code(); err == nil && code != ExitHealthy {
		return &command.Exit{Code: code}
	}
	return err
}

// count returns the number of findings of a severity.
func (d Report) count(s doctor.Severity) int {
	n := 0
	for _, f := range d.Findings {
		if f.Severity == s {
			n++
		}
	}
	return n
}

func (d Report) code() int {
	switch {
	case d.count(doctor.Error)+d.count(doctor.Warning) > 0:
		return ExitProblems
	case d.count(doctor.Unknown) > 0:
		return ExitUnknown
	}
	return ExitHealthy
}

// print prints each finding with what to do in the line below it, and a summary.
func (d Report) print(w io.Writer) error {
	var out strings.Builder
	for _, f := range d.Findings {
		fmt.Fprintf(&out, "%-8s %s: %s\n", f.Severity, printable.Line(f.About()), printable.Line(f.Wrong))
		if f.Do != "" {
			fmt.Fprintf(&out, "         -> %s\n", printable.Line(f.Do))
		}
	}
	if len(d.Findings) > 0 {
		out.WriteByte('\n')
	}
	verdict := map[int]string{ExitHealthy: "no problems", ExitUnknown: "no problems in what could be checked", ExitProblems: "problems found"}[d.code()]
	fmt.Fprintf(&out, "%s, %s, %s: %s", printable.Count(d.Nodes, "node"), printable.Count(d.Agents, "agent"), printable.Count(d.Rollouts, "rollout"), verdict)
	var counts []string
	for _, s := range []doctor.Severity{doctor.Error, doctor.Warning, doctor.Unknown, doctor.Note} {
		if n := d.count(s); n > 0 {
			counts = append(counts, fmt.Sprintf("%s: %d", s, n))
		}
	}
	if len(counts) > 0 {
		fmt.Fprintf(&out, " (%s)", strings.Join(counts, ", "))
	}
	out.WriteByte('\n')
	_, err := io.WriteString(w, out.String())
	return err
}
