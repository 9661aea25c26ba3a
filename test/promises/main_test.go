// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package promises proves each promise of the README with a real API server,
// containerd and a stock kubelet. The tests share two nodes, one after the
// other; each begins with nodes that run their local configuration.
package promises

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/nodetest"
)

var kubelet = flag.String("kubelet", "", "the `path` of the kubelet of every node; empty: the newest")

// shared is the cluster of all tests. Its nodes are started by the first test
// that needs them.
var shared struct {
	*localcluster.Cluster
	nodes [2]*nodetest.Subject
}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(localcluster.RunTests(localcluster.Options{Kubelet: *kubelet}, func(_ context.Context, c *localcluster.Cluster) (int, error) {
		shared.Cluster = c
		code, errs := m.Run(), []error{}
		for _, n := range shared.nodes {
			if n != nil {
				errs = append(errs, n.StopNode())
			}
		}

		return code, errors.Join(errs...)
	}))
}

// node returns a node that runs its local configuration, and that nobody has
// assigned another one.
func node(t *testing.T, i int) *nodetest.Subject {
	t.Helper()
	if shared.nodes[i] == nil {
		n := nodetest.New(t, shared.Cluster, fmt.Sprintf("worker-%d", i), "--config-trial-duration=2s")
		n.Kubelet = append(n.Kubelet, "--node-labels=pool=workers")
		shared.nodes[i] = n
		n.Up()
	}

	n := shared.nodes[i].In(t)
	t.Cleanup(func() {
		if t.Failed() {
			n.ShowLog()
		}
	})
	for _, pod := range assert.Value(n.Pods(t.Context()))(t) { // of another test
		n.DeletePods(strings.TrimPrefix(pod.Name, n.Node.Name()+"-"))
	}

	assert.NoError(t, n.SetSpec(t.Context(), v1alpha1.NodeConfigSpec{}))
	n.Says("True", "LocalInit", "using current (init)")
	n.Arrived()

	return n
}
