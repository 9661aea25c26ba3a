// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/testkit/auditlog"
)

// spread returns the percentiles 50, 95 and 99 and the maximum of durations, as
// text. It sorts them.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}

	slices.Sort(all)

	return fmt.Sprintf("%s, %s, %s, %s", seconds(percentile(all, 50)), seconds(percentile(all, 95)), seconds(percentile(all, 99)), seconds(all[len(all)-1]))
}

// percentile returns the smallest value that is at least as large as this
// percentage of all values, which are sorted.
func percentile(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)*percent+99)/100-1]
}

// untilHealthy returns, for each node that was assigned a configuration from a
// time on, how long its kubelet took to become healthy with it: from the answer
// to the assignment to the first renewal of the node's Lease, which simulated
// kubelets make as soon as they are healthy. A node whose kubelet did not
// become healthy is left out.
func untilHealthy(requests []auditlog.Request, from time.Time) []time.Duration {
	assigned, healthy := map[string]time.Time{}, map[string]time.Time{}
	for i := range requests {
		if r := &requests[i]; r.Assigns != "" && r.Succeeded() && !r.Received.Before(from) {
			assigned[r.Name] = r.Answered
		}
	}

	for i := range requests {
		r := &requests[i]
		at, is := assigned[r.Name]
		if !is || r.Resource != "leases" || r.Program != "evenkeel-hollow" || r.Received.Before(at) {
			continue
		}
		if first, known := healthy[r.Name]; !known || r.Received.Before(first) {
			healthy[r.Name] = r.Received
		}
	}

	took := make([]time.Duration, 0, len(healthy))
	for name, at := range healthy {
		took = append(took, at.Sub(assigned[name]))
	}

	return took
}
