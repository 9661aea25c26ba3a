// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

var requested = []corev1.ResourceName{"cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/x", "example.com/gpu"}

// drawRequests draws requests of which several pods fit on a node.
func drawRequests(t *rapid.T) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, name := range requested {
		if rapid.IntRange(0, 3).Draw(t, "has "+string(name)) != 0 {
			continue
		}

		text := rapid.SampledFrom([]string{"0", "1", "250m", "700m", "1Gi", "-1"}).Draw(t, string(name))
		list[name] = resource.MustParse(text)
	}

	return list
}

func drawPod(t *rapid.T, i int) *corev1.Pod {
	p := aPod(fmt.Sprintf("p%02d", i), drawRequests(t))
	has := func(name string) bool { return rapid.IntRange(0, 4).Draw(t, name) == 0 }
	if has("init container") {
		p.Spec.InitContainers = []corev1.Container{{Name: "i", Resources: corev1.ResourceRequirements{Requests: drawRequests(t)}}}
		if has("sidecar") {
			p.Spec.InitContainers[0].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
	}

	if has("limits") {
		p.Spec.Containers[0].Resources.Limits = p.Spec.Containers[0].Resources.Requests
	}
	if has("selector") {
		p.Spec.NodeSelector = map[string]string{"disk": rapid.SampledFrom([]string{"ssd", "hdd"}).Draw(t, "disk")}
	}
	if has("port") {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: int32(rapid.IntRange(80, 82).Draw(t, "port"))}}
	}
	if has("critical") {
		p.Spec.Priority = new(int32(2_000_000_000 + rapid.IntRange(0, 2).Draw(t, "priority")))
	}
	if has("static") {
		static(p)
	}
	if has("overhead") {
		p.Spec.Overhead = quantities("cpu", "100m")
	}

	if has("status") {
		p.Status.ContainerStatuses[0].AllocatedResources = drawRequests(t)
		p.Status.AllocatedResources = drawRequests(t)
	}

	if has("pod level") {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: drawRequests(t)}
	}
	if has("class") {
		p.Status.QOSClass = rapid.SampledFrom([]corev1.PodQOSClass{"Guaranteed", "Burstable", "BestEffort"}).Draw(t, "QoS")
	}

	return p
}

func drawInput(t *rapid.T) Input {
	node := aNode(func(n *corev1.Node) {
		n.Status.Capacity["example.com/x"] = resource.MustParse("2")
		n.Status.Allocatable["example.com/x"] = resource.MustParse("2")
	})
	fields := map[string]any{"evictionHard": map[string]any{}, "maxPods": json.Number(fmt.Sprint(rapid.IntRange(3, 12).Draw(t, "maxPods")))}
	if rapid.Bool().Draw(t, "reservation") {
		fields["kubeReserved"] = map[string]any{"cpu": rapid.SampledFrom([]string{"100m", "1", "2"}).Draw(t, "kubeReserved")}
	}
	if rapid.Bool().Draw(t, "static CPU policy") {
		fields["cpuManagerPolicy"] = "static"
	}
	if rapid.Bool().Draw(t, "static memory policy") {
		fields["memoryManagerPolicy"] = "Static"
	}

	in := Input{Minor: rapid.SampledFrom(allMinors).Draw(t, "minor"), After: fields, Node: node}
	if rapid.Bool().Draw(t, "one NUMA node") {
		in.Machine.NUMANodes = 1
	}
	if rapid.Bool().Draw(t, "plugin") {
		in.Devices.Resources = map[corev1.ResourceName]bool{"example.com/gpu": true}
	}

	for i := range rapid.IntRange(0, 10).Draw(t, "pods") {
		in.Pods = append(in.Pods, drawPod(t, i))
	}

	return in
}

func TestTheOrderOfPodsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		want := Predict(in)
		in.Pods = rapid.Permutation(in.Pods).Draw(t, "order")
		assert.NoDiff(t, cmp.Diff(want, Predict(in)), "in another order")
	})
}

func TestRemovingAPodNeverAddsALossOfAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		if len(in.Pods) == 0 {
			return
		}

		before := map[string]bool{}
		for _, l := range Predict(in) {
			before[l.Name] = true
		}

		i := rapid.IntRange(0, len(in.Pods)-1).Draw(t, "removed")
		in.Pods = slices.Concat(in.Pods[:i], in.Pods[i+1:])
		for _, l := range Predict(in) {
			assert.That(t, before[l.Name], "%s is lost only without pod %d: %s", l.Name, i, l.Message)
		}
	})
}

func TestAPodWithoutARequestIsNeverOutOfTheResource(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		for _, l := range Predict(in) {
			name, ok := strings.CutPrefix(l.Reason, "OutOf")
			if !ok || name == "pods" {
				continue
			}

			p := in.Pods[slices.IndexFunc(in.Pods, func(p *corev1.Pod) bool { return p.Name == l.Name })]
			lists := []corev1.ResourceList{p.Spec.Overhead, p.Status.AllocatedResources, p.Status.ContainerStatuses[0].AllocatedResources}
			if p.Spec.Resources != nil {
				lists = append(lists, p.Spec.Resources.Requests)
			}

			for c := range allContainers(p) {
				lists = append(lists, c.Resources.Requests, c.Resources.Limits)
			}

			requested := slices.ContainsFunc(lists, func(list corev1.ResourceList) bool {
				q := list[corev1.ResourceName(name)]
				return q.Sign() > 0
			})
			assert.That(t, requested, "%s is %s without a request", l.Name, l.Reason)
		}
	})
}

func TestAPredictionDoesNotChangeItsInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		var pods []*corev1.Pod
		for _, p := range in.Pods {
			pods = append(pods, p.DeepCopy())
		}

		node := in.Node.DeepCopy()
		Predict(in)
		NeedsDrain(in)
		assert.NoDiff(t, cmp.Diff(pods, in.Pods)+cmp.Diff(node, in.Node))
	})
}
