// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
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
	var drift v1alpha1.Drift
	n.Eventually(fmt.Sprintf("Drifted is %s, %s", status, reason), func(ctx context.Context) error {
		nc, err := n.Get(ctx)
		if err != nil {
			return err
		}

		c := meta.FindStatusCondition(nc.Status.Conditions, v1alpha1.ConditionDrifted)
		if c == nil || nc.Status.Drift == nil || string(c.Status) != status || c.Reason != reason || !strings.Contains(c.Message, words) {
			return fmt.Errorf("it is %+v, drift %+v", c, nc.Status.Drift)
		}

		drift = *nc.Status.Drift

		return nil
	})

	return drift
}

// again restarts the agent, and with it the kubelet.
func (n *node) again() {
	n.t.Helper()
	n.stop()
	n.Up()
}

// place creates or removes a file that the wrapper of the kubelet looks for.
func (n *node) place(name string, there bool) {
	n.t.Helper()
	err := os.RemoveAll(n.beside(name))
	if there {
		err = os.WriteFile(n.beside(name), nil, 0o600)
	}

	assert.NoError(n.t, err)
}

func TestDriftOfARealKubeletIsReportedAndNotCorrected(t *testing.T) {
	t.Parallel()
	n := newNode(t, "drift", "--config-trial-duration=1s")
	// The program of the node edits its file, and adds a flag, when it is not a
	// dry run.
	n.wrap(`[ $mode = run ] && [ -e "$dir/edits" ] && echo "# edited" >>"$config"
[ $mode = run ] && [ -e "$dir/adds" ] && set -- "$@" --max-pods=77`)
	n.place("edits", true)
	n.Up()
	n.is(localInit)
	d := n.drifts("True", v1alpha1.DriftFilesEdited, "; the change takes effect at the next restart of the kubelet; /configz is not compared: the node may not read")
	if !slices.Equal(d.Files, []string{n.Node.KubeletConfig()}) || len(d.Fields) != 0 ||
		!strings.Contains(d.NotCompared, "apply config/drift") {
		t.Errorf("drift is %+v", d)
	}

	// The next start ends it.
	n.place("edits", false)
	n.again()
	n.drifts("False", v1alpha1.DriftFilesUnchanged, "/configz is not compared: the node may not read")

	// With the right, a fresh kubelet has no drift, whatever it runs.
	assert.NoError(t, n.ApplyConfig(t.Context(), "drift"))
	wantNone := func() {
		t.Helper()
		d := n.drifts("False", v1alpha1.DriftNone, "as they were")
		assert.That(t, d.NotCompared == "", "drift is %+v", d)
	}
	n.again()
	wantNone()

	// A kubelet that runs with something else than the agent started it with is
	// neither restarted nor blamed.
	n.place("adds", true)
	n.again()
	undisturbed := n.Steady()
	d = n.drifts("True", v1alpha1.DriftConfigzDiffers, "the running kubelet differs in field maxPods from the configuration that the agent validated and started")
	assert.That(t, slices.Equal(d.Fields, []string{"maxPods"}) && len(d.Files) == 0 && d.NotCompared == "", "drift is %+v", d)
	n.is(localInit)
	undisturbed.End(t)

	n.place("adds", false)
	cm := n.ConfigMap("other", map[string]any{
		"maxPods": 60, "podPidsLimit": 4001, "syncFrequency": "90s", "containerLogMaxSize": "5Mi", "shutdownGracePeriod": "0s", "imageGCHighThresholdPercent": 81,
		"kubeReserved": map[string]any{"cpu": "10m"}, "evictionSoft": map[string]any{"memory.available": "70Mi"}, "evictionSoftGracePeriod": map[string]any{"memory.available": "2m"},
		"logging": map[string]any{"verbosity": 3, "flushFrequency": "7s"},
	})
	n.proves(cm)
	n.again()
	wantNone()
}
