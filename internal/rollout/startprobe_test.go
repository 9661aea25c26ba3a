// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestOnlyAFewStartProbesRunAtATime(t *testing.T) {
	w := fleet(2*maxProbes + 1)
	w.in.Controller.StartProbe, w.in.Spec.Strategy.StartProbe = new(true), v1alpha1.StartProbeAll
	most := 0
	for range 30 {
		w.act()
		w.plan()
		most = max(most, len(w.last.Probe))
		w.now = w.now.Add(10 * time.Second)
	}

	assert.Equal(t, most, maxProbes, "start probes at a time")
	assert.Equal(t, w.last.Counts.Updated, 2*maxProbes+1, "nodes that passed")
}
