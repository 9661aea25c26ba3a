// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the agent end to end, with a real etcd, kube-apiserver,
// containerd and stock kubelets. test/promises has the stories of the README;
// here are those of each feature, and of what can go wrong. Tests that do not
// disturb each other share a node.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/nodetest"
)

var getOptions = metav1.GetOptions{}

// shared is the cluster of all tests that leave the API server alone.
var shared *localcluster.Cluster

func TestMain(m *testing.M) {
	flag.Parse()
	var err error
	if underTest, err = askKubelet(*kubeletFlag); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	os.Exit(localcluster.RunTests(options(), func(_ context.Context, c *localcluster.Cluster) (int, error) {
		shared = c
		return m.Run(), nil
	}))
}

func options() localcluster.Options {
	return localcluster.Options{Kubelet: underTest.path, APIServer: *apiServerFlag}
}

// node is a real node with an agent, which is not started yet.
type node struct {
	*nodetest.Subject
	t *testing.T
}

// in is the node, failing another test: a subtest.
func (n *node) in(t *testing.T) *node { return &node{n.In(t), t} }

// newNode adds a node to the shared cluster.
func newNode(t *testing.T, name string, flags ...string) *node {
	t.Helper()
	return nodeOn(t, shared, name, flags...)
}

// newCluster starts a cluster of the test's own, with a node.
func newCluster(t *testing.T, name string, flags ...string) *node {
	t.Helper()
	return nodeOn(t, localcluster.StartForTest(t, options()), name, flags...)
}

func nodeOn(t *testing.T, cluster *localcluster.Cluster, name string, flags ...string) *node {
	t.Helper()
	return &node{nodetest.On(t, cluster, name, flags...), t}
}
