// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/bed"
)

func TestAnAssignmentEndsByItself(t *testing.T) {
	t.Parallel()
	n := newNode(t, "temporary", "--config-trial-duration=2s")
	n.Up()
	good := n.good("good", map[string]any{"maxPods": 120})
	debug := n.dropin("debug", "maxPods: 77\n")
	source := bed.Ref(debug)
	source.Temporary = &v1alpha1.TemporaryAssignment{Duration: metav1.Duration{Duration: time.Minute}, RequestedAt: metav1.Now()}
	assert.NoError(t, n.Assign(t.Context(), source))
	n.is(allChecksPassed(debug))
	n.healthyWith(debug)
	n.killAgent() // the time continues
	n.Up()
	n.healthyWith(debug)
	n.Awaits("the time of the assignment is over", func(nc *v1alpha1.NodeConfig) error {
		if lkg := nc.Status.LastKnownGood; lkg == nil || lkg.UID != good.UID {
			t.Errorf("last-known-good is %+v", lkg)
		}

		c := bed.ConfigOK(nc)

		return assert.Unless(c.Reason == v1alpha1.ReasonAssignmentEnded && c.Status == "True", "ConfigOK is %+v", c)
	})
	n.healthyWith(good)
	n.KubeletHas("maxPods", 120)
	n.recorded(string(good.UID), string(good.UID))
	n.Event("Normal", "AssignmentEnded", fmt.Sprintf("returned to (UID: %s): the assignment of (UID: %s) ended after 1m0s", good.UID, debug.UID))
}
