// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/podguard"
	"github.com/evenkeel/evenkeel/internal/node/podguard/machine"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/figures"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// guarded is the number of pods on the node.
const guarded = 110

// guards measures the pod guard, which delays each change: it reads the Node, its pods and the machine, and predicts twice. The
// floor is the time of the two requests alone.
func guards(ctx context.Context, b *bed.Bed, runs int) (err error) {
	defer must.Catch(&err)

	a := must.Get(b.Agent())
	must.OK(start(ctx, b, a))
	must.OK(a.Stop(time.Minute)) // its kubelet registered the node; nothing must run the pods
	pods := b.Kube.CoreV1().Pods(metav1.NamespaceDefault)
	defer func() {
		now := int64(0)
		err = errors.Join(err, pods.DeleteCollection(context.WithoutCancel(ctx), metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{LabelSelector: "bench=guard"}))
	}()
	for i := range guarded {
		must.Get(pods.Create(ctx, guardedPod(b.Node.Name(), i), metav1.CreateOptions{}))
	}
	host := machine.Machine{KubeletDir: b.Node.Dir() + "/kubelet"}
	config := component.Effective{
		"containerRuntimeEndpoint": b.Node.RuntimeEndpoint(), "maxPods": json.Number("110"),
		"evictionHard": map[string]any{"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
	}
	var took, floor []time.Duration
	for i := range runs + 1 {
		client := must.Get(source.NewClient(b.Node.Kubeconfig(), "bench")) // a new one each time, because of its rate limit
		must.Get(client.NodeAnnotation(ctx, b.Node.Name(), "none"))        // connects
		watch := source.NewNodeWatch(client, b.Node.Name())
		begin := time.Now()
		must.Get2(watch.Bound(ctx))
		requests := time.Since(begin)
		begin = time.Now()
		in := podguard.Input{Minor: 37, Before: config, After: config}
		listed := make(chan error, 1)
		go func() {
			var err error
			in.Node, in.Pods, err = watch.Bound(ctx)
			listed <- err
		}()
		described := in
		must.OK(errors.Join(host.Describe(ctx, &described), <-listed))
		described.Node, described.Pods = in.Node, in.Pods
		for range 2 {
			if lost := podguard.Predict(described); len(lost) > 0 || len(described.Pods) != guarded {
				return fmt.Errorf("%s, lost would be %v", printable.Count(len(described.Pods), "pod"), lost)
			}
		}
		if i > 0 {
			took, floor = append(took, time.Since(begin)), append(floor, requests)
		}
	}
	m, f := figures.Median(took), figures.Median(floor)
	figures.PrintRow("pod guard, "+printable.Count(guarded, "pod"), ms(m), ms(f), "20 ms", m <= 20*time.Millisecond)
	return nil
}

// guardedPod is a pod of the usual size.
func guardedPod(node string, i int) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("guard-%d", i), Labels: map[string]string{"bench": "guard", "app": fmt.Sprint("app-", i%7)}},
		Spec:       corev1.PodSpec{NodeName: node, AutomountServiceAccountToken: new(bool)},
	}
	for c := range 2 {
		container := corev1.Container{Name: fmt.Sprint("c", c), Image: "registry.example.com/team/program:v1.2.3"}
		container.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("1Mi")}
		for e := range 20 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprint("VARIABLE_", e), Value: "a value of the usual length"})
		}
		p.Spec.Containers = append(p.Spec.Containers, container)
	}
	return p
}
