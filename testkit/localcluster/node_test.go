// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTwoStockKubeletsRunPodsSideBySideAndLeaveNothing(t *testing.T) {
	c := startCluster(t)
	client := admin(t, c)
	var nodes []*Node
	for _, name := range []string{"node-a", "node-b"} {
		n := startNode(t, c, name)
		begin := time.Now()
		kubelet := assert.Value(runKubelet(t.Context(), n, client))(t)
		t.Cleanup(func() { _ = kubelet.Stop(time.Second) })
		t.Log(name, "is Ready after", time.Since(begin))
		begin = time.Now()
		assert.NoError(t, runPod(t.Context(), client, name, "default", "sleeper-"+name))
		t.Log("a pod runs after", time.Since(begin))
		nodes = append(nodes, n)
	}

	first, second := nodes[0], nodes[1]
	assert.OK(t, Probe(t.Context(), fmt.Sprintf("http://127.0.0.1:%d/healthz", first.HealthzPort())), "healthz")
	configz, err := client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/node-a/proxy/configz").DoRaw(t.Context())
	assert.That(t, err == nil && strings.Contains(string(configz), `"maxPods":110`),
		"configz through the API server: %v, %.200s", err, configz)
	assert.ErrorHas(t, assert.Err(c.NewNode(t.Context(), "node-a")), "has a node of this name", "a second node-a")

	shared := sharedFiles(t, first)
	assert.That(t, len(shared) >= 2, "files outside of the node's directory: %v, want a socket and a result", shared)
	assert.NoError(t, first.Stop())
	for _, path := range shared {
		assert.Is(t, assert.Err(os.Stat(path)), os.ErrNotExist, "left after Stop:", path)
	}

	assert.OK(t, traces(first.Dir(), first.bridge, first.cgroup), "after Stop, with the kubelet still running")
	assert.OK(t, first.Stop(), "the second Stop")
	assert.ErrorHas(t, first.StartRuntime(t.Context()), "its cluster or node is stopped", "StartRuntime after Stop")
	assert.OK(t, runPod(t.Context(), client, "node-b", "default", "another"), "the other node runs no more pods")
	again := startNode(t, c, "node-a")
	assert.NoError(t, c.Stop())
	for _, n := range []*Node{again, second} {
		assert.OK(t, traces(n.Dir(), n.bridge, n.cgroup), "after the cluster's Stop")
	}
}
