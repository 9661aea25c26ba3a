// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// roomFields are the fields that decide how many pods fit on a node, and of which size. An autoscaler predicts that for new nodes.
var roomFields = []string{
	"evictionHard", "kubeReserved", "maxPods", "mergeDefaultEvictionSettings", "podsPerCore", "reservedSystemCPUs", "systemReserved",
}

const karpenterLabel = "karpenter.sh/nodepool"

// groupLabels are on nodes that an autoscaler may add and remove.
var groupLabels = []string{
	karpenterLabel, "eks.amazonaws.com/nodegroup", "cloud.google.com/gke-nodepool", "kubernetes.azure.com/agentpool",
	"node.cluster.x-k8s.io/machine-deployment",
}

// autoscaled returns what says that an autoscaler may manage a node: a label of it, or the kind of its provider ID; empty: nothing.
func autoscaled(node *corev1.Node) string {
	for _, label := range groupLabels {
		if node.Labels[label] != "" {
			return "label " + label
		}
	}
	cloud, _, found := strings.Cut(node.Spec.ProviderID, "://")
	if !found || slices.Contains([]string{"k3s", "kind", "rke2"}, cloud) { // these add no nodes
		return ""
	}
	return "provider ID " + cloud + "://"
}

// autoscalerNote says what to change besides the kubelets if the room changes on nodes that an autoscaler may manage, of which there is
// at least one; empty: nothing.
func autoscalerNote(before, after payload.Payload, nodes map[string]int) string {
	_, changes := describe.ContentChanges(before, after, describe.LocalOfEach)
	var fields []string
	for _, c := range changes {
		if name := payload.TopField(c.Field); slices.Contains(roomFields, name) {
			fields = append(fields, name)
		}
	}
	if len(fields) == 0 {
		return ""
	}
	var groups []string
	for _, what := range printable.MostFirst(nodes) {
		groups = append(groups, fmt.Sprintf("%s (%s)", printable.Count(nodes[what], "node"), what))
	}
	do := "an autoscaler that adds nodes to an empty group predicts their room from the cloud's settings"
	if nodes["label "+karpenterLabel] > 0 {
		do = "Karpenter predicts the room of new nodes from spec.kubelet of their NodeClass, and replaces nodes when that changes"
	}
	return fmt.Sprintf("the room for pods changes (%s) on %s: %s; see docs/autoscalers.md", printable.Few(slices.Compact(fields)),
		printable.First(groups, 3, ", "), do)
}
