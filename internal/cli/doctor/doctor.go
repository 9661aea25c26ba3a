package doctor

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/fleet/describe"
	"github.com/evenkeel/evenkeel/internal/fleet/doctor"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Exit codes of doctor.
const (
	exitWell    = 0
	exitUnseen  = 1
	exitHands   = 2
	exitMisused = 3
)

func (a *app) doctorCommand() *cobra.Command {
	var output printing.Format
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong with evenkeel in this cluster, and say what to do about it",
		Long: `Look for what is wrong with evenkeel in this cluster, and say what to do about it.

It looks at the CRDs, admission policies and rights, as this build expects them; at the controller's lease; at what the
agents report; at the ConfigMaps that are assigned; and at the rollouts. It writes nothing. What you may not look at is said,
and all else is looked at.

  error    something does not work, or is open that should not be
  warning  somebody has to do something, and it can wait
  unknown  it could not be looked at
  note     good to know; nobody has to do anything

A controller that seems to be gone is watched for as long as its lease lasts, 15s: clocks may differ.

Exit codes:
  0  all is well; there may be notes
  1  something could not be looked at, and what could is well; or the API server does not answer
  2  there are errors or warnings
  3  wrong usage`,
		Example: `  kubectl evenkeel doctor

  # For a script
  kubectl evenkeel doctor -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.NoArgs(cmd, args); err != nil {
				return &exit{exitMisused, err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context(), output) },
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exit{exitMisused, err} })
	printing.FormatFlag(cmd, &output, printing.JSON, printing.YAML)
	return cmd
}

// diagnosis is what doctor says.
type diagnosis struct {
	Nodes    int              `json:"nodes"`
	Agents   int              `json:"agents"`
	Rollouts int              `json:"rollouts"`
	Findings []doctor.Finding `json:"findings"`
}

func (a *app) doctor(ctx context.Context, f printing.Format) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	facts, err := doctor.Look(ctx, c)
	if err != nil {
		return err
	}
	d := diagnosis{Rollouts: len(facts.Rollouts), Findings: doctor.Judge(facts)}
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
	if code := d.code(); err == nil && code != exitWell {
		return &exit{code: code}
	}
	return err
}

// count returns how many findings are of a severity.
func (d diagnosis) count(s doctor.Severity) int {
	n := 0
	for _, f := range d.Findings {
		if f.Severity == s {
			n++
		}
	}
	return n
}

func (d diagnosis) code() int {
	switch {
	case d.count(doctor.Error)+d.count(doctor.Warning) > 0:
		return exitHands
	case d.count(doctor.Unknown) > 0:
		return exitUnseen
	}
	return exitWell
}

// print writes each finding, what to do about it in a line below, and how it stands in all.
func (d diagnosis) print(w io.Writer) error {
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
	verdict := map[int]string{exitWell: "all is well", exitUnseen: "what could be looked at is well", exitHands: "this needs hands"}[d.code()]
	fmt.Fprintf(&out, "%s, %s, %s: %s", describe.Count(d.Nodes, "node"), describe.Count(d.Agents, "agent"), describe.Count(d.Rollouts, "rollout"), verdict)
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
