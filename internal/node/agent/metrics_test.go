// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"testing"
	"time"
)

func TestMetricsContainNodeAndCondition(t *testing.T) {
	inWorld(t, func(w *world) {
		w.options = func(o *Options) { o.Metrics = NewMetrics("node-1", "v0.1.0", "0123abc") }
		w.start()
		want := func(name, value string) {
			t.Helper()
			assert.Equal(t, counted(t, w, name), value, name)
		}
		condition := func(status, reason string) string {
			return fmt.Sprintf(`evenkeel_node_config_condition{node="node-1",reason=%q,rollout="",status=%q}`, reason, status)
		}
		w.runs("")
		w.pass(time.Second)
		want(`evenkeel_build_info{commit="0123abc",program="evenkeel-agent",version="v0.1.0"}`, "1")
		want(`evenkeel_node_info{kubelet_version="v1.36.3",node="node-1",remote_config="NodeConfig",run_mode="Host"}`, "1")
		want(condition("True", "LocalInit"), "1")
		want("evenkeel_kubelet_healthy", "1")
		want("evenkeel_trial_start_time_seconds", "0")

		w.assign("uid-good", good)
		w.runs("good")
		w.pass(time.Second)
		got := counted(t, w, "evenkeel_trial_start_time_seconds")
		assert.That(t, got != "0" && got != "", "the metric of the trial's start is %q", got)
		w.promoted("uid-good")
		want("evenkeel_trial_start_time_seconds", "0")

		w.assign("uid-crasher", crasher)
		w.pass(30 * time.Second)
		want(condition("False", "CrashLooped"), "1")
		want(condition("True", "AllChecksPassed"), "") // one at a time
		want("evenkeel_kubelet_healthy", "1")
		w.dies(exitOne)
		want("evenkeel_kubelet_healthy", "0")
	})
}
