// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestMessagesNameTheLabelTheConditionAndReadableAmounts(t *testing.T) {
	const gib = 1 << 30
	for _, tt := range []prediction{
		{name: "other label", pods: []*corev1.Pod{aPod("a", nil, selects("disk", "hdd"))},
			message: "NodeAffinity: the pod's node selector needs disk=hdd, and the node has disk=ssd"},
		{name: "no label", pods: []*corev1.Pod{aPod("a", nil, selects("zone", "a"))},
			message: "NodeAffinity: the pod's node selector needs zone=a, and the node has no label zone"},
		{name: "affinity", pods: []*corev1.Pod{aPod("a", nil, func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}}
		})}, message: "NodeAffinity: the node's labels do not match the pod's required node affinity"},
		{name: "memory", after: `{"evictionHard":{},"kubeReserved":{"memory":"1Gi"}}`, pods: []*corev1.Pod{aPod("a", quantities("memory", "3500Mi"))},
			message: "OutOfmemory: memory: 3500Mi needed by all pods together, 3Gi allocatable"},
		{name: "CPU", after: `{"evictionHard":{},"kubeReserved":{"cpu":"1"}}`, pods: []*corev1.Pod{aPod("a", quantities("cpu", "1500m"))},
			message: "OutOfcpu: cpu: 1500m needed by all pods together, 1000m allocatable"},
		{name: "bytes of a filesystem", after: `{"evictionHard":{"nodefs.available":"10%"}}`, pods: []*corev1.Pod{aPod("a", nil)}, input: func(in *Input) { in.Usage.NodeFS = Level{100 * gib, 9*gib + 1} },
			message: "Evicted: the usage crosses, or nearly crosses, evictionHard nodefs.available (10%, 9Gi of 100Gi available)"},
		{name: "inodes", after: `{"evictionHard":{"nodefs.inodesFree":"10%"}}`, pods: []*corev1.Pod{aPod("a", nil)}, input: func(in *Input) { in.Usage.NodeFSInodes = Level{1000, 90} },
			message: "Evicted: the usage crosses, or nearly crosses, evictionHard nodefs.inodesFree (10%, 90 of 1000 available)"},
		{name: "condition", pods: []*corev1.Pod{aPod("a", nil)}, node: func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue}}
		}, message: "Evicted: the Node has the condition DiskPressure"},
		{name: "memory limit", after: `{"evictionHard":{},"systemReserved":{"memory":"2Gi"}}`, pods: []*corev1.Pod{aPod("a", nil)}, input: func(in *Input) { in.Usage.KubepodsWorkingSet = 3*gib + 1 },
			message: "OOMKilled: the memory limit of all pods becomes 2Gi, and they use 3Gi"},
	} {
		tt.before = nothingReserved
		tt.run(t)
	}
}
