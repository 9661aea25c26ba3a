// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestDriftIsDescribedOnceAndWithItsDetails(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	condition := func(status metav1.ConditionStatus, reason string) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionDrifted, Status: status, Reason: reason, Message: "words", LastTransitionTime: metav1.NewTime(now.Add(-5 * time.Minute))}}
	}
	fields, files := []string{"a", "b", "c", "d", "and 7 more"}, []string{"/etc/a"}
	for name, tt := range map[string]struct {
		conditions    []metav1.Condition
		drift         *v1alpha1.Drift
		drifted       bool
		differs, line string
	}{
		"an older agent": {},
		"none":           {condition("False", "NoDrift"), &v1alpha1.Drift{}, false, "words", "none"},
		"without the right": {condition("False", "FilesUnchanged"), &v1alpha1.Drift{NotCompared: "why"}, false,
			"words", "none in local files; /configz is not compared: why"},
		"one file": {condition("True", "FilesEdited"), &v1alpha1.Drift{Files: files, NotCompared: "why"}, true,
			"file: /etc/a", "FilesEdited, since 5m ago: words"},
		"several fields": {condition("True", "ConfigzDiffers"), &v1alpha1.Drift{Fields: fields, Files: files}, true,
			"running: a, b, c, ...; file: /etc/a", "ConfigzDiffers, since 5m ago: words (running: a, b, c, d, and 7 more; file: /etc/a)"},
		"a CRD that omits the details": {condition("True", "FilesEdited"), nil, true, "words", "FilesEdited, since 5m ago: words"},
	} {
		v := &Node{Row: Row{Drift: driftOf(&v1alpha1.NodeConfigStatus{Conditions: tt.conditions, Drift: tt.drift})}}
		assert.Equal(t, v.Drift.Drifted(), tt.drifted, name, "drifted")
		assert.Equal(t, v.driftLine(func(at metav1.Time) string { return Age(at, now) + " ago" }), tt.line, name, "the line")
		if v.Drift != nil {
			assert.Equal(t, v.Drift.Differs(3), tt.differs, name, "it differs in")
		}
	}
}
