// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestProgressOfATrialIsWrittenAtEachTenth(t *testing.T) {
	node, p, r := reporting(t)
	createNode(t, node)
	report := Report{Status: someStatus("a")}
	at := func(seconds int64) {
		report.Status.Trial = &v1alpha1.Trial{DurationSeconds: 50, HealthySeconds: seconds}
		r.Report(report)
		r.Flush(t.Context())
	}
	for second := range int64(50) {
		at(second)
	}

	assert.Equal(t, p.count("PATCH"), 1+10, "writes")
	at(20) // the agent was killed, and counts from an older record
	at(49)
	s := getNodeConfig(t, node).Status
	assert.That(t, p.count("PATCH") == 11 && s.Trial.HealthySeconds == 45, "%d writes and %d healthy seconds, want still 11 and 45", p.count("PATCH"), s.Trial.HealthySeconds)
}

func TestProgress(t *testing.T) {
	at := func(seconds, of int64) *v1alpha1.Trial {
		return &v1alpha1.Trial{HealthySeconds: seconds, DurationSeconds: of}
	}
	for name, tt := range map[string]struct {
		now, written *v1alpha1.Trial
		want         bool
	}{
		"no trial":                        {nil, nil, false},
		"a trial that began":              {at(0, 600), nil, false}, // another difference
		"healthy for the first time":      {at(1, 600), at(0, 600), true},
		"less than a tenth":               {at(59, 600), at(1, 600), false},
		"a tenth":                         {at(60, 600), at(59, 600), true},
		"several":                         {at(500, 600), at(59, 600), true},
		"backwards":                       {at(10, 600), at(500, 600), false},
		"no duration":                     {at(10, 0), at(0, 0), false},
		"an older one without a duration": {at(10, 20), at(0, 0), true},
	} {
		assert.Equal(t, progressed(tt.now, tt.written), tt.want, name)
	}
}

func TestProgressOfARefusedStatusIsTriedAgainAtEachTenthOnly(t *testing.T) {
	w := statusWriter{uid: "u", now: time.Now, written: someStatus("minimal")}
	refused := someStatus("full")
	w.written.Conditions[0].LastTransitionTime = metav1.Now()
	refused.Conditions[0].LastTransitionTime = w.written.Conditions[0].LastTransitionTime
	refused.Trial = &v1alpha1.Trial{HealthySeconds: 5, DurationSeconds: 100}
	w.refused = &refused
	again := *refused.DeepCopy()
	again.Trial.HealthySeconds = 9
	assert.NoError(t, w.write(t.Context(), Report{NodeConfigUID: "u", Status: again}), "it was written")
}
