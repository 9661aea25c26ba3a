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
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}

	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if shared.Cluster, err = localcluster.Borrow(context.Background(), localcluster.Options{Kubelet: *kubelet}); err != nil {
		return 0, err
	}

	defer func() {
		for _, n := range shared.nodes {
			if n != nil {
				err = errors.Join(err, n.StopNode())
			}
		}

		err = errors.Join(err, shared.Stop())
	}()

	return m.Run(), nil
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
	gone := metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}
	of := metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Node.Name()}
	pods := n.Kube.CoreV1().Pods(metav1.NamespaceDefault)
	assert.NoError(t, pods.DeleteCollection(t.Context(), gone, of))
	n.Eventually("no pod of another test is left", func(ctx context.Context) error {
		list, err := pods.List(ctx, of)
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("there is %s", list.Items[0].Name)
		}

		return err
	})
	assert.NoError(t, n.SetSpec(t.Context(), v1alpha1.NodeConfigSpec{}))
	n.Says("True", "LocalInit", "using current (init)")
	n.Arrived()

	return n
}
