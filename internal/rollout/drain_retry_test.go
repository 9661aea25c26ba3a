// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// TestARetryDrainsNoNodeThatRunsTheRevision retries it on a node that could
// start no pods: its drain would begin and end for ever, because the node needs
// no restart.
func TestARetryDrainsNoNodeThatRunsTheRevision(t *testing.T) {
	w := newWorld()
	w.add(1, 1)
	w.in.Spec.Strategy.Drain = v1alpha1.DrainAlways
	w.target("one")
	w.agents["n1"].does["one"] = "starts-fail"
	w.runFor(10 * time.Minute)
	assert.Equal(t, w.last.States[0], Failed, w.last.Next.Message)
	assert.Equal(t, w.nodes[0].LastKnownGood.Digest(), "one")
	w.in.Spec.Retry = &v1alpha1.RolloutRetry{Revision: 1, Attempt: 2}
	r := w.plan()
	assert.That(t, len(r.Taints) == 0 && len(r.Moves) == 1, "moves %+v, taints %+v", r.Moves, r.Taints)
	r = w.plan()
	assert.That(t, len(r.Taints)+len(r.Moves) == 0, "moves %+v, taints %+v", r.Moves, r.Taints)
}
