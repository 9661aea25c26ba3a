// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// drifts waits until Drifted has the status and the reason, and its message
// contains words. It returns status.drift.
func (n *node) drifts(status, reason, words string) v1alpha1.Drift {
	n.t.Helper()
	nc := n.Awaits(fmt.Sprintf("Drifted is %s, %s", status, reason), func(nc *v1alpha1.NodeConfig) error {
		c := meta.FindStatusCondition(nc.Status.Conditions, v1alpha1.ConditionDrifted)
		is := c != nil && nc.Status.Drift != nil && string(c.Status) == status && c.Reason == reason && strings.Contains(c.Message, words)

		return assert.Unless(is, "it is %+v, drift %+v", c, nc.Status.Drift)
	})

	return *nc.Status.Drift
}

// again restarts the agent, and with it the kubelet.
func (n *node) again() {
	n.t.Helper()
	n.stop()
	n.Up()
}

func TestDriftOfARealKubeletIsReportedAndNotCorrected(t *testing.T) {
	t.Parallel()
	n := newNode(t, "drift", "--config-trial-duration=1s")
	// The program of the node adds a flag when it is not a dry run.
	n.wrap(`[ $mode = run ] && [ -e "$dir/adds" ] && set -- "$@" --max-pods=77`)
	assert.NoError(t, n.ApplyConfig(t.Context(), "drift"))
	n.Up()

	// A fresh kubelet has no drift, whatever it runs.
	wantNone := func() {
		t.Helper()
		d := n.drifts("False", v1alpha1.DriftNone, "as they were")
		assert.That(t, d.NotCompared == "", "drift is %+v", d)
	}
	wantNone()

	// A kubelet that runs with something else than the agent started it with is
	// neither restarted nor blamed.
	assert.NoError(t, os.WriteFile(n.beside("adds"), nil, 0o600))
	n.again()
	undisturbed := n.Steady()
	d := n.drifts("True", v1alpha1.DriftConfigzDiffers, "the running kubelet differs in field maxPods from the configuration that the agent validated and started")
	assert.That(t, slices.Equal(d.Fields, []string{"maxPods"}) && len(d.Files) == 0 && d.NotCompared == "", "drift is %+v", d)
	n.is(localInit)
	undisturbed.End(t)

	assert.NoError(t, os.Remove(n.beside("adds")))
	cm := n.ConfigMap("other", map[string]any{
		"maxPods": 60, "podPidsLimit": 4001, "syncFrequency": "90s", "containerLogMaxSize": "5Mi", "shutdownGracePeriod": "0s", "imageGCHighThresholdPercent": 81,
		"kubeReserved": map[string]any{"cpu": "10m"}, "evictionSoft": map[string]any{"memory.available": "70Mi"}, "evictionSoftGracePeriod": map[string]any{"memory.available": "2m"},
		"logging": map[string]any{"verbosity": 3, "flushFrequency": "7s"},
	})
	n.proves(cm)
	n.again()
	wantNone()
}
