// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/figures"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// growth measures the controller's memory with realistic Nodes and NodeConfigs.
// A paused rollout makes the controller read all of them.
func (b *bench) growth(ctx context.Context) {
	o := &v1alpha1.NodeConfigRollout{
		ObjectMeta: metav1.ObjectMeta{Name: "paused"},
		Spec: v1alpha1.NodeConfigRolloutSpec{
			NodeSelection: v1alpha1.NodeSelection{AllNodes: true}, Paused: true,
			Template: v1alpha1.RolloutTemplate{Kubelet: &runtime.RawExtension{Raw: []byte(`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":120}`)}},
		},
	}
	b.withWorld(ctx, func(w *world) {
		w.large = b.nodes > largeNodes
		must.OK(w.admin.Create(ctx, o))
		forEach(ctx, b.nodes, func(i int) { w.populate(ctx, i) })
		b.look(ctx, w, o)
		w.storage(ctx, nodeName(0))
	})
}

// planDuration is the controller's metric of the time of a plan.
const planDuration = "evenkeel_controller_plan_duration_seconds"

// look starts a controller, waits until it has read everything, and lets it
// plan for half a minute.
func (b *bench) look(ctx context.Context, w *world, o *v1alpha1.NodeConfigRollout) {
	metrics := must.Get(localcluster.FreeAddress())
	w.withController(ctx, []string{"--metrics-bind-address=" + metrics, "--metrics-secure=false"}, func(c *child, started time.Duration) {
		eventually(ctx, 10*time.Minute+time.Duration(b.nodes)*nodeTimeout, time.Second, c.Done, func() {
			must.OK(w.admin.Get(ctx, client.ObjectKeyFromObject(o), o))
			selected := int(o.Status.Nodes.Selected)
			must.That(selected == b.nodes, "%d of %s are selected: %s", selected, printable.Count(b.nodes, "node"), o.Status.Message)
		})
		for i := range 30 { // meanwhile the runtime returns free memory to the kernel
			must.OK(bed.Pause(ctx, time.Second))
			patch := fmt.Appendf(nil, `{"status":{"error":"change %d"}}`, i) // makes the rollout due
			nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: nodeName(0)}}
			must.OK(w.admin.Status().Patch(ctx, nc, client.RawPatch(types.MergePatchType, patch)))
		}

		now, most := must.Get2(figures.Memory(c.Pid()))
		program := must.Get(figures.FileMemory(c.Pid()))
		answer := must.Get(http.Get("http://" + metrics + "/metrics"))
		defer answer.Body.Close()
		text := must.Get(io.ReadAll(answer.Body))
		plans := sum(text, planDuration+"_count")
		mean := time.Duration(sum(text, planDuration+"_sum") / plans * float64(time.Second))
		b.limitMemory("controller: most memory, with as many Nodes and NodeConfigs", most, b.nodes)
		note("controller: memory half a minute later", "%s, of it %s of its file", figures.MiB(now), figures.MiB(program))
		note("controller: everything was seen after", "%s", seconds(started))
		note("controller: a plan, with all that is prepared for it", "%s (mean of %.0f)", tenths(mean), plans)
	})
}

func nodeName(i int) string { return fmt.Sprintf("node-%06d.example.com", i) }

// populate creates a Node and its NodeConfig, as its agent leaves it.
func (w *world) populate(ctx context.Context, i int) {
	name := nodeName(i)
	must.OK(w.admin.Create(ctx, realisticNode(name, i)))
	ref := v1alpha1.ConfigMapReference{Namespace: v1alpha1.SystemNamespace, Name: "paused-0123456789ab", UID: "7f1d2c3b-0000-4000-8000-0123456789ab", SHA256: strings.Repeat("0123456789abcdef", 4)}
	before := ref
	before.Name, before.UID, before.SHA256 = "paused-ba9876543210", "7f1d2c3b-0000-4000-8000-ba9876543210", strings.Repeat("fedcba9876543210", 4)
	nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodeConfigSpec{ConfigSource: &v1alpha1.NodeConfigSource{
		ConfigMapRef: &ref,
		RolloutRef: &v1alpha1.RolloutReference{
			Name: "paused", Revision: 2, Attempt: 1, AssignedAt: metav1.Now(),
			Previous: &v1alpha1.PreviousSource{ConfigMapRef: before, Rollout: "paused", Revision: 1, Attempt: 1},
		},
	}}}
	must.OK(w.admin.Create(ctx, nc))
	runs := v1alpha1.ConfigRevision{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID, SHA256: ref.SHA256}
	nc.Status = v1alpha1.NodeConfigStatus{
		ObservedGeneration: 1, Assigned: &runs, Active: &runs,
		LastKnownGood: &v1alpha1.LastKnownGoodConfig{ConfigRevision: runs, Since: new(metav1.Now())},
		AgentVersion:  "v0.1.0", ComponentVersion: "v1.36.3",
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionTrue, Reason: "AllChecksPassed",
			Message: "using current (UID: " + string(ref.UID) + "): all checks passed", LastTransitionTime: metav1.Now(), ObservedGeneration: 1,
		}},
	}
	must.OK(w.admin.Status().Update(ctx, nc))
}

// realisticNode returns a Node as large as those of real clusters, with images.
func realisticNode(name string, i int) *corev1.Node {
	now := metav1.Now()
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux", corev1.LabelInstanceTypeStable: "large",
				corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%3), corev1.LabelTopologyRegion: "region", "pool": "workers",
			},
			Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true", "node.alpha.kubernetes.io/ttl": "0"},
		},
		Spec: corev1.NodeSpec{ProviderID: "example:///zone/" + name, PodCIDR: "10.0.0.0/24"},
	}
	for _, c := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeReady} {
		status := corev1.ConditionFalse
		if c == corev1.NodeReady {
			status = corev1.ConditionTrue
		}

		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: c, Status: status, Reason: "Kubelet" + string(c), Message: "kubelet says so of " + string(c), LastHeartbeatTime: now, LastTransitionTime: now,
		})
	}

	n.Status.Capacity = corev1.ResourceList{}
	for name, amount := range map[corev1.ResourceName]string{"cpu": "16", "memory": "65843040Ki", "pods": "110", "ephemeral-storage": "203056560Ki", "hugepages-2Mi": "0"} {
		n.Status.Capacity[name] = resource.MustParse(amount)
	}

	n.Status.Allocatable = n.Status.Capacity
	n.Status.NodeInfo = corev1.NodeSystemInfo{
		KubeletVersion: "v1.36.3", Architecture: "amd64", OperatingSystem: "linux", KernelVersion: "6.12.0-1-amd64", OSImage: "A Distribution 12",
		ContainerRuntimeVersion: "containerd://2.1.4", MachineID: strings.Repeat("a", 32), SystemUUID: strings.Repeat("b", 36), BootID: strings.Repeat("c", 36),
	}
	for image := range 40 {
		repository := fmt.Sprintf("registry.example.com/team/service-%02d", image)
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{
			Names: []string{repository + "@sha256:" + strings.Repeat("0123456789abcdef", 4), fmt.Sprintf("%s:v1.%d", repository, image)}, SizeBytes: 123456789,
		})
	}

	return n
}
