// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// CheckAdmission returns an error for what the admission policy
// evenkeel-rollout refuses, with the same message: an admission policy takes
// effect a moment after it was applied, and may have been deleted.
func CheckAdmission(r *v1alpha1.NodeConfigRollout) error {
	s := &r.Spec
	var bad []string
	if !validSelector(&s.NodeSelector) {
		bad = append(bad, "spec.nodeSelector")
	}
	if !validSelector(&v1alpha1.Selector{MatchLabels: s.Strategy.CanarySelector}) {
		bad = append(bad, "spec.strategy.canarySelector")
	}

	if len(bad) > 0 {
		return fmt.Errorf("%s has a key or a value that no label of a node can have: a key is such as topology.kubernetes.io/zone, "+
			"a value has at most 63 letters, digits, dashes, dots and underscores, and letters or digits at both ends", strings.Join(bad, ", "))
	}

	amounts := map[intstr.Type][]int32{} // numbers and percentages
	for _, step := range s.Strategy.Steps {
		if n := step.Nodes; n != nil && (n.Type == intstr.Int || checkAmount(n) == nil) {
			amounts[n.Type] = append(amounts[n.Type], rollout.RoundUp(n, 100))
		}
	}

	for _, kind := range []intstr.Type{intstr.Int, intstr.String} {
		if slices.IsSorted(amounts[kind]) {
			continue
		}

		var words []string
		for _, n := range amounts[kind] {
			words = append(words, fmt.Sprint(n)+map[intstr.Type]string{intstr.String: "%"}[kind])
		}

		return fmt.Errorf("spec.strategy.steps must not go down, but go %s: a step says how many nodes shall be updated when it is done, not "+
			"how many more", strings.Join(words, ", "))
	}

	steps := len(s.Strategy.Steps)
	if steps == 0 {
		steps = len(defaultSteps())
	}

	// Later, the approval may refer to an earlier revision and its steps.
	if a := s.Approval; a != nil && r.Status.UpdateRevision == nil && int(a.Step) >= steps {
		return fmt.Errorf("spec.approval.step is %d, but the last step is %d, counted from 0: set it to the step that waits, status.step", a.Step,
			steps-1)
	}

	return nil
}

// validSelector reports whether a node could have the labels of a selector.
func validSelector(s *v1alpha1.Selector) bool {
	keys, values := slices.Collect(maps.Keys(s.MatchLabels)), slices.Collect(maps.Values(s.MatchLabels))
	for _, e := range s.MatchExpressions {
		keys, values = append(keys, e.Key), append(values, e.Values...)
	}

	return !slices.ContainsFunc(keys, func(key string) bool { return len(validation.IsQualifiedName(key)) > 0 }) &&
		!slices.ContainsFunc(values, func(value string) bool { return len(validation.IsValidLabelValue(value)) > 0 })
}
