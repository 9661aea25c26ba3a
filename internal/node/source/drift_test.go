// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// A status without drift is that of an agent that has not compared its kubelet
// yet.
func TestAStartEndsReportedDriftAndWritesNothingElse(t *testing.T) {
	node, p, r := reporting(t)
	compared := func(status metav1.ConditionStatus, files ...string) v1alpha1.NodeConfigStatus {
		s := someStatus("a")
		s.Drift = &v1alpha1.Drift{NotCompared: "why", Files: files}
		s.Conditions = append(s.Conditions, metav1.Condition{Type: v1alpha1.ConditionDrifted, Status: status, Reason: "R", Message: "m", ObservedGeneration: 1})
		return s
	}
	drifted := func() *metav1.Condition {
		return meta.FindStatusCondition(getNodeConfig(t, node).Status.Conditions, v1alpha1.ConditionDrifted)
	}
	report := func(r *Reporter, s v1alpha1.NodeConfigStatus, writes int, want metav1.ConditionStatus) {
		t.Helper()
		before := p.count("PATCH")
		r.Report(Report{Status: s})
		r.Flush(t.Context())
		got := metav1.ConditionStatus("")
		if c := drifted(); c != nil {
			got = c.Status
		}

		n := p.count("PATCH") - before
		assert.That(t, n == writes && got == want, "%d writes, want %d; Drifted is %q, want %q", n, writes, got, want)
	}
	report(r, compared(metav1.ConditionFalse), 1, metav1.ConditionFalse)
	first := drifted().LastTransitionTime
	report(r, someStatus("a"), 0, metav1.ConditionFalse)
	report(r, compared(metav1.ConditionFalse), 0, metav1.ConditionFalse)

	// So it is for the next agent, whose status differs in something else.
	next := NewReporter(newClient(t, p.Kubeconfig), node, "evenkeel-agent", quiet())
	background(t, next.Run)
	newer := someStatus("a")
	newer.AgentVersion, newer.ObservedGeneration = "v1", 2
	report(next, newer, 1, metav1.ConditionFalse)
	if c := drifted(); !c.LastTransitionTime.Equal(&first) || c.ObservedGeneration != 2 || getNodeConfig(t, node).Status.Drift.NotCompared != "why" {
		t.Errorf("the condition is %+v, the drift %+v", c, getNodeConfig(t, node).Status.Drift)
	}

	report(next, compared(metav1.ConditionTrue, "/etc/a"), 1, metav1.ConditionTrue)
	report(next, someStatus("a"), 1, "")
	d := getNodeConfig(t, node).Status.Drift
	assert.That(t, d == nil, "drift is %+v", d)
}
