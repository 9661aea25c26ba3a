// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/program"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// StrategyFlags are the flags of AddStrategyFlags, and --drop-in.
var StrategyFlags = []string{"drop-in", "selector", "all-nodes", "steps", "max-unavailable", "max-joining", "max-failures", "on-failure",
	"preflight", "force", "inline",
	"trial-duration", "crash-loop-threshold", "allow-pod-loss"}

// AddStrategyFlags adds the flags that say which nodes a rollout goes to, and
// how.
func (p *Push) AddStrategyFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&p.selector, "selector", "l", "", "labels of the nodes, such as node-restriction.kubernetes.io/pool=workers")
	f.BoolVar(&p.allNodes, "all-nodes", false, "select every node")
	f.StringVar(&p.steps, "steps", "", "steps, such as 1,pause:10m,10%,pause,100%")
	f.StringVar(&p.maxUnavailable, "max-unavailable", "", "how many nodes may be in flight or failed at the same time, such as 5 or 10%")
	f.StringVar(&p.maxJoining, "max-joining", "", "how many nodes that joined may be in flight at the same time, such as 5 or 10%")
	f.StringVar(&p.maxFailures, "max-failures", "", "number of failed nodes that stops the rollout, such as 1 or 2%")
	program.Choice(cmd, &p.onFailure, "on-failure", "", "what happens at that number",
		v1alpha1.FailureActionPause, v1alpha1.FailureActionRollback)
	program.Choice(cmd, &p.preflight, "preflight", "", "ask all agents before the first restart; require also stops the rollout at "+
		"--max-failures refusals", v1alpha1.PreflightReport, v1alpha1.PreflightRequire, v1alpha1.PreflightOff)
	f.Lookup("preflight").NoOptDefVal = "require"
	p.trial.Add(cmd)
	f.BoolVar(&p.force, "force", false, "roll out a configuration although an earlier revision with the same content was stopped")
	f.BoolVar(&p.inline, "inline", false, "replace a template that names a ConfigMap")
}

// ApplyFlags writes the flags that were given into a spec. The error names the
// flag.
func (p Push) ApplyFlags(s *v1alpha1.NodeConfigRolloutSpec) error {
	var err error
	if p.Changed("selector") || p.allNodes {
		if s.NodeSelection, err = command.ParseSelection(p.selector, p.Changed("selector"), p.allNodes); err != nil {
			return err
		}
	}

	if p.Changed("steps") {
		if s.Strategy.Steps, err = parseSteps(p.steps); err != nil {
			return err
		}
	}

	for _, f := range []struct {
		name, value string
		least       int
		field       **intstr.IntOrString
	}{
		{"max-unavailable", p.maxUnavailable, 0, &s.Strategy.MaxUnavailable},
		{"max-joining", p.maxJoining, 0, &s.Strategy.MaxJoining},
		{"max-failures", p.maxFailures, 1, &s.FailurePolicy.MaxFailures},
	} {
		if !p.Changed(f.name) {
			continue
		}

		v, err := command.ParseAmount(f.value, f.least)
		if err != nil {
			return fmt.Errorf("--%s: %w", f.name, err)
		}

		*f.field = &v
	}

	if p.Changed("on-failure") {
		s.FailurePolicy.Action = p.onFailure
	}
	if p.Changed("preflight") {
		s.Strategy.Preflight = p.preflight
	}

	s.Trial, err = p.trial.Merge(s.Trial)

	return err
}

// parseSteps parses the value of --steps.
func parseSteps(s string) ([]v1alpha1.RolloutStep, error) {
	words := strings.Split(s, ",")
	if len(words) > v1alpha1.MaxSteps {
		return nil, fmt.Errorf("--steps: %s are more than the limit of %d", printable.Count(len(words), "step"), v1alpha1.MaxSteps)
	}

	var steps []v1alpha1.RolloutStep
	for i, word := range words {
		word = strings.TrimSpace(word)
		length, timed := strings.CutPrefix(word, "pause:")
		switch {
		case word == "pause":
			steps = append(steps, v1alpha1.RolloutStep{Pause: &v1alpha1.RolloutPause{}})
		case timed:
			d, err := time.ParseDuration(length)
			if err != nil || d <= 0 {
				return nil, fmt.Errorf("--steps: step %d (%q): %q is not a duration: use one such as 10m or 1h30m", i, word, length)
			}

			steps = append(steps, v1alpha1.RolloutStep{Pause: &v1alpha1.RolloutPause{Duration: &metav1.Duration{Duration: d}}})
		default:
			v, err := command.ParseAmount(word, 1)
			if err != nil {
				return nil, fmt.Errorf("--steps: step %d: %w, nor pause or pause:10m", i, err)
			}

			steps = append(steps, v1alpha1.RolloutStep{Nodes: &v})
		}
	}

	return steps, nil
}

// checkGrowth returns an error if a step has fewer nodes than an earlier one in
// a rollout with this many members. That numbers and percentages each must grow
// is a rule of the API; whether 10% is less than 50 nodes depends on the
// members.
func checkGrowth(steps []v1alpha1.RolloutStep, members int32) error {
	nodes := func(s v1alpha1.RolloutStep) int32 { return min(rollout.RoundUp(s.Nodes, members), members) }
	words := func(s v1alpha1.RolloutStep) string {
		if s.Nodes.Type == intstr.String {
			return fmt.Sprintf("%s (%d of %s)", describe.StepWords(s), nodes(s), printable.Count(members, "node"))
		}

		return describe.StepWords(s)
	}
	for i, later := range steps {
		for _, earlier := range steps[:i] {
			if earlier.Nodes != nil && later.Nodes != nil && nodes(later) < nodes(earlier) {
				return fmt.Errorf("the step of %s follows the step of %s, but has fewer nodes: a step says how many nodes shall be updated when it "+
					"is done, not how many more",
					words(later), words(earlier))
			}
		}
	}

	return nil
}

// stepsFlag returns the value of --steps for these steps.
func stepsFlag(steps []v1alpha1.RolloutStep) string {
	if len(steps) == 0 { // the default
		return "1,10%,100%"
	}

	var words []string
	for _, s := range steps {
		switch {
		case s.Nodes != nil:
			words = append(words, s.Nodes.String())
		case s.Pause != nil && s.Pause.Duration != nil:
			words = append(words, "pause:"+s.Pause.Duration.Duration.String())
		default:
			words = append(words, "pause")
		}
	}

	return strings.Join(words, ",")
}
