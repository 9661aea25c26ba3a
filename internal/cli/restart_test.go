// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

// createUnready creates a Node with a kubelet of a version, whose agent reports
// the number of pods that a restart makes unready; -1: an agent that does not
// report it.
func createUnready(api *fakeapi.API, name, pool, version string, pods int64) {
	api.AddAgent(name, pool, nil, func(st *v1alpha1.NodeConfigStatus) {
		st.ComponentVersion = version
		if pods >= 0 {
			st.PodsUnreadyOnRestart = &pods
		}
	})
}

func TestPushAndPlanSayWhatRestartsCost(t *testing.T) {
	api := newAPI(t)
	createUnready(api, "costs-a", "costs", "v1.33.13", 7)
	createUnready(api, "costs-b", "costs", "v1.34.4", -1)
	createUnready(api, "costs-c", "costs", "v1.36.3", 0)
	createUnready(api, "costs-d", "costs", "v1.36.3", -1)
	createUnready(api, "free-a", "free", "v1.34.4", 0)
	const note = "Note: a restart of the kubelet makes pods unready until their next probe: 7 pods on 1 node, and an unknown number on 1 node (kubelet 1.33, 1.34).\n"

	const manifest = `apiVersion: evenkeel.dev/v1alpha1
kind: NodeConfigRollout
metadata: {name: costs}
spec:
  nodeSelector: {matchLabels: {pool: costs}}
  template: {kubelet: {apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, maxPods: 120}}
  strategy: {steps: [{nodes: 1}, {nodes: 100%}]}
`
	config := fakeapi.File(t, fakeapi.Header+"maxPods: 50\n")
	api.Run("push", "costs", "-f", config, "--selector", "pool=costs", "--dry-run").WantOutput(t, note)
	api.Run("push", "costs", "-f", config, "--selector", "pool=costs").Want(t, 1, []string{"Note: a restart"}, "cannot ask for confirmation")

	got := api.Run("push", "free", "-f", config, "--selector", "pool=free", "--dry-run")
	assert.That(t, !strings.Contains(got.Out, "unready"), "a restart that costs nothing has a note:\n%s", got.Out)

	file := fakeapi.File(t, manifest)
	api.Run("rollout", "plan", "-f", file).WantOutput(t, note)
	api.Run("rollout", "plan", "-f", file, "--simulate", "--fail-rate", "50%").WantOutput(t, note, "Simulated: ")
	v := fakeapi.Decoded[rollout.PlanReport](t, api.Run("rollout", "plan", "-f", file, "-o", "json"))
	if c := v.RestartCost; c == nil || c.PodsUnready != 7 || c.Nodes != 1 || c.UnknownNodes != 1 || strings.Join(c.Kubelets, " ") != "1.33 1.34" {
		t.Errorf("the cost is %+v", c)
	}

	// Only nodes that the plan restarts count.
	got = api.Run("rollout", "plan", "-f", fakeapi.File(t, manifest+"  paused: true\n"))
	assert.That(t, !strings.Contains(got.Out, "unready"), "a plan without restarts has a note:\n%s", got.Out)
	api.Run("node", "costs-a").WantOutput(t, "On restart: 7 pods unready until the next probe, as last counted\n")
	got = api.Run("node", "free-a")
	assert.That(t, !strings.Contains(got.Out, "unready"), "a node whose restart costs nothing says:\n%s", got.Out)
	a := api.Run("assign", "costs-a", "-f", config, "--dry-run")
	want := "note: a restart of the kubelet makes pods unready until their next probe: 7 pods on 1 node (kubelet 1.33)\n"
	assert.That(t, strings.Contains(a.Err, want), "assign says %q, want %q", a.Err, want)
	a = api.Run("assign", "free-a", "-f", config, "--dry-run")
	assert.That(t, !strings.Contains(a.Err+a.Out, "unready"), "assign to a node whose restart costs nothing says %q", a.Err)
}
