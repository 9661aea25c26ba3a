package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/checkpoint"
	"github.com/evenkeel/evenkeel/internal/lockfile"
	"github.com/evenkeel/evenkeel/internal/trial"
)

func forgetCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "forget REVISION --dynamic-config-dir DIR",
		Short: "Forget that a configuration is bad, so that it is tried again",
		Long: `forget is the repair for a dead end: a configuration was held to be bad, but it
was not the cause. If an agent runs it is left a request, which it carries out
within seconds; else the record is changed here. Revisions are listed by status
and in the NodeConfig's status.badConfigs.

Exit codes: 0 forgotten or asked for, 1 no such record or another error, 3 usage.`,
		Example: `  evenkeel-agent forget 6d1e1c3a-2a0e-4f6c-9d0e-0a1b2c3d4e5f --dynamic-config-dir=/var/lib/evenkeel`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || dir == "" {
				return usage("forget takes one REVISION, and --dynamic-config-dir")
			}
			return forget(cmd.OutOrStdout(), dir, args[0])
		},
	}
	cmd.Flags().StringVar(&dir, "dynamic-config-dir", "", "the agent's directory")
	return cmd
}

func forget(out io.Writer, dir, revision string) error {
	view, err := checkpoint.ReadOnly(atomicfile.OS{}, dir, "")
	if err != nil {
		return err
	}
	found := view.State.Trial != nil && view.State.Trial.Revision == revision
	for _, b := range view.State.Bad {
		found = found || b.Revision == revision
	}
	if !found {
		return fmt.Errorf("no record of revision %s being bad in %s (kubelet %s); see evenkeel-agent status --dynamic-config-dir=%s", revision, dir, view.Version, dir)
	}
	lock, err := lockfile.TryAcquire(filepath.Join(dir, agentLock))
	if errors.Is(err, lockfile.ErrHeld) {
		if err := checkpoint.RequestForget(atomicfile.OS{}, dir, revision); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "the running agent was asked to forget that %s is bad\n", revision)
		return err
	}
	if err != nil {
		return err
	}
	defer lock.Release()
	store, err := checkpoint.Open(atomicfile.OS{}, dir, view.Version, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	state, _ := store.Load()
	if err := store.Save(trial.Forget(state, revision)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "forgot that %s is bad; no agent runs, the next one will try it again if it is assigned\n", revision)
	return err
}

func statusCommand() *cobra.Command {
	var dir, output string
	cmd := &cobra.Command{
		Use:   "status --dynamic-config-dir DIR",
		Short: "Say what this node runs and why, from disk; no API needed",
		Long: `status says what this node runs and why, from disk; no API is needed, and no
agent. It may be called beside one.

Exit codes: 0 said, 1 the directory cannot be read, 3 usage.`,
		Example: `  evenkeel-agent status --dynamic-config-dir=/var/lib/evenkeel -o json`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case dir == "":
				return usage("--dynamic-config-dir is missing")
			case output != "" && output != "json":
				return usage("-o must be json, not %q", output)
			}
			view, err := checkpoint.ReadOnly(atomicfile.OS{}, dir, "")
			if err != nil {
				return err
			}
			if _, err := os.Stat(filepath.Join(dir, agentLock)); view.Version == "" && errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("no agent ever worked in %s: give the --dynamic-config-dir that the agent has", dir)
			}
			s := summarize(view)
			s.AgentRuns = agentRuns(dir)
			if output == "json" {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(s)
			}
			return s.print(cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&dir, "dynamic-config-dir", "", "the agent's directory")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, or nothing for people")
	return cmd
}

func agentRuns(dir string) bool {
	return lockfile.Held(filepath.Join(dir, agentLock))
}

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
}

type badConfig struct {
	Revision string `json:"revision"`
	trial.BadConfig
}

func summarize(v checkpoint.View) summary {
	s := v.State
	out := summary{
		ComponentVersion: v.Version, Current: s.Current, LastKnownGood: s.LastKnownGood,
		Trial: s.Trial, Starts: s.Startups, Revoked: s.Revoked, Promoted: s.Promoted,
	}
	for _, b := range s.Bad {
		out.Bad = append(out.Bad, badConfig{b.Revision, b})
	}
	for _, p := range v.Problems {
		out.Problems = append(out.Problems, p.String())
	}
	out.Runs, out.Why = trial.Standing(s)
	return out
}

func (s summary) print(out io.Writer) error {
	var b strings.Builder
	line := func(key, format string, args ...any) {
		fmt.Fprintf(&b, "%-18s%s\n", key+":", fmt.Sprintf(format, args...))
	}
	line("Runs", "%s", describe(s.Runs))
	line("Why", "%s", s.Why)
	line("Current", "%s%s", describe(s.Current.Config), since(s.Current.Since))
	line("Last known good", "%s%s", describe(s.LastKnownGood.Config), since(s.LastKnownGood.Since))
	if t := s.Trial; t != nil && t.Revision == s.Runs.Revision {
		line("Trial", "%s: observed healthy for %s, %d counted starts", t.Revision, t.Healthy.Round(time.Second), len(s.Starts))
	}
	for _, bad := range s.Bad {
		line("Bad", "%s (%s/%s) since %s: %s", bad.Revision, bad.Namespace, bad.Name, bad.Time.Format(time.RFC3339), bad.BadConfig)
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
	_, err := io.WriteString(out, b.String())
	return err
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
