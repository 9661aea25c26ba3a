// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// Defaults of optional fields. The CRD has the same.
var (
	defaultMaxUnavailable = intstr.FromString("10%")
	DefaultMaxFailures    = intstr.FromInt32(1)
)

// defaultSteps are the steps of a strategy without steps.
func defaultSteps() []v1alpha1.RolloutStep {
	return []v1alpha1.RolloutStep{{Nodes: new(intstr.FromInt32(1))}, {Nodes: new(intstr.FromString("10%"))},
		{Nodes: new(intstr.FromString("100%"))}}
}

// Complete returns the spec of a rollout with all defaults, and its windows.
// The error names the first invalid field; the CRD and the admission policy
// refuse the same values. Amounts that are invalid become 0.
func Complete(r *v1alpha1.NodeConfigRollout) (v1alpha1.NodeConfigRolloutSpec, []rollout.Window, error) {
	s := r.Spec // what is changed is copied
	var err error
	amount := func(field string, v **intstr.IntOrString, otherwise *intstr.IntOrString) {
		if *v = cmp.Or(*v, otherwise); *v == nil {
			return
		}

		if e := checkAmount(*v); e != nil {
			err = cmp.Or(err, fmt.Errorf("spec.%s: %w", field, e))
			*v = new(intstr.FromInt32(0))
		}
	}
	amount("strategy.maxUnavailable", &s.Strategy.MaxUnavailable, &defaultMaxUnavailable)
	amount("strategy.maxJoining", &s.Strategy.MaxJoining, nil)
	amount("strategy.maxUnavailablePerDomain", &s.Strategy.MaxUnavailablePerDomain, nil)
	amount("failurePolicy.maxFailures", &s.FailurePolicy.MaxFailures, &DefaultMaxFailures)
	amount("rollback.maxUnavailable", &s.Rollback.MaxUnavailable, new(intstr.FromString("25%")))
	if s.Strategy.Steps = slices.Clone(s.Strategy.Steps); len(s.Strategy.Steps) == 0 {
		s.Strategy.Steps = defaultSteps()
	}

	for i := range s.Strategy.Steps {
		step := &s.Strategy.Steps[i]
		if amount(fmt.Sprintf("strategy.steps[%d].nodes", i), &step.Nodes, nil); step.Nodes == nil && step.Pause == nil {
			step.Pause = &v1alpha1.RolloutPause{}
		}
	}

	s.NodeTimeoutSeconds = cmp.Or(s.NodeTimeoutSeconds, 900)
	s.ProgressDeadlineSeconds = cmp.Or(s.ProgressDeadlineSeconds, 3600)
	s.RevisionHistoryLimit = new(int32(HistoryLimit(&s)))
	s.Strategy.DrainOptions = completeDrain(s.Strategy.DrainOptions)
	if a := s.Retry; a != nil && !numbered(a.Revision, a.Attempt) {
		s.Retry = nil
	}

	s.Strategy.Gates = slices.Clone(s.Strategy.Gates)
	for i := range s.Strategy.Gates {
		err = cmp.Or(err, completeGate(&s.Strategy.Gates[i], i))
	}

	windows, e := windowsOf(s.Strategy.Windows)

	return s, windows, cmp.Or(err, e, CheckAdmission(r))
}

// HistoryLimit returns how many revisions that no node names a rollout keeps.
func HistoryLimit(s *v1alpha1.NodeConfigRolloutSpec) int {
	if l := s.RevisionHistoryLimit; l != nil {
		return int(*l)
	}

	return 10
}

// checkAmount returns an error for what is neither a number nor a percentage.
func checkAmount(v *intstr.IntOrString) error {
	if v.Type == intstr.Int {
		if v.IntVal < 0 {
			return fmt.Errorf("%d is negative", v.IntVal)
		}

		return nil
	}

	if n, err := intstr.GetScaledValueFromIntOrPercent(v, 100, false); err != nil || !strings.HasSuffix(v.StrVal, "%") || n < 0 || n > 100 {
		return fmt.Errorf("%q is neither a number nor a percentage from 0%% to 100%%", v.StrVal)
	}

	return nil
}

