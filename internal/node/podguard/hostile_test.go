// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"fmt"
	"math"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestHostileObjectsAreNoProblem(t *testing.T) {
	huge := resource.MustParse("9E")
	negative := resource.MustParse("-9E")
	many := func() []*corev1.Pod {
		var pods []*corev1.Pod
		for i := range 500 {
			p := aPod(fmt.Sprint("p", i), nil)
			p.Spec.Containers, p.Status.ContainerStatuses = nil, nil
			for c := range 200 {
				name := fmt.Sprint("c", c)
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: quantities("cpu", "1m", "memory", "1")}})
				p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, AllocatedResources: quantities("cpu", "1m")})
			}

			pods = append(pods, p)
		}

		return pods
	}
	huger := resource.MustParse("1e30")
	affinity := func(expressions ...corev1.NodeSelectorRequirement) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			terms := slices.Repeat([]corev1.NodeSelectorTerm{{MatchExpressions: expressions}}, 5000)
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
		}
	}
	// Ports of one number on different addresses do not conflict, except in the
	// last two pods.
	manyPorts := func() (pods []*corev1.Pod) {
		for i := range 50 {
			p := aPod(fmt.Sprint("p", i), nil)
			for port := range 2000 {
				address := fmt.Sprintf("10.%d.%d.%d", min(i, 48), port/250, port%250)
				p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{HostPort: 80, HostIP: address})
			}

			pods = append(pods, p)
		}

		return pods
	}
	// Every port of a pod is the same.
	samePort := func(number int32) *corev1.Pod {
		return aPod("a", nil, ports(slices.Repeat([]corev1.ContainerPort{{HostPort: number}}, 200_000)...))
	}
	various := func(p *corev1.Pod) {
		for i := range 20_000 {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceName(fmt.Sprintf("hugepages-%d", i))] = resource.MustParse("1")
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: fmt.Sprint("k", i)})
		}
	}
	for _, tt := range []struct {
		name   string
		node   *corev1.Node
		config string
		pods   []*corev1.Pod
		want   int
	}{
		{"empty Node", &corev1.Node{}, `{}`, []*corev1.Pod{aPod("a", nil), aPod("b", quantities("cpu", "1"))}, 2},
		{"no Node", nil, `{}`, []*corev1.Pod{nil, aPod("a", nil), aPod("b", nil, static)}, 2},
		{"Node without labels", aNode(func(n *corev1.Node) { n.Labels, n.Status = nil, corev1.NodeStatus{} }), `{"evictionHard":{},"maxPods":5}`,
			[]*corev1.Pod{aPod("a", nil), aPod("b", nil, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"": ""} })}, 2},
		{"pods without UID, containers and status", aNode(), `{"evictionHard":{},"maxPods":1}`, []*corev1.Pod{{}, {}, {}}, 3},
		{"mirror pod without UID", aNode(), `{}`, []*corev1.Pod{aPod("a", nil, func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""} })}, 0},
		{"broken expressions", aNode(), `{}`, []*corev1.Pod{aPod("a", nil, affinity(corev1.NodeSelectorRequirement{Key: "disk", Operator: "?"}))}, 1},
		{"thousands of terms", aNode(), `{}`, []*corev1.Pod{aPod("a", nil, affinity(corev1.NodeSelectorRequirement{Key: "disk", Operator: corev1.NodeSelectorOpGt, Values: []string{"x"}}))}, 1},
		{"thousands of ports", aNode(), `{}`, manyPorts(), 2},
		{"thousands of equal ports", aNode(), `{}`, []*corev1.Pod{samePort(80), samePort(81)}, 0},
		{"thousands of resources", aNode(), `{}`, []*corev1.Pod{aPod("a", corev1.ResourceList{}, various), aPod("b", corev1.ResourceList{}, various)}, 2},
		{"quantities above the largest number", aNode(func(n *corev1.Node) { n.Status.Capacity["cpu"], n.Status.Allocatable["cpu"] = huger, huger }), `{"evictionHard":{},"maxPods":9}`,
			[]*corev1.Pod{aPod("a", corev1.ResourceList{"cpu": huger}), aPod("b", corev1.ResourceList{"memory": huger}, critical), aPod("c", corev1.ResourceList{"cpu": negative})}, 1},
		{"empty configuration", aNode(), `{}`, []*corev1.Pod{aPod("a", quantities("cpu", "1"))}, 0},
		{"no configuration", aNode(), `null`, []*corev1.Pod{aPod("a", quantities("cpu", "1"))}, 0},
		{"fields of other types", aNode(), `{"maxPods":"x","podsPerCore":[],"kubeReserved":3,"evictionHard":{"memory.available":true,"nodefs.available":"NaN%"},"featureGates":[1],"allowedUnsafeSysctls":[1,null],"reservedMemory":[1,{"numaNode":"x","limits":[]}],"reservedSystemCPUs":"-"}`,
			[]*corev1.Pod{aPod("a", quantities("cpu", "1"))}, 0},
		{"huge configuration", aNode(), `{"podsPerCore":9223372036854775807,"maxPods":-5,"evictionHard":{"memory.available":"99999999999999999999999E"}}`, []*corev1.Pod{aPod("a", nil)}, 1},
		{"huge quantities", aNode(), `{}`, []*corev1.Pod{aPod("a", corev1.ResourceList{"cpu": huge, "memory": huge}), aPod("b", corev1.ResourceList{"cpu": huge, "memory": huge})}, 2},
		{"negative quantities", aNode(), nothingReserved, []*corev1.Pod{aPod("a", corev1.ResourceList{"cpu": negative}), aPod("b", quantities("cpu", "3"))}, 1},
		{"negative capacity", aNode(func(n *corev1.Node) { n.Status.Capacity["cpu"], n.Status.Allocatable["cpu"] = negative, negative }), nothingReserved, []*corev1.Pod{aPod("a", quantities("cpu", "1m"))}, 1},
		{"500 pods with 200 containers", aNode(), nothingReserved, many(), 500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, minor := range []int{math.MinInt, 33, 37, math.MaxInt} {
				in := Input{Minor: minor, After: config(t, tt.config), Node: tt.node, Pods: tt.pods,
					CPUState: &CPUState{}, MemoryState: &MemoryState{}, Devices: Devices{Resources: map[corev1.ResourceName]bool{"": true}, Allocated: map[DeviceUser]int{{}: math.MinInt}}}
				var losses []Loss
				inLittleTime(func() { losses = Predict(in); NeedsDrain(in) })
				assert.That(t, len(losses) == tt.want, "1.%d: %d losses, want %d: %.1000s", minor, len(losses), tt.want, told(losses))
			}
		})
	}
}
