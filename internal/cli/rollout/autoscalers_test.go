// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

func TestPushSaysThatAnAutoscalerPredictsTheRoom(t *testing.T) {
	api := newAPI(t)
	for i, provider := range []string{"aws:///zone/i-1", "aws:///zone/i-2", "kind://docker/kind/worker", "k3s://worker", ""} {
		name := "scaled-" + string(rune('a'+i))
		node := api.AddNode(name, "scaled", "")
		if node.Spec.ProviderID = provider; i == 0 {
			node.Labels["karpenter.sh/nodepool"] = "general"
		}

		assert.NoError(t, api.Update(t.Context(), node))
		api.AddNodeConfig(name, nil, nil)
	}

	push := func(fields string, more ...string) fakeapi.Result {
		return api.Run(append([]string{"push", "scaled", "-f", fakeapi.File(t, fakeapi.Header+fields), "--drop-in", "--selector", "pool=scaled"}, more...)...)
	}
	push("maxPods: 90\nevictionHard: {memory.available: 1Gi, nodefs.available: 5%}\n", "--dry-run").Want(t, command.ExitComplete, nil,
		"note: the room for pods changes (evictionHard, maxPods) on 1 node (label karpenter.sh/nodepool), 1 node (provider ID aws://): "+
			"Karpenter predicts the room of new nodes from spec.kubelet of their NodeClass, and replaces nodes when that changes; see docs/autoscalers.md\n")
	push("maxPods: 90\n", "--yes")
	for _, fields := range []string{"maxPods: 90\nregistryBurst: 20\n", "maxPods: 90\ncontainerLogMaxFiles: 7\n", "maxPods: 90\nenforceNodeAllocatable: [none]\n"} {
		r := push(fields, "--dry-run")
		assert.That(t, !strings.Contains(r.Err, "autoscalers.md"), "the room does not change: %s", r.Err)
	}
}
