// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// The real installer, DaemonSets, controllers, scheduler, containerd, kubelets
// and systemd: two nodes, of which the second does not come back under the
// agent.
func TestEvenkeelIsInstalledAndUninstalledNodeByNode(t *testing.T) {
	t.Parallel()
	first := newCluster(t, "ci-a")
	second := nodeOn(t, first.Cluster, "ci-b")
	assert.NoError(t, first.Cluster.StartControllers(t.Context()))
	applyInstaller(t, first)
	var nodes []*systemdNode
	for _, n := range []*node{first, second} {
		assert.NoError(t, n.Node.ImportImage(t.Context(), "evenkeel.dev/agent:test", "/evenkeel-agent", n.Binary))
		s := newSystemdNode(n)
		nodes = append(nodes, s)
		n.Eventually("the node is Ready", n.Ready)
		s.wantsPlain()
	}

	a, b := nodes[0], nodes[1]
	before := b.systemctl("cat", "kubelet") // its unit's files

	// A file in the place of the agent's directory makes the installation fail.
	obstacle := filepath.Join(b.dir, "var-lib", "evenkeel")
	assert.NoError(t, os.WriteFile(obstacle, nil, 0o600))
	first.Plugin(2, []string{"install", "--all-nodes", "--yes"}, a.Node.Name()+": installed",
		b.Node.Name()+": FAILED: tried and rolled back", "EvenkeelInstallFailed", "failed on "+b.Node.Name())
	a.wantsWrapped()
	b.Eventually("it is Ready with its plain kubelet", b.Ready)
	b.wantsPlain()
	assert.Equal(t, b.systemctl("cat", "kubelet"), before, "its unit's files")

	// A second run skips the failed node. After its repair, --retry installs
	// it.
	pid := b.mainPID()
	first.Plugin(2, []string{"install", "--all-nodes", "--yes"})
	assert.Equal(t, b.mainPID(), pid, "the kubelet of the node that has failed was restarted: process")
	assert.NoError(t, os.Remove(obstacle))
	first.Plugin(0, []string{"install", "--retry", "--yes"}, "2 of 2 nodes installed")
	for _, s := range nodes {
		s.wantsWrapped()
		s.wantsNoPrivileges()
		assert.OK(t, assert.Err(s.Get(t.Context())))
	}

	first.Plugin(0, []string{"uninstall", "--yes"}, "2 of 2 nodes uninstalled", "evenkeel-installer deleted")
	for _, s := range nodes {
		s.wantsPlain()
		s.Eventually("it is Ready", s.Ready)
		obj := assert.Value(s.Object(t.Context()))(t)
		if _, ok := obj.Labels["evenkeel.dev/agent"]; ok {
			t.Errorf("%s has the labels %v", s.Node.Name(), obj.Labels)
		}
	}

	assert.Equal(t, b.systemctl("cat", "kubelet"), before, "its unit's files")
	first.Eventually("no pod is left", func(ctx context.Context) error {
		pods, err := first.Kube.CoreV1().Pods("evenkeel-install").List(ctx, metav1.ListOptions{})
		return errors.Join(err, assert.Unless(len(pods.Items) == 0, "%d are left", len(pods.Items)))
	})
}
