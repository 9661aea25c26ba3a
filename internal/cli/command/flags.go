// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/program"
)

// TrialFlags are the flags that change the trial on each node.
type TrialFlags struct {
	duration, threshold string
	podLoss             bool
	changed             func(flag string) bool
}

// Add adds the flags to a command.
func (t *TrialFlags) Add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.duration, "trial-duration", "", "how long the kubelet must stay healthy on trial, such as 30m; empty: the agent's default")
	f.StringVar(&t.threshold, "crash-loop-threshold", "",
		"how many unexpected restarts of the kubelet a trial tolerates, 0 to 10; empty: the agent's default")
	f.BoolVar(&t.podLoss, "allow-pod-loss", false, "let nodes adopt it even if their kubelets end pods because of it")
	t.changed = f.Changed
}

// Changed reports whether one of the flags was given.
func (t TrialFlags) Changed() bool {
	return t.changed("trial-duration") || t.changed("crash-loop-threshold") || t.changed("allow-pod-loss")
}

// Merge returns old with the flags that were given in place of its fields; nil
// if no field is set then. The error names the flag.
func (t TrialFlags) Merge(old *v1alpha1.TrialTerms) (*v1alpha1.TrialTerms, error) {
	merged := v1alpha1.TrialTerms{}
	if old != nil {
		merged = *old
	}

	if t.changed("trial-duration") {
		merged.ConfigTrialDuration = nil
		if t.duration != "" {
			d, err := time.ParseDuration(t.duration)
			if err != nil || d <= 0 || d > payload.MaxTrialDuration {
				return nil, fmt.Errorf("--trial-duration must be longer than 0 and at most 168h, such as 30m, not %q", t.duration)
			}

			merged.ConfigTrialDuration = &metav1.Duration{Duration: d}
		}
	}

	if t.changed("crash-loop-threshold") {
		merged.CrashLoopThreshold = nil
		if t.threshold != "" {
			n, err := strconv.ParseInt(t.threshold, 10, 32)
			if err != nil || n < 0 || n > payload.MaxCrashLoopThreshold {
				return nil, fmt.Errorf("--crash-loop-threshold must be a number from 0 to %d, not %q", payload.MaxCrashLoopThreshold, t.threshold)
			}

			merged.CrashLoopThreshold = new(int32(n))
		}
	}

	if t.changed("allow-pod-loss") {
		merged.AllowPodLoss = t.podLoss
	}
	if merged == (v1alpha1.TrialTerms{}) {
		return nil, nil
	}

	return &merged, nil
}

// ParseAmount reads a number or a percentage that is at least least.
func ParseAmount(s string, least int) (intstr.IntOrString, error) {
	number, percent := strings.CutSuffix(s, "%")
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || int(n) < least || percent && n > 100 || number != strconv.FormatInt(n, 10) {
		return intstr.IntOrString{}, fmt.Errorf("%q is neither a number from %d nor a percentage up to 100%%: use one such as 2 or 10%%", s,
			least)
	}

	if percent {
		return intstr.FromString(s), nil
	}

	return intstr.FromInt32(int32(n)), nil
}

// Args returns a check of the number of arguments. The error names the command,
// and goes on with words about what it takes.
func Args(least, most int, words string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most || slices.Contains(args, "") {
			return fmt.Errorf("%s %s", cmd.CommandPath(), words)
		}

		return nil
	}
}

// NoArgs is the check of a command without arguments.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, got %q: see %[1]s --help", cmd.CommandPath(), strings.Join(args, " "))
	}

	return nil
}

// Group makes cmd a command that only has subcommands: an unknown subcommand is
// an error.
func Group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return UnknownCommand(cmd, args[0])
		}

		return cmd.Help()
	}

	return cmd
}

// AddTitled adds subcommands below a title in the help of their parent.
func AddTitled(parent *cobra.Command, title string, cmds ...*cobra.Command) {
	parent.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, cmd := range cmds {
		cmd.GroupID = title
	}

	parent.AddCommand(cmds...)
}

// UnknownCommand returns the error for a subcommand that a command does not
// have.
func UnknownCommand(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2
	similar := cmd.SuggestionsFor(name)
	if len(similar) == 0 && cmd == cmd.Root() { // a subcommand of another noun, such as "approve"
		for _, noun := range cmd.Commands() {
			for _, sub := range noun.Commands() {
				if sub.Name() == name && sub.IsAvailableCommand() {
					similar = append(similar, noun.Name()+" "+name)
				}
			}
		}
	}

	return fmt.Errorf("unknown command %q for %q%s: see %[2]s --help", name, cmd.CommandPath(), didYouMean(similar))
}

// FlagError returns the error for a wrong flag: it names a similar flag, or
// what the flag takes.
func FlagError(cmd *cobra.Command, err error) error {
	if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 { // a mistyped command, with a flag that only the command has
		return UnknownCommand(cmd, cmd.Flags().Arg(0))
	}

	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		var similar []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			near := payload.EditDistance(name, f.Name) <= min(2, len(name)/2-1) || strings.HasPrefix(f.Name, name)
			if near && len(name) > 1 && !f.Hidden {
				similar = append(similar, "--"+f.Name)
			}
		})

		return fmt.Errorf("%w%s: see %s --help", err, didYouMean(similar), cmd.CommandPath())
	case errors.As(err, &invalid):
		why := invalid.Unwrap()
		if words := map[string]string{
			"duration": "use a duration, such as 30s, 10m or 1h30m", "int": "use a whole number", "int32": "use a whole number",
			"int64": "use a whole number", "bool": "use true or false",
		}[invalid.GetFlag().Value.Type()]; words != "" {
			why = errors.New(words)
		}

		return fmt.Errorf("--%s: %q is not valid: %w; see %s --help", invalid.GetFlag().Name, invalid.GetValue(), why, cmd.CommandPath())
	}

	return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
}

// UsageError is FlagError for a command with an exit code for wrong usage.
func UsageError(cmd *cobra.Command, err error) error { return program.Usage("%w", FlagError(cmd, err)) }

func didYouMean(names []string) string {
	if len(names) == 0 {
		return ""
	}

	return " (did you mean " + strings.Join(names, " or ") + "?)"
}
