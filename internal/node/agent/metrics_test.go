// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestMetricsDescribeTheNodeAndItsConfigurations(t *testing.T) {
	inWorld(t, func(w *world) {
		w.options = func(o *Options) { o.Metrics = NewMetrics("node-1", "v0.1.0", "0123abc") }
		want := func(when string, values map[string]string) {
			t.Helper()
			w.pass(time.Second)
			for metric, value := range values {
				assert.Equal(t, counted(t, w, "evenkeel_"+metric), value, when, metric)
			}
		}
		condition := func(status, reason string) string {
			return fmt.Sprintf(`node_config_condition{node="node-1",reason=%q,rollout="",status=%q}`, reason, status)
		}
		const local = `{node_config_kubelet_key="",node_config_resource_version="",node_config_source="local",node_config_uid=""}`
		source := func(name string) string {
			return fmt.Sprintf(`{node_config_kubelet_key="kubelet",node_config_resource_version="7",`+
				`node_config_source="/api/v1/namespaces/evenkeel-system/configmaps/%s",node_config_uid="uid-%s"}`, name, name)
		}
		w.up()
		want("nothing assigned", map[string]string{
			`build_info{commit="0123abc",program="evenkeel-agent",version="v0.1.0"}`:                        "1",
			`node_info{kubelet_version="v1.36.3",node="node-1",remote_config="NodeConfig",run_mode="Host"}`: "1",
			"node_config_assigned" + local: "1", "node_config_active" + local: "1", "node_config_last_known_good" + local: "1",
			condition("True", "LocalInit"): "1", "node_config_error": "0", "kubelet_healthy": "1",
			"trial_duration_seconds": "0", "trial_start_time_seconds": "0",
			`validations_total{verdict="accepted"}`: "1", `kubelet_starts_total{cause="boot"}`: "1",
		})
		w.adopts("uid-good", good)
		w.pass(5 * time.Second)
		want("in its trial", map[string]string{
			"node_config_assigned" + source("good"): "1", "node_config_active" + source("good"): "1",
			"node_config_active" + local: "", "node_config_last_known_good" + local: "1",
			condition("True", "AllChecksPassed"): "1", condition("True", "LocalInit"): "", // one at a time
			"trial_start_time_seconds": fmt.Sprintf("%g", float64(w.status().Trial.StartTime.Unix())),
			"trial_duration_seconds":   "40", "trial_healthy_seconds": "4", "trial_restarts": "0",
			"validation_duration_seconds_count": "2", "change_duration_seconds_count": "1", "change_duration_seconds_sum": "0.65",
		})
		w.promoted("uid-good")
		w.assign("uid-typo", typo)
		w.pass(5 * time.Second)
		want("one was rejected", map[string]string{
			"node_config_assigned" + source("typo"): "1", "node_config_active" + source("good"): "1",
			"node_config_last_known_good" + source("good"): "1", "node_config_error": "1",
			condition("False", "ValidationFailed"): "1", "trial_duration_seconds": "0", "trial_start_time_seconds": "0",
			`validations_total{verdict="rejected"}`: "1", "kubelet_healthy": "1",
		})
		w.dies(exitOne)
		assert.Equal(t, counted(t, w, "evenkeel_kubelet_healthy"), "0", "the health of a dead kubelet")
	})
}
