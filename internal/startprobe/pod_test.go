// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package startprobe

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAStartProbeBlocksNoDrain(t *testing.T) {
	config := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker", UID: "u"}}
	pod := (&Probe{Node: "worker", Config: config}).Pod("agent")
	owner := metav1.GetControllerOf(pod)
	assert.Must(t, owner != nil, "kubectl drain refuses a pod without a controller")
	assert.Equal(t, owner.UID, config.UID, "the controller")
	assert.Equal(t, pod.Annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"], "true", "the annotation for the cluster autoscaler")
}
