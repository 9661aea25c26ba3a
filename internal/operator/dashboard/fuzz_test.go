// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// statuses are NodeConfigs that agents, and those who took over an agent, can
// write.
var statuses = []string{
	`{}`, `{"spec":{"configSource":{"configMapRef":{"namespace":"a","name":"w-1","uid":"u"},"rolloutRef":{"name":"w","revision":1,"attempt":1,"assignedAt":"2026-05-01T11:00:00Z"}}},
	"status":{"observedGeneration":1,"agentVersion":"v1","remoteConfig":"NodeConfig","active":{"uid":"u","name":"w-1"},"lastKnownGood":{"uid":"v","since":"2026-05-01T10:00:00Z"},
	"trial":{"durationSeconds":600,"healthySeconds":5,"startTime":"2026-05-01T11:30:00Z"},"badConfigs":[{"uid":"u","reason":"\u001b[2Jx","time":"2026-05-01T11:40:00Z","provisional":true}],
	"conditions":[{"type":"ConfigOK","status":"False","reason":"CrashLooped","message":"a\nb\u202e","lastTransitionTime":"2026-05-01T11:40:00Z"}],"error":"x"}}`,
	`{"status":{"trial":{"durationSeconds":-1,"healthySeconds":9223372036854775807,"restarts":-5},"conditions":[{"type":"ConfigOK","status":"Maybe"}],"active":{},"workloadPods":-1}}`,
	`{"spec":{"configSource":{"local":{}},"revoked":["u","u"],"takenBack":["x"]},"status":{"remoteConfig":"ConfigMap","assigned":{"name":"k"},"observedGeneration":-9}}`,
	`{"spec":{"preflight":{}},"status":{"preflight":{"outcome":"Accepted"},"lastSeen":"9999-12-31T23:59:59Z","defaultTrialSeconds":-1,"componentVersion":"v1.99.0"}}`,
}

// Whatever a status says, the controller's plan stays the same when it is made
// twice, and what people see of it is bounded.
func FuzzStatus(f *testing.F) {
	for _, text := range statuses {
		f.Add([]byte(text))
	}

	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "w", UID: "r"}}
	f.Fuzz(func(t *testing.T, data []byte) {
		var nc v1alpha1.NodeConfig
		if json.Unmarshal(data, &nc) != nil {
			return
		}

		nc.Name, nc.Generation = node.Name, 1
		n := fleet.NodeOf(node, &nc)
		assert.That(t, n.TrialLength >= 0 && n.TrialLength <= fleet.MaxTrialLength, "the trial of %s lasts %s", data, n.TrialLength)
		p := fleet.Build(fleet.Objects{Rollout: r, Settings: fleet.DefaultSettings, Now: now})
		p.Invalid, p.Target = "", v1alpha1.RolloutRevision{Number: 1, ConfigMapRef: v1alpha1.ConfigMapReference{Namespace: "a", Name: "w-1", UID: "u"}}
		n.Owner = "w"
		first := rollout.Plan(p, []rollout.Node{n})
		p.Status = first.Next
		again := rollout.Plan(p, []rollout.Node{n})
		assert.That(t, len(again.Moves) == len(first.Moves), "with %s the plan has %d moves, and then %d", data, len(first.Moves), len(again.Moves))
		pair := fleet.Pair{Node: node, Config: &nc}
		v := describe.NodeOf(&query.NodeView{Pair: pair, AgentTimeout: time.Minute}, now)
		size := 0
		for _, line := range v.Lines(now) {
			size += len(line.Key) + len(line.Text)
		}

		for _, e := range outcomesOf(&nc, "", true, now) {
			if size += len(e.Message); strings.ContainsAny(e.Message+e.Node, "\n\x1b") || e.Time.After(now) {
				t.Errorf("%s has the outcome %+v", data, e)
			}
		}

		assert.That(t, size <= 20*len(data)+10_000, "a status of %d bytes is described in %d", len(data), size)
		assert.OK(t, assert.Err(json.Marshal(v)), data, "cannot be printed")
	})
}
