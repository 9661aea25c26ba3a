package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/handover"
	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/program"
)

func statusCommand() *cobra.Command {
	var dir, output, form string
	cmd := &cobra.Command{
		Use:   "status --dynamic-config-dir DIR",
		Short: "Say what this node runs and why, from disk; no API needed",
		Long: `status says what this node runs and why, from disk; no API is needed, and no
agent. It may be called beside one; then it also says what differs from the
local configuration and, with --effective, every field of the configuration
that is effective, its value and where that comes from: a flag of the kubelet,
a drop-in or another remote configuration, the node's local configuration, or
the kubelet's defaults.

Exit codes: 0 said, 1 the directory cannot be read, 3 usage.`,
		Example: `  evenkeel-agent status --dynamic-config-dir=/var/lib/evenkeel --effective=grouped
  evenkeel-agent status --dynamic-config-dir=/var/lib/evenkeel -o json`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case dir == "":
				return program.Usage("--dynamic-config-dir is missing")
			case output != "" && output != "json":
				return program.Usage("-o must be json, not %q", output)
			case form != "" && form != formFlat && form != formGrouped:
				return program.Usage("--effective must be %s or %s, not %q", formFlat, formGrouped, form)
			}
			s, err := summarize(dir)
			if err != nil {
				return err
			}
			if s.Running != nil && form == formGrouped {
				grouped := s.Running.Grouped()
				s.Running = &grouped
			}
			if output == "json" {
				return s.encode(cmd.OutOrStdout())
			}
			return s.print(cmd.OutOrStdout(), form)
		},
	}
	cmd.Flags().StringVar(&dir, "dynamic-config-dir", "", "the agent's directory")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, or nothing for people")
	cmd.Flags().StringVar(&form, "effective", "", "show the effective configuration too, with its names as upstream has them (flat) or as evenkeel groups them (grouped)")
	return cmd
}

// The forms in which a configuration is shown.
const (
	formFlat    = "flat"
	formGrouped = "grouped"
)

// summary is what status prints.
type summary struct {
	ComponentVersion string            `json:"componentVersion"`
	AgentRuns        bool              `json:"agentRuns"`
	Runs             trial.Config      `json:"runs"`
	Why              string            `json:"why"`
	Current          trial.Record      `json:"current"`
	LastKnownGood    trial.Record      `json:"lastKnownGood"`
	Trial            *trial.Trial      `json:"trial,omitempty"`
	Starts           []time.Time       `json:"starts,omitempty"`
	Bad              []badConfig       `json:"badConfigs,omitempty"`
	Revoked          []string          `json:"revoked,omitempty"`
	Promoted         []trial.Promotion `json:"promoted,omitempty"`
	Problems         []string          `json:"problems,omitempty"`
	// Running is what the agent itself says; nil if none runs.
	Running *agent.Configz `json:"running,omitempty"`
}

type badConfig struct {
	Revision string `json:"revision"`
	trial.BadConfig
}

// summarize reads what a directory has. What a running agent says beats what the
// records let one conclude.
func summarize(dir string) (summary, error) {
	v, err := checkpoint.ReadOnly(atomicfile.OS{}, dir, "")
	if err != nil {
		return summary{}, err
	}
	lock := handover.DirectoryLock(dir)
	if _, err := os.Stat(lock); v.Version == "" && errors.Is(err, os.ErrNotExist) {
		return summary{}, fmt.Errorf("no agent ever worked in %s: give the --dynamic-config-dir that the agent has", dir)
	}
	s := v.State
	out := summary{
		ComponentVersion: v.Version, AgentRuns: lockfile.Held(lock), Current: s.Current, LastKnownGood: s.LastKnownGood,
		Trial: s.Trial, Starts: s.Startups, Revoked: s.Revoked, Promoted: s.Promoted,
	}
	for _, b := range s.Bad {
		out.Bad = append(out.Bad, badConfig{b.Revision, b})
	}
	for _, p := range v.Problems {
		out.Problems = append(out.Problems, p.String())
	}
	out.Runs, out.Why = trial.Standing(s)
	if !out.AgentRuns {
		return out, nil
	}
	var running agent.Configz
	text, err := checkpoint.Running(atomicfile.OS{}, dir)
	if err == nil {
		err = json.Unmarshal(text, &running)
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		out.Problems = append(out.Problems, "the agent has not said yet what it runs; this is what the records say")
		return out, nil
	case err != nil:
		out.Problems = append(out.Problems, fmt.Sprintf("what the agent says cannot be read; this is what the records say: %v", err))
		return out, nil
	}
	out.Running = &running
	out.Runs, out.Why = running.Config(), running.ConfigOK.Message+": "+running.ConfigOK.Cause
	return out, nil
}

