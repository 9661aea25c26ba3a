// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
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

// Merge returns old with the flags that were given in place of its fields; nil if no field is set then. The error names the
// flag.
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
