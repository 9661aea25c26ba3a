// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/internal/node/podguard/machine"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestRulesGiveWhatTheKubeletsOwnCapacityGives(t *testing.T) {
	t.Parallel()
	n := newNode(t, "rules", "--config-trial-duration=2s")
	n.Up()
	n.is(localInit)
	var capacity corev1.ResourceList
	n.Eventually("the Node has its capacity", func(ctx context.Context) error {
		obj, err := n.Object(ctx)
		if err != nil {
			return err
		}

		capacity = obj.Status.Capacity

		return assert.Unless(!capacity.StorageEphemeral().IsZero(), "it has none")
	})
	total, kubelets := machine.Machine{KubeletDir: filepath.Join(n.Node.Dir(), "kubelet")}.Total(), payload.CapacityOf(capacity)
	assert.That(t, total.PIDs > 0, "there are %d PIDs", total.PIDs)
	kubelets.PIDs = total.PIDs // a Node does not have them
	assert.NoDiff(t, cmp.Diff(kubelets, total), "the capacity that the agent measures differs from the kubelet's")

	sizes := string(assert.Value(os.ReadFile("testdata/sizes.yaml"))(t))
	cm := n.CreateMap("sizes", map[string]string{payload.KeyKubeletDropin: sizes})
	p := assert.Value(payload.FromConfigMap(cm))(t)
	want := assert.Value(p.Resolve(kubelets))(t)
	n.AssignMap(cm)
	n.LastKnownGood(cm)
	nc := n.config()
	assert.NoDiff(t, cmp.Diff(want.Values, nc.Status.ResolvedValues))
	assert.That(t, len(want.Values) == 6 && nc.Status.Active.ResolvedSHA256 == want.Digest, "active is %+v", nc.Status.Active)
	has := map[string]any{}
	for _, v := range want.Values {
		has[v.Path] = v.Value
	}

	n.kubeletHas(has)
	assert.NoDiff(t, cmp.Diff(want.Values, n.page("").Resolved))
}
