// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/must"
)

const serveImage = "evenkeel.dev/serve:1"

// podClass is a kind of probed pod. Periods are in seconds; 0: no such probe.
type podClass struct{ readiness, startup int32 }

// podClasses are the classes of pods from the API. There are as many pods of
// each.
var podClasses = []podClass{
	{readiness: 1}, {readiness: 10}, {readiness: 30}, {readiness: 10, startup: 10},
}

func (c podClass) pod(name string) *corev1.Pod {
	probe := func(period int32) *corev1.Probe {
		if period == 0 {
			return nil
		}

		return &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(8080)}},
			PeriodSeconds: period,
		}
	}
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  new(bool),
			TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{
				Name: "serve", Image: serveImage, ImagePullPolicy: corev1.PullNever,
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("8Mi"),
				}},
				ReadinessProbe: probe(c.readiness), StartupProbe: probe(c.startup),
			}},
		},
	}
}

// probedPods are the pods of a node.
type probedPods struct {
	kube  kubernetes.Interface
	node  string
	names []string

	mu   sync.Mutex
	seen readiness
}

// createPods creates pods of all classes in turn, and one static pod.
func createPods(ctx context.Context, b *bed.Bed, count int) (_ *probedPods, err error) {
	defer must.Catch(&err)

	p := &probedPods{kube: b.Kube, node: b.Node.Name(), seen: readiness{}}
	for i := range count {
		class := podClasses[i%len(podClasses)]
		pod := class.pod(fmt.Sprintf("probed-%d", i))
		pod.Spec.NodeName = p.node
		must.Get(b.Kube.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}))
		p.names = append(p.names, pod.Name)
	}

	raw := must.Get(yaml.Marshal(podClass{readiness: 10}.pod("static")))
	p.names = append(p.names, "static-"+p.node) // its mirror pod

	return p, os.WriteFile(filepath.Join(b.Node.Dir(), "manifests", "static.yaml"), raw, 0o644)
}

// watch records the pods' readiness until ctx ends. An ended watch is started
// again.
func (p *probedPods) watch(ctx context.Context) {
	pods := p.kube.CoreV1().Pods(metav1.NamespaceDefault)
	for ; ctx.Err() == nil; _ = bed.Pause(ctx, 100*time.Millisecond) {
		options := metav1.ListOptions{FieldSelector: "spec.nodeName=" + p.node}
		list, err := pods.List(ctx, options)
		if err != nil {
			continue
		}

		states := map[string]sighting{}
		for i := range list.Items {
			states[list.Items[i].Name] = stateOf(&list.Items[i])
		}

		p.mu.Lock()
		p.seen.list(time.Now(), states)
		p.mu.Unlock()
		options.ResourceVersion = list.ResourceVersion
		w, err := pods.Watch(ctx, options)
		if err != nil {
			continue
		}

		for event := range w.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				break // the server ends the watch with a Status
			}

			s := stateOf(pod)
			if event.Type == watch.Deleted {
				s = sighting{gone: true}
			}

			s.at = time.Now()
			p.mu.Lock()
			p.seen.see(pod.Name, s)
			p.mu.Unlock()
		}

		w.Stop()
	}
}

func stateOf(pod *corev1.Pod) (s sighting) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			s.ready = c.Status == corev1.ConditionTrue
		}
	}

	return s
}

// becomeReady waits until all pods are Ready.
func (p *probedPods) becomeReady(ctx context.Context) error {
	return bed.Eventually(ctx, 5*time.Minute, func(context.Context) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		var missing []string
		for _, name := range p.names {
			if !p.seen.ready(name) {
				missing = append(missing, name)
			}
		}

		if len(missing) > 0 {
			return fmt.Errorf("not Ready: %s, the first is %s", printable.Count(len(missing), "pod"), missing[0])
		}

		return nil
	})
}

// cost returns what a period cost the pods.
func (p *probedPods) cost(from, to time.Time) cost {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.cost(p.names, from, to)
}
