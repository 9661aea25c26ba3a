// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Limits of trial settings.
const (
	MaxTrialDuration      = 168 * time.Hour
	MaxCrashLoopThreshold = 10
)

// trial decodes the trial settings of a grouped configuration.
func (f *fieldErrors) trial(value any) v1alpha1.TrialTerms {
	var t v1alpha1.TrialTerms
	settings, ok := value.(map[string]any)
	if !ok {
		f.add(ProblemTrial, keyTrial, "must be a mapping of fields, not "+describe(value))
		return t
	}

	known := []string{"allowPodLoss", "configTrialDuration", "crashLoopThreshold"}
	for _, key := range keys(settings) {
		path, value := join(keyTrial, pathPart(key)), settings[key]
		refuse := func(must string) { f.add(ProblemTrial, path, must+", not "+describe(value)) }
		switch key {
		case "allowPodLoss":
			if t.AllowPodLoss, ok = value.(bool); !ok {
				refuse("must be true or false")
			}
		case "configTrialDuration":
			text, _ := value.(string)
			d, err := time.ParseDuration(text)
			if err != nil || d <= 0 || d > MaxTrialDuration {
				refuse(`must be a duration over 0 and up to 168h, such as "30m"`)
			}

			t.ConfigTrialDuration = &metav1.Duration{Duration: d}
		case "crashLoopThreshold":
			number, _ := value.(json.Number)
			n, err := strconv.ParseInt(string(number), 10, 32)
			if err != nil || n < 0 || n > MaxCrashLoopThreshold {
				refuse("must be a whole number from 0 to 10")
			}

			t.CrashLoopThreshold = new(int32(n))
		default:
			f.add(ProblemTrial, path, unknown(key, known, keyTrial))
		}
	}

	return t
}

// ResolveTrial returns the trial settings of a payload, either from the payload
// itself or from spec.trial of the NodeConfig, which may be nil. It returns an
// error if both are set or if a value in spec.trial is invalid.
func ResolveTrial(own v1alpha1.TrialTerms, spec *v1alpha1.TrialTerms) (v1alpha1.TrialTerms, error) {
	if spec == nil || *spec == (v1alpha1.TrialTerms{}) {
		return own, nil
	}

	refuse := func(format string, args ...any) (v1alpha1.TrialTerms, error) {
		return v1alpha1.TrialTerms{}, fmt.Errorf(format, args...)
	}
	if own := given(own); len(own) > 0 {
		return refuse("spec.trial and the payload (%s) both have trial settings: remove one of them", strings.Join(own, ", "))
	}
	if d := spec.ConfigTrialDuration; d != nil && (d.Duration <= 0 || d.Duration > MaxTrialDuration) {
		return refuse("spec.trial.configTrialDuration must be a duration over 0 and up to 168h, such as 30m, not %s", d.Duration)
	}
	if n := spec.CrashLoopThreshold; n != nil && (*n < 0 || *n > MaxCrashLoopThreshold) {
		return refuse("spec.trial.crashLoopThreshold must be a whole number from 0 to %d, not %d", MaxCrashLoopThreshold, *n)
	}

	return *spec, nil
}

// given returns the paths of the settings in a payload.
func given(t v1alpha1.TrialTerms) []string {
	var paths []string
	if t.AllowPodLoss {
		paths = append(paths, "trial.allowPodLoss")
	}
	if t.ConfigTrialDuration != nil {
		paths = append(paths, "trial.configTrialDuration")
	}
	if t.CrashLoopThreshold != nil {
		paths = append(paths, "trial.crashLoopThreshold")
	}

	return paths
}
