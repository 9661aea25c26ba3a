package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// strategyFlags are the flags of addStrategy.
var strategyFlags = []string{"drop-in", "selector", "all-nodes", "steps", "max-unavailable", "max-failures", "on-failure", "inline"}

// addStrategy adds the flags that say to which nodes a rollout goes, and how.
func (p *push) addStrategy(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&p.selector, "selector", "l", "", "labels of the nodes, such as node-restriction.kubernetes.io/pool=workers")
	f.BoolVar(&p.allNodes, "all-nodes", false, "every node is meant")
	f.StringVar(&p.steps, "steps", "", "steps, such as 1,pause:10m,10%,pause,100%")
	f.StringVar(&p.maxUnavailable, "max-unavailable", "", "how many nodes may be in flight or failed at a time, such as 5 or 10%")
	f.StringVar(&p.maxFailures, "max-failures", "", "how many failed nodes stop the rollout, such as 1 or 2%")
	f.StringVar(&p.onFailure, "on-failure", "", "what a stop does: pause or rollback")
	f.BoolVar(&p.inline, "inline", false, "replace a template that names a ConfigMap")
	_ = cmd.RegisterFlagCompletionFunc("on-failure", cobra.FixedCompletions([]string{"pause", "rollback"}, cobra.ShellCompDirectiveNoFileComp))
}

// flags writes what was given into a spec. The error names the flag.
func (p push) flags(s *v1alpha1.NodeConfigRolloutSpec) error {
	if p.given("selector") && p.allNodes {
		return errors.New("--selector and --all-nodes contradict each other: give one")
	}
	if p.given("selector") {
		selector, err := metav1.ParseToLabelSelector(p.selector)
		if err != nil {
			return fmt.Errorf("--selector: %w", err)
		}
		if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
			return errors.New("--selector is empty: give labels, or --all-nodes if every node is meant")
		}
		s.NodeSelector, s.AllNodes = *selector, false
	}
	if p.allNodes {
		s.NodeSelector, s.AllNodes = metav1.LabelSelector{}, true
	}
	if p.given("steps") {
		steps, err := parseSteps(p.steps)
		if err != nil {
			return err
		}
		s.Strategy.Steps = steps
	}
	if p.given("max-unavailable") {
		v, err := parseAmount(p.maxUnavailable, 0)
		if err != nil {
			return fmt.Errorf("--max-unavailable: %w", err)
		}
		s.Strategy.MaxUnavailable = &v
	}
	if p.given("max-failures") {
		v, err := parseAmount(p.maxFailures, 1)
		if err != nil {
			return fmt.Errorf("--max-failures: %w", err)
		}
		s.FailurePolicy.MaxFailures = &v
	}
	if p.given("on-failure") {
		switch strings.ToLower(p.onFailure) {
		case "pause":
			s.FailurePolicy.Action = v1alpha1.FailureActionPause
		case "rollback":
			s.FailurePolicy.Action = v1alpha1.FailureActionRollback
		default:
			return fmt.Errorf("--on-failure must be pause or rollback, not %q", p.onFailure)
		}
	}
	return nil
}

// parseSteps reads the value of --steps.
func parseSteps(s string) ([]v1alpha1.RolloutStep, error) {
	words := strings.Split(s, ",")
	if len(words) > v1alpha1.MaxSteps {
		return nil, fmt.Errorf("--steps: %d steps are more than %d", len(words), v1alpha1.MaxSteps)
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
				return nil, fmt.Errorf("--steps: step %d (%q): %q is no duration, such as 10m or 1h30m", i, word, length)
			}
			steps = append(steps, v1alpha1.RolloutStep{Pause: &v1alpha1.RolloutPause{Duration: &metav1.Duration{Duration: d}}})
		default:
			v, err := parseAmount(word, 1)
			if err != nil {
				return nil, fmt.Errorf("--steps: step %d: %w; nor is it pause or pause:10m", i, err)
			}
			steps = append(steps, v1alpha1.RolloutStep{Nodes: &v})
		}
	}
	return steps, nil
}

// parseAmount reads a number or a percentage, of at least least.
func parseAmount(s string, least int) (intstr.IntOrString, error) {
	number, percent := strings.CutSuffix(s, "%")
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || int(n) < least || percent && n > 100 || number != strconv.FormatInt(n, 10) {
		return intstr.IntOrString{}, fmt.Errorf("%q is neither a number from %d nor a percentage up to 100%%", s, least)
	}
	if percent {
		return intstr.FromString(s), nil
	}
	return intstr.FromInt32(int32(n)), nil
}
