// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"testing"

	"github.com/evenkeel/evenkeel/internal/component"
)

func TestReadinessIsResetByVersionAndGate(t *testing.T) {
	gate := func(name string, on bool) component.Effective {
		return component.Effective{"featureGates": map[string]any{name: on}}
	}
	const name = "ChangeContainerStatusOnKubeletRestart"
	for _, tt := range []struct {
		about  string
		minor  int
		config component.Effective
		want   bool
	}{
		{"older than the oldest known", 30, nil, true},
		{"1.33", 33, nil, true},
		{"1.34", 34, nil, true},
		{"1.34, which does not know the gate", 34, gate(name, false), true},
		{"1.35", 35, nil, false},
		{"1.35 with the gate", 35, gate(name, true), true},
		{"1.37 with the gate", 37, gate(name, true), true},
		{"1.37 with the gate off", 37, gate(name, false), false},
		{"1.36 with all alpha features", 36, gate("AllAlpha", true), false},
		{"1.36 with all beta features", 36, gate("AllBeta", true), false},
		{"newer than the newest known, with the gate", 38, gate(name, true), true},
		{"newer than the newest known", 38, nil, false},
	} {
		if got := ResetsReadiness(tt.config, tt.minor); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.about, got, tt.want)
		}
	}
}