func completeDrain(given *v1alpha1.DrainOptions) *v1alpha1.DrainOptions {
	var o v1alpha1.DrainOptions
	if given != nil {
		o = *given
	}

	o.TimeoutSeconds = cmp.Or(o.TimeoutSeconds, 900)
	o.UnmanagedPods = cmp.Or(o.UnmanagedPods, v1alpha1.DrainRefuse)
	o.LocalData = cmp.Or(o.LocalData, v1alpha1.DrainRefuse)

	return &o
}

// Limits of a gate's interval, as in the CRD.
const (
	shortestGateInterval = 10 * time.Second
	longestGateInterval  = 24 * time.Hour
)

// completeGate sets the defaults of a gate.
func completeGate(g *v1alpha1.RolloutGate, i int) error {
	g.Failures = cmp.Or(g.Failures, 1)
	if g.Interval == nil {
		g.Interval = &metav1.Duration{Duration: time.Minute}
	}
	if _, err := rollout.ComparisonOf(g.Prometheus.Passes); err != nil {
		return fmt.Errorf("%s.prometheus.passes: %w", gateField(i), err)
	}
	if d := g.Interval.Duration; d < shortestGateInterval || d > longestGateInterval {
		return fmt.Errorf("%s.interval must be from %s to %s, not %s", gateField(i), shortestGateInterval, longestGateInterval, d)
	}

	return nil
}

func gateField(i int) string { return fmt.Sprintf("spec.strategy.gates[%d]", i) }

// checkDrain returns an error if a rollout drains nodes and the controller may
// not. Before the controller has asked for its permissions, other programs
// assume that it may.
func checkDrain(s *v1alpha1.NodeConfigRolloutSpec, c *v1alpha1.RolloutController) error {
	if !rollout.Drains(s) || c.Drain == nil || *c.Drain {
		return nil
	}

	return fmt.Errorf("spec.strategy.drain is %s, but the controller may not evict pods or patch Nodes: grant it with kubectl apply -k "+
		"config/drain "+
		"(or helm upgrade with --set drain.enabled=true), or set drain to Never", s.Strategy.Drain)
}

// checkServers returns an error if a gate names a Prometheus server that the
// controller does not have.
func checkServers(s *v1alpha1.NodeConfigRolloutSpec, c *v1alpha1.RolloutController) error {
	if c.PrometheusServers == nil {
		return nil // not known here
	}

	for i := range s.Strategy.Gates {
		switch server := s.Strategy.Gates[i].Prometheus.Server; {
		case slices.Contains(c.PrometheusServers, server):
		case len(c.PrometheusServers) == 0:
			return fmt.Errorf("%s.prometheus.server: the controller has no Prometheus server: start it with --prometheus-server=%s=URL",
				gateField(i), server)
		default:
			return fmt.Errorf("%s.prometheus.server: the controller has no Prometheus server %q, only %s: name one of these, or start it with "+
				"--prometheus-server=%s=URL",
				gateField(i), server, strings.Join(c.PrometheusServers, ", "), server)
		}
	}

	return nil
}

// DefaultSettings are the defaults of the controller's flags.
var DefaultSettings = v1alpha1.RolloutController{
	Namespace: v1alpha1.SystemNamespace, AgentTimeout: metav1.Duration{Duration: time.Minute},
	NotReadyGrace: metav1.Duration{Duration: 30 * time.Second},
}

// SettingsOf returns the settings that the controller published in a rollout,
// else in another one: one controller runs all rollouts, and may not have
// processed this one yet. Without any, it returns the defaults.
func SettingsOf(r *v1alpha1.NodeConfigRollout, others []v1alpha1.NodeConfigRollout) v1alpha1.RolloutController {
	c := r.Status.Controller
	if c == nil {
		return SettingsIn(others)
	}

	out := *c
	out.PrometheusServers = append([]string{}, c.PrometheusServers...) // known, even if there are none

	return out
}

// SettingsIn returns the settings that the controller published in one of these
// rollouts, else the defaults.
func SettingsIn(all []v1alpha1.NodeConfigRollout) v1alpha1.RolloutController {
	for i := range all {
		if all[i].Status.Controller != nil {
			return SettingsOf(&all[i], nil)
		}
	}

	return DefaultSettings
}
