// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestMessagesNameTheLabelTheConditionAndReadableAmounts(t *testing.T) {
	const gib = 1 << 30
	selects := func(key, value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{key: value} }
	}
	for _, tt := range []struct {
		name, config string
		pod          *corev1.Pod
		input        func(*Input)
		want         string
	}{
		{"other label", nothingReserved, aPod("a", nil, selects("disk", "hdd")), nil,
			"NodeAffinity: the pod's node selector needs disk=hdd, and the node has disk=ssd"},
		{"no label", nothingReserved, aPod("a", nil, selects("zone", "a")), nil,
			"NodeAffinity: the pod's node selector needs zone=a, and the node has no label zone"},
		{"affinity", nothingReserved, aPod("a", nil, func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}}
		}), nil, "NodeAffinity: the node's labels do not match the pod's required node affinity"},
		{"memory", `{"evictionHard":{},"kubeReserved":{"memory":"1Gi"}}`, aPod("a", quantities("memory", "3500Mi")), nil,
			"OutOfmemory: memory: 3500Mi needed by all pods together, 3Gi allocatable"},
		{"CPU", `{"evictionHard":{},"kubeReserved":{"cpu":"1"}}`, aPod("a", quantities("cpu", "1500m")), nil,
			"OutOfcpu: cpu: 1500m needed by all pods together, 1000m allocatable"},
		{"bytes of a filesystem", `{"evictionHard":{"nodefs.available":"10%"}}`, aPod("a", nil), func(in *Input) { in.Usage.NodeFS = Level{100 * gib, 9*gib + 1} },
			"Evicted: the usage crosses, or nearly crosses, evictionHard nodefs.available (10%, 9Gi of 100Gi available)"},
		{"inodes", `{"evictionHard":{"nodefs.inodesFree":"10%"}}`, aPod("a", nil), func(in *Input) { in.Usage.NodeFSInodes = Level{1000, 90} },
			"Evicted: the usage crosses, or nearly crosses, evictionHard nodefs.inodesFree (10%, 90 of 1000 available)"},
		{"condition", nothingReserved, aPod("a", nil), func(in *Input) {
			in.Node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue}}
		}, "Evicted: the Node has the condition DiskPressure"},
		{"memory limit", `{"evictionHard":{},"systemReserved":{"memory":"2Gi"}}`, aPod("a", nil), func(in *Input) { in.Usage.KubepodsWorkingSet = 3*gib + 1 },
			"OOMKilled: the memory limit of all pods becomes 2Gi, and they use 3Gi"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := Input{Minor: 36, Before: config(t, nothingReserved), After: config(t, tt.config), Node: aNode(), Pods: []*corev1.Pod{tt.pod}}
			if tt.input != nil {
				tt.input(&in)
			}

			losses := Predict(in)
			if len(losses) != 1 || losses[0].Reason+": "+losses[0].Message != tt.want {
				t.Errorf("got %+v, want %q", losses, tt.want)
			}
		})
	}
}
