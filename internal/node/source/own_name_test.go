// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestKubeadmsConfigMapIsNoNodesOwn(t *testing.T) {
	for node, refused := range map[string]bool{"config": true, "config-1.23": true, "config-1": false, "configs": false, "kubelet-config": false} {
		_, err := NodeConfigMapOf("kube-system", node)
		assert.That(t, (err != nil) == refused, "in kube-system, node %s: %v", node, err)
		assert.That(t, err == nil || strings.Contains(err.Error(), "ConfigMap kube-system/kubelet-"+node+" is kubeadm's, for all nodes"), "%v", err)
		_, err = NodeConfigMapOf("evenkeel-system", node)
		assert.OK(t, err, node)
	}
}
