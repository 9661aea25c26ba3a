package main

import (
	"maps"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

const scraped = `# HELP apiserver_other something else
# TYPE apiserver_other gauge
apiserver_other{} 1
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="nodeconfigs",scope="resource",subresource="status",verb="PATCH"} 3
apiserver_request_total{code="429",resource="nodeconfigs",scope="resource",subresource="status",verb="PATCH"} 2
apiserver_request_total{code="0",resource="nodeconfigs",scope="resource",subresource="",verb="WATCH"} 7
apiserver_request_total{code="200",resource="",scope="",subresource="/readyz",verb="GET"} 1
# TYPE apiserver_longrunning_requests gauge
apiserver_longrunning_requests{resource="nodeconfigs",scope="resource",verb="WATCH"} 40
apiserver_longrunning_requests{resource="nodeconfigs",scope="cluster",verb="WATCH"} 2
apiserver_longrunning_requests{resource="pods",scope="cluster",verb="WATCH"} 5
# TYPE evenkeel_controller_plan_duration_seconds histogram
evenkeel_controller_plan_duration_seconds_bucket{le="+Inf"} 4
evenkeel_controller_plan_duration_seconds_sum 2
evenkeel_controller_plan_duration_seconds_count 4
`

func TestMetricsAreAddedUp(t *testing.T) {
	s := assert.Value(parseMetrics(scraped))(t)
	if got, want := s.requests(), map[string]float64{"PATCH nodeconfigs/status": 5, "WATCH nodeconfigs": 7, "others": 1}; !maps.Equal(got, want) {
		t.Errorf("requests are %v, want %v", got, want)
	}
	if s.refused() != 2 || s.watches("nodeconfigs") != 42 || s.watches("leases") != 0 {
		t.Errorf("refused %v, watches %v and %v; want 2, 42 and 0", s.refused(), s.watches("nodeconfigs"), s.watches("leases"))
	}
	if mean, n, err := s.mean(planDuration); mean != 0.5 || n != 4 || err != nil {
		t.Errorf("a plan takes %v s, of %v (%v); want 0.5 s of 4", mean, n, err)
	}
	assert.That(t, assert.Err(parseMetrics("apiserver_request_total{")) != nil, "half a line is accepted")
	_, _, err := s.mean("unknown")
	assert.That(t, err != nil, "an unknown metric has a mean")
}
