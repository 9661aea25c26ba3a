package controller

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
)

func TestTheMetricSaysWhenTheNextWindowOpens(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := newMeters(registry, "v", "c")
	if err != nil {
		t.Fatal(err)
	}
	value := func() (out []float64) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
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
	m.report("workers", &rollout.Result{NextWindow: opens})
	if got := value(); len(got) != 1 || got[0] != float64(opens.Unix()) {
		t.Errorf("before the window: %v", got)
	}
	m.report("workers", &rollout.Result{})
	if got := value(); len(got) != 1 || got[0] != 0 {
		t.Errorf("in the window: %v", got)
	}
	m.forget("workers")
	if got := value(); len(got) != 0 {
		t.Errorf("of a deleted rollout: %v", got)
	}
}