func (s summary) encode(out io.Writer) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", printable.JSON(text))
	return err
}

func (s summary) print(w io.Writer, form string) error {
	out := bufio.NewWriter(w)
	line := func(key, format string, args ...any) {
		fmt.Fprintf(out, "%-18s%s\n", key+":", printable.Line(fmt.Sprintf(format, args...)))
	}
	line("Runs", "%s", describe(s.Runs))
	line("Why", "%s", s.Why)
	if r := s.Running; r != nil {
		if r.Error != "" && r.Error != r.ConfigOK.Cause { // Why ends with the cause
			line("Error", "%s", r.Error)
		}
		line("Source", "%s", r.Remote)
		line("Run mode", "%s", r.RunMode)
	}
	line("Current", "%s%s", describe(s.Current.Config), since(s.Current.Since))
	line("Last known good", "%s%s", describe(s.LastKnownGood.Config), since(s.LastKnownGood.Since))
	if t := s.Trial; t != nil && t.Revision == s.Runs.Revision {
		line("Trial", "%s: observed healthy for %s of %s, %d counted starts", t.Revision, t.Healthy.Round(time.Second), t.Terms.Duration, len(s.Starts))
	}
	for _, uid := range s.Revoked {
		line("Revoked", "%s", uid)
	}
	for _, problem := range s.Problems {
		line("Problem", "%s", problem)
	}
	version := s.ComponentVersion
	if version == "" {
		version = "not known yet"
	}
	line("Kubelet", "%s", version)
	line("Agent", "%s", map[bool]string{true: "runs", false: "does not run"}[s.AgentRuns])
	if s.Running != nil {
		printDifferences(line, s.Running)
	}
	const most = 3
	for i, bad := range s.Bad {
		if i == most {
			line("Bad", "and %d more; -o json lists them", len(s.Bad)-i)
			break
		}
		line("Bad", "%s (%s/%s) since %s: %s", bad.Revision, bad.Namespace, bad.Name, bad.Time.Format(time.RFC3339), bad.BadConfig)
	}
	if form != "" {
		if err := printEffective(out, s.Running); err != nil {
			return err
		}
	}
	return out.Flush()
}

// printDifferences says what is not as it is locally, or not as it was meant.
func printDifferences(line func(key, format string, args ...any), c *agent.Configz) {
	for _, limit := range c.Limits {
		line("Limited", "%s", limit.Message)
	}
	switch {
	case c.Source.Kind != "remote" || len(c.Differs) > 0:
	case c.Effective == nil:
		line("Differs", "unknown: the kubelet did not print its configuration")
	default:
		line("Differs", "in nothing from the local configuration")
	}
	for _, field := range c.Overridden {
		line("Overridden", "%s, by a flag of the kubelet", field)
	}
	for _, d := range c.Differs {
		line("Differs", "%s is %s, locally %s (from: %s)", d.Field, d.Value, d.Local, origin(c, d.Field))
	}
}

// printEffective prints every field that is effective.
func printEffective(out io.Writer, c *agent.Configz) error {
	if c == nil || c.Effective == nil {
		_, err := fmt.Fprintln(out, "\nThe effective configuration is not known: no agent runs here, or its kubelet did not print it.")
		return err
	}
	local := map[string]string{}
	for _, d := range c.Differs {
		local[d.Field] = "locally " + d.Local
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "FIELD\tVALUE\tFROM\tDIFFERS")
	for _, f := range payload.Diff(c.Effective, nil) { // from nothing
		if f.Field == "apiVersion" || f.Field == "kind" {
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", printable.Line(f.Field), printable.Line(f.Value), origin(c, f.Field), printable.Line(local[f.Field]))
	}
	return w.Flush()
}

func origin(c *agent.Configz, field string) component.Origin {
	if o, ok := c.Origins[field]; ok {
		return o
	}
	return "default"
}

func describe(c trial.Config) string {
	if c.IsLocal() {
		return "the local configuration"
	}
	return fmt.Sprintf("%s/%s (UID: %s)", c.Namespace, c.Name, c.Revision)
}

func since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return ", since " + t.Format(time.RFC3339)
}
