// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheMetricSaysWhenTheNextWindowOpens(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := assert.Value(newMeters(registry, "v", "c"))(t)
	value := func() (out []float64) {
		families := assert.Value(registry.Gather())(t)
		for _, f := range families {
			if f.GetName() == "evenkeel_rollout_next_window_timestamp_seconds" {
				for _, m := range f.GetMetric() {
					out = append(out, m.GetGauge().GetValue())
				}
			}
		}

		return out
	}
	opens := time.Date(2030, 1, 1, 21, 0, 0, 0, time.UTC)
	m.report("workers", &rollout.Result{Next: v1alpha1.NodeConfigRolloutStatus{NextWindowTime: new(metav1.NewTime(opens))}})
	got := value()
	assert.That(t, len(got) == 1 && got[0] == float64(opens.Unix()), "before the window: %v", got)
	m.report("workers", &rollout.Result{})
	got = value()
	assert.That(t, len(got) == 1 && got[0] == 0, "in the window: %v", got)
	m.forget("workers")
	got = value()
	assert.That(t, len(got) == 0, "of a deleted rollout: %v", got)
}
