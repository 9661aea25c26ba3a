package rollout

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
	"github.com/evenkeel/evenkeel/internal/payload"
)

// strategyFlags are the flags of addStrategy.
var strategyFlags = []string{"drop-in", "selector", "all-nodes", "steps", "max-unavailable", "max-joining", "max-failures", "on-failure", "inline",
	"trial-duration", "crash-loop-threshold", "allow-pod-loss"}

// addStrategy adds the flags that say to which nodes a rollout goes, and how.
func (p *push) addStrategy(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&p.selector, "selector", "l", "", "labels of the nodes, such as node-restriction.kubernetes.io/pool=workers")
	f.BoolVar(&p.allNodes, "all-nodes", false, "every node is meant")
	f.StringVar(&p.steps, "steps", "", "steps, such as 1,pause:10m,10%,pause,100%")
	f.StringVar(&p.maxUnavailable, "max-unavailable", "", "how many nodes may be in flight or failed at a time, such as 5 or 10%")
	f.StringVar(&p.maxJoining, "max-joining", "", "how many nodes that joined may be in flight at a time, such as 5 or 10%")
	f.StringVar(&p.maxFailures, "max-failures", "", "how many failed nodes stop the rollout, such as 1 or 2%")
	f.StringVar(&p.onFailure, "on-failure", "", "what a stop does: pause or rollback")
	p.terms.add(cmd)
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
	if p.given("max-joining") {
		v, err := parseAmount(p.maxJoining, 0)
		if err != nil {
			return fmt.Errorf("--max-joining: %w", err)
		}
		s.Strategy.MaxJoining = &v
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
	var err error
	s.Trial, err = p.terms.over(s.Trial)
	return err
}

// trialFlags are the flags that ask something of the trial on each node.
type trialFlags struct {
	duration, threshold string
	podLoss             bool
	given               func(flag string) bool
}

func (t *trialFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.duration, "trial-duration", "", "how long the kubelet must be healthy with it on a node, such as 30m; empty: as the node's agent has it")
	f.StringVar(&t.threshold, "crash-loop-threshold", "", "how often the kubelet may be started again in its trial, 0 to 10; empty: as the node's agent has it")
	f.BoolVar(&t.podLoss, "allow-pod-loss", false, "nodes may take it up although their kubelets end pods for it")
	t.given = f.Changed
}

// any reports whether one was given.
func (t trialFlags) any() bool {
	return t.given("trial-duration") || t.given("crash-loop-threshold") || t.given("allow-pod-loss")
}

// over returns the terms that were given, and those that there are where none was; nil if that is none. The error names the
// flag.
func (t trialFlags) over(old *v1alpha1.TrialTerms) (*v1alpha1.TrialTerms, error) {
	terms := v1alpha1.TrialTerms{}
	if old != nil {
		terms = *old
	}
	if t.given("trial-duration") {
		terms.ConfigTrialDuration = nil
		if t.duration != "" {
			d, err := time.ParseDuration(t.duration)
			if err != nil || d <= 0 || d > payload.MaxTrialDuration {
				return nil, fmt.Errorf("--trial-duration must be more than nothing and at most 168h, such as 30m, not %q", t.duration)
			}
			terms.ConfigTrialDuration = &metav1.Duration{Duration: d}
		}
	}
	if t.given("crash-loop-threshold") {
		terms.CrashLoopThreshold = nil
		if t.threshold != "" {
			n, err := strconv.ParseInt(t.threshold, 10, 32)
			if err != nil || n < 0 || n > payload.MaxCrashLoopThreshold {
				return nil, fmt.Errorf("--crash-loop-threshold must be a number from 0 to %d, not %q", payload.MaxCrashLoopThreshold, t.threshold)
			}
			terms.CrashLoopThreshold = new(int32(n))
		}
	}
	if t.given("allow-pod-loss") {
		terms.AllowPodLoss = t.podLoss
	}
	if terms == (v1alpha1.TrialTerms{}) {
		return nil, nil
	}
	return &terms, nil
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

// stepsFlag is the value of --steps that means these steps.
func stepsFlag(steps []v1alpha1.RolloutStep) string {
	if len(steps) == 0 { // what the controller makes of none
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
