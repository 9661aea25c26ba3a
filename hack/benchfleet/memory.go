// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

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

//go:embed node.yaml
var nodeManifest []byte

//go:embed nodeconfig.yaml
var nodeConfigManifest []byte

// populate creates a Node and its NodeConfig, as its agent leaves it.
func (w *world) populate(ctx context.Context, i int) {
	n, nc := &corev1.Node{}, &v1alpha1.NodeConfig{}
	must.OK(errors.Join(yaml.UnmarshalStrict(nodeManifest, n), yaml.UnmarshalStrict(nodeConfigManifest, nc)))
	n.Name, nc.Name = nodeName(i), nodeName(i)
	n.Spec.ProviderID = "example:///zone/" + n.Name
	n.Labels[corev1.LabelHostname], n.Labels[corev1.LabelTopologyZone] = n.Name, fmt.Sprintf("zone-%d", i%3)
	for image := range 40 {
		repository := fmt.Sprintf("registry.example.com/team/service-%02d", image)
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{
			Names: []string{repository + "@sha256:" + strings.Repeat("0123456789abcdef", 4), fmt.Sprintf("%s:v1.%d", repository, image)}, SizeBytes: 123456789,
		})
	}

	must.OK(w.admin.Create(ctx, n))
	status := nc.Status // Create ignores it
	must.OK(w.admin.Create(ctx, nc))
	nc.Status = status
	must.OK(w.admin.Status().Update(ctx, nc))
}
