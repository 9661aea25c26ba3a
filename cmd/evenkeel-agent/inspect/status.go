// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inspect reads from a node's disk what its agent runs and why, and
// makes it forget a bad configuration: the commands status and forget of
// evenkeel-agent. It needs no API server and no running agent, and must not
// start or stop anything.
package inspect

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// The forms in which a configuration is shown.
const (
	FormFlat    = "flat"    // with upstream's names
	FormGrouped = "grouped" // with evenkeel's groups
)

// Summary is what a node runs and why.
type Summary struct {
	ComponentVersion string       `json:"componentVersion"`
	AgentRuns        bool         `json:"agentRuns"`
	Runs             trial.Config `json:"runs"`
	Why              string       `json:"why"`
	trial.State
	Problems []string `json:"problems,omitempty"`
	// Running is what the agent itself reports; nil if none runs.
	Running *agent.Configz `json:"running,omitempty"`
}

// Summarize reads the directory of an agent. What a running agent reports
// overrides what the records imply.
func Summarize(dir string) (Summary, error) {
	v, err := checkpoint.ReadOnly(atomicfile.OS{}, dir, "")
	if err != nil {
		return Summary{}, err
	}

	lock := checkpoint.AgentLock(dir)
	if _, err := os.Stat(lock); v.Version == "" && errors.Is(err, os.ErrNotExist) {
		return Summary{}, fmt.Errorf("no agent ever worked in %s: give the --dynamic-config-dir that the agent has", dir)
	}

	out := Summary{ComponentVersion: v.Version, AgentRuns: lockfile.Held(lock), State: v.State}
	for _, p := range v.Problems {
		out.Problems = append(out.Problems, p.String())
	}

	out.Runs, out.Why = trial.NextStart(v.State)
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

// Grouped returns the summary with the effective configuration in evenkeel's
// groups.
func (s Summary) Grouped() Summary {
	if s.Running != nil {
		grouped := s.Running.Grouped()
		s.Running = &grouped
	}

	return s
}

// Encode prints a summary as JSON.
func (s Summary) Encode(out io.Writer) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}

	_, err = fmt.Fprintf(out, "%s\n", printable.JSON(text))

	return err
}

// Print prints a summary for people, with the effective configuration unless
// form is empty.
func (s Summary) Print(w io.Writer, form string) error {
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

	line("Adopted", "%s%s", describe(s.Current.Config), since(s.Current.Since))
	line("Last known good", "%s%s", describe(s.LastKnownGood.Config), since(s.LastKnownGood.Since))
	if t := s.Trial; t != nil && t.Revision == s.Runs.Revision {
		line("Trial", "%s: observed healthy for %s of %s, %s", t.Revision, t.Healthy.Duration.Round(time.Second), t.Terms.Duration.Duration,
			printable.Count(len(s.Startups), "counted start"))
	}

	if words := s.State.PodsWords(); words != "" {
		line("Pods", "%s", words)
	}

	for _, uid := range s.Revoked {
		line("Revoked", "%s", uid)
	}

	for _, problem := range s.Problems {
		line("Problem", "%s", problem)
	}

	line("Kubelet", "%s", cmp.Or(s.ComponentVersion, "not known yet"))
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

		line("Bad", "%s (%s/%s) since %s: %s", bad.Revision, bad.Namespace, bad.Name, bad.Time.Format(time.RFC3339), bad)
	}

	if form != "" {
		if err := printEffective(out, s.Running); err != nil {
			return err
		}
	}

	return out.Flush()
}

// printDifferences prints how the effective configuration differs from the
// local and from the assigned one.
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

	for _, value := range c.Resolved {
		line("Resolved", "%s", payload.ValueWords(value))
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

	return fmt.Sprintf("%s/%s %s", c.Namespace, c.Name, c.UIDLabel())
}

func since(t time.Time) string {
	if t.IsZero() {
		return ""
	}

	return ", since " + t.Format(time.RFC3339)
}

// Forget makes the agent of a directory forget that a revision is bad, and
// prints how: it asks a running agent, and otherwise changes the records. It
// returns an error if there is no record of the revision.
func Forget(out io.Writer, dir, revision string) error {
	view, err := checkpoint.ReadOnly(atomicfile.OS{}, dir, "")
	if err != nil {
		return err
	}

	bad := slices.ContainsFunc(view.State.Bad, func(b trial.BadConfig) bool { return b.Revision == revision })
	if !bad && (view.State.Trial == nil || view.State.Trial.Revision != revision) {
		return fmt.Errorf("no record of revision %s being bad in %s (kubelet %s); see evenkeel-agent status --dynamic-config-dir=%s", revision,
			dir, view.Version, dir)
	}

	lock, err := lockfile.TryAcquire(checkpoint.AgentLock(dir))
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

	defer func() { _ = lock.Release() }() // the kernel releases it when this process exits
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
