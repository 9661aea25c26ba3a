// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// TestARolloutStartsAPodOnItsFirstNode pushes configurations to a node without
// other pods: only the pod of the start probe shows whether the kubelet can
// start pods.
func TestARolloutStartsAPodOnItsFirstNode(t *testing.T) {
	t.Parallel()
	n := newCluster(t, "probed", "--config-trial-duration=2s")
	n.Kubelet = append(n.Kubelet, "--node-labels=pool=probed")
	n.Up()
	n.Controlled()
	n.Push("probed", map[string]any{"maxPods": 105}, "--selector=pool=probed", "--on-failure=rollback")
	n.RolloutEnds("probed", 0, "1 of 1 node updated") // no pod of the agent runs, and no image is named: no start probe
	n.patchStrategy("probed", fmt.Sprintf(`{"startProbeImage":%q}`, localcluster.SleepImage))
	n.Push("probed", map[string]any{"maxPods": 106})
	n.RolloutEnds("probed", 0, "1 of 1 node updated")
	n.Awaits("the node has passed a start probe", func(nc *v1alpha1.NodeConfig) error {
		return assert.Unless(nc.Annotations[v1alpha1.AnnotationObserved] == `{"rollout":"probed","revision":2,"attempt":1,"startProbe":"Passed"}`,
			"the controller has observed %s", nc.Annotations[v1alpha1.AnnotationObserved])
	})
	pods := assert.Value(n.Kube.CoreV1().Pods(v1alpha1.SystemNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelStartProbe}))(t)
	assert.Equal(t, len(pods.Items), 0, "pods of start probes that are left")

	n.Push("probed", map[string]any{"maxPods": 106, "podPidsLimit": 2})
	n.RolloutEnds("probed", 2, "PodsCannotStart")
	n.KubeletHas("maxPods", 106.0)

	assign := func(code int, fields map[string]any, words ...string) {
		n.Plugin(code, []string{"assign", "probed", "-f", n.File(n.DropIn(fields)), "--drop-in", "--yes", "--start-probe=" + localcluster.SleepImage}, words...)
	}
	assign(0, map[string]any{"maxPods": 107}, "node probed started and stopped a pod within")
	assign(1, map[string]any{"maxPods": 107, "podPidsLimit": 2}, "the node cannot start pod", "can't get final child's PID")
}

// patchStrategy changes the strategy of a rollout.
func (n *node) patchStrategy(rollout, strategy string) {
	n.t.Helper()
	n.kubectl("patch", "nodeconfigrollout", rollout, "--type=merge", "--patch="+fmt.Sprintf(`{"spec":{"strategy":%s}}`, strategy))
}
