// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Limits of trial settings.
const (
	MaxTrialDuration      = 168 * time.Hour
	MaxCrashLoopThreshold = 10
)

// trial decodes the trial settings of a grouped configuration.
func (f *fieldErrors) trial(value any) TrialSettings {
	var t TrialSettings
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
			t.Duration = &d
		case "crashLoopThreshold":
			number, _ := value.(json.Number)
			n, err := strconv.Atoi(string(number))
			if err != nil || n < 0 || n > MaxCrashLoopThreshold {
				refuse("must be a whole number from 0 to 10")
			}
			t.CrashLoopThreshold = &n
		default:
			f.add(ProblemTrial, path, unknown(key, known, keyTrial))
		}
	}
	return t
}

// ResolveTrial returns the trial settings of a payload, either from the payload itself or from spec.trial of the
// NodeConfig, which may be nil. It returns an error if both are set or if a value in spec.trial is invalid.
func ResolveTrial(own TrialSettings, spec *v1alpha1.TrialTerms) (TrialSettings, error) {
	if spec == nil || *spec == (v1alpha1.TrialTerms{}) {
		return own, nil
	}
	if given := own.given(); len(given) > 0 {
		return TrialSettings{}, fmt.Errorf("spec.trial and the payload (%s) both have trial settings: remove one of them",
			strings.Join(given, ", "))
	}
	t := TrialSettings{AllowPodLoss: spec.AllowPodLoss}
	if d := spec.ConfigTrialDuration; d != nil {
		if d.Duration <= 0 || d.Duration > MaxTrialDuration {
			return TrialSettings{}, fmt.Errorf("spec.trial.configTrialDuration must be a duration over 0 and up to 168h, such as 30m, not %s",
				d.Duration)
		}
		t.Duration = &d.Duration
	}
	if n := spec.CrashLoopThreshold; n != nil {
		if *n < 0 || *n > MaxCrashLoopThreshold {
			return TrialSettings{}, fmt.Errorf("spec.trial.crashLoopThreshold must be a whole number from 0 to %d, not %d", MaxCrashLoopThreshold,
				*n)
		}
		t.CrashLoopThreshold = new(int(*n))
	}
	return t, nil
}

// given returns the paths of the settings in a payload.
func (t TrialSettings) given() []string {
	var paths []string
	if t.AllowPodLoss {
		paths = append(paths, "trial.allowPodLoss")
	}
	if t.Duration != nil {
		paths = append(paths, "trial.configTrialDuration")
	}
	if t.CrashLoopThreshold != nil {
		paths = append(paths, "trial.crashLoopThreshold")
	}
	return paths
}
