// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// lasting and allowing are the terms of a trial that set a duration, or a number
// of crashes.
func lasting(d time.Duration) v1alpha1.TrialTerms {
	return v1alpha1.TrialTerms{ConfigTrialDuration: &metav1.Duration{Duration: d}}
}

func allowing(crashes int32) v1alpha1.TrialTerms {
	return v1alpha1.TrialTerms{CrashLoopThreshold: &crashes}
}

func TestTrialSettingsOfAGroupedPayload(t *testing.T) {
	for data, want := range map[string]v1alpha1.TrialTerms{
		"": {}, "trial: {}": {},
		"trial: {configTrialDuration: 1ns}":   lasting(1),
		"trial: {configTrialDuration: 1h30m}": lasting(90 * time.Minute),
		"trial: {configTrialDuration: 168h}":  lasting(168 * time.Hour),
		"trial: {crashLoopThreshold: 0}":      allowing(0),
		"trial: {crashLoopThreshold: 10}":     allowing(10),
		"trial: {allowPodLoss: true}":         {AllowPodLoss: true},
	} {
		p := assert.Value(Decode(KeyKubelet, []byte(grouped+data)))(t, data)
		assert.NoDiff(t, cmp.Diff(want, p.Trial), data)
		_, ok := p.Fields["trial"]
		assert.That(t, !ok, "%s: the kubelet is shown the trial", data)
	}

	p := assert.Value(Decode(KeyKubelet, []byte(head+"trial: {allowPodLoss: true}")))(t)
	assert.Equal(t, p.Trial, v1alpha1.TrialTerms{}, "the terms of an upstream payload")
}

func TestTrialSettingsAreAllowedInOnlyOnePlace(t *testing.T) {
	const both = "both have trial settings: remove one of them"
	for name, tt := range map[string]struct {
		own    v1alpha1.TrialTerms
		beside *v1alpha1.TrialTerms
		want   v1alpha1.TrialTerms
		err    string
	}{
		"nowhere":                     {},
		"by the payload":              {own: v1alpha1.TrialTerms{ConfigTrialDuration: &metav1.Duration{Duration: time.Minute}, AllowPodLoss: true}, want: v1alpha1.TrialTerms{ConfigTrialDuration: &metav1.Duration{Duration: time.Minute}, AllowPodLoss: true}},
		"an empty one beside it":      {own: allowing(2), beside: &v1alpha1.TrialTerms{}, want: allowing(2)},
		"the longest":                 {beside: new(lasting(MaxTrialDuration)), want: lasting(MaxTrialDuration)},
		"no crash":                    {beside: new(allowing(0)), want: allowing(0)},
		"the most crashes":            {beside: new(allowing(MaxCrashLoopThreshold)), want: allowing(MaxCrashLoopThreshold)},
		"pods may be lost":            {beside: &v1alpha1.TrialTerms{AllowPodLoss: true}, want: v1alpha1.TrialTerms{AllowPodLoss: true}},
		"both, the same term":         {own: lasting(time.Minute), beside: new(lasting(time.Minute)), err: "spec.trial and the payload (trial.configTrialDuration) " + both},
		"both, different terms":       {own: v1alpha1.TrialTerms{AllowPodLoss: true, CrashLoopThreshold: new(int32(0))}, beside: new(lasting(time.Minute)), err: "spec.trial and the payload (trial.allowPodLoss, trial.crashLoopThreshold) " + both},
		"no duration":                 {beside: new(lasting(0)), err: "spec.trial.configTrialDuration must be a duration over 0 and up to 168h, such as 30m, not 0s"},
		"a negative duration":         {beside: new(lasting(-1)), err: "not -1ns"},
		"a duration that is too long": {beside: new(lasting(MaxTrialDuration + 1)), err: "not 168h0m0.000000001s"},
		"less than no crash":          {beside: new(allowing(-1)), err: "spec.trial.crashLoopThreshold must be a whole number from 0 to 10, not -1"},
		"too many crashes":            {beside: new(allowing(11)), err: "not 11"},
	} {
		got, err := ResolveTrial(tt.own, tt.beside)
		if tt.err != "" {
			assert.ErrorHas(t, err, tt.err, name)
			continue
		}

		assert.NoError(t, err, name)
		assert.NoDiff(t, cmp.Diff(tt.want, got), name)
	}
}

func TestErrorsOfInvalidTrialSettings(t *testing.T) {
	const (
		duration  = `trial.configTrialDuration: must be a duration over 0 and up to 168h, such as "30m", not `
		threshold = `trial.crashLoopThreshold: must be a whole number from 0 to 10, not `
		podLoss   = `trial.allowPodLoss: must be true or false, not `
	)
	for data, words := range map[string]string{
		"trial: null":                                  "trial: must be a mapping of fields, not null",
		"trial: {configTrialDuration: 30}":             duration + "30",
		"trial: {configTrialDuration: \"30\"}":         duration + `"30"`,
		"trial: {configTrialDuration: -1m}":            duration + `"-1m"`,
		"trial: {configTrialDuration: 168h0m0.1s}":     duration + `"168h0m0.1s"`,
		"trial: {configTrialDuration: {a: b}}":         duration + "a mapping",
		"trial: {crashLoopThreshold: -1}":              threshold + "-1",
		"trial: {crashLoopThreshold: 11}":              threshold + "11",
		"trial: {crashLoopThreshold: 2.5}":             threshold + "2.5",
		"trial: {crashLoopThreshold: null}":            threshold + "null",
		"trial: {allowPodLoss: \"yes\"}":               podLoss + `"yes"`,
		"trial: {bogus: 1}":                            "trial.bogus: no such field",
		"trial: {AllowPodLoss: true}":                  "trial.AllowPodLoss: no such field; did you mean trial.allowPodLoss?",
		"trial: {a: 1, crashLoopThreshold: x}\nzzz: 1": "trial.a: no such field; " + threshold + `"x"; zzz: no such field`,
	} {
		checkRefused(t, assert.Err(Decode(KeyKubelet, []byte(grouped+data))), ProblemTrial, words, data)
	}
}
