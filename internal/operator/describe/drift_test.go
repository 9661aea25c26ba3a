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
	fields := []string{"a", "b", "c", "d", "and 7 more"}
	for name, tt := range map[string]struct {
		status        v1alpha1.NodeConfigStatus
		drifted       bool
		differs, line string
	}{
		"an older agent": {},
		"none": {
			status: v1alpha1.NodeConfigStatus{Conditions: condition("False", "NoDrift"), Drift: &v1alpha1.Drift{}},
			line:   "none", differs: "words",
		},
		"without the right": {
			status: v1alpha1.NodeConfigStatus{Conditions: condition("False", "FilesUnchanged"), Drift: &v1alpha1.Drift{NotCompared: "why"}},
			line:   "none in local files; /configz is not compared: why", differs: "words",
		},
		"one file": {
			status:  v1alpha1.NodeConfigStatus{Conditions: condition("True", "FilesEdited"), Drift: &v1alpha1.Drift{Files: []string{"/etc/a"}, NotCompared: "why"}},
			drifted: true, differs: "file: /etc/a", line: "FilesEdited, since 5m ago: words",
		},
		"several fields": {
			status:  v1alpha1.NodeConfigStatus{Conditions: condition("True", "ConfigzDiffers"), Drift: &v1alpha1.Drift{Fields: fields, Files: []string{"/etc/a"}}},
			drifted: true, differs: "running: a, b, c, ...; file: /etc/a", line: "ConfigzDiffers, since 5m ago: words (running: a, b, c, d, and 7 more; file: /etc/a)",
		},
		"a CRD that omits the details": {
			status: v1alpha1.NodeConfigStatus{Conditions: condition("True", "FilesEdited")}, drifted: true, differs: "words", line: "FilesEdited, since 5m ago: words",
		},
	} {
		v := &Node{Row: Row{Drift: driftOf(&tt.status)}}
		assert.Equal(t, v.Drift.Drifted(), tt.drifted, name, "drifted")
		assert.Equal(t, v.driftLine(func(at metav1.Time) string { return Age(at, now) + " ago" }), tt.line, name, "the line")
		if v.Drift != nil {
			assert.Equal(t, v.Drift.Differs(3), tt.differs, name, "it differs in")
		}
	}
}
