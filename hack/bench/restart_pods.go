// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/must"
)

const serveImage = "evenkeel.dev/serve:1"

// probedPod is a pod without its probes.
const probedPod = `apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
  containers:
  - name: serve
    image: ` + serveImage + `
    imagePullPolicy: Never
    resources: {requests: {cpu: 1m, memory: 8Mi}}
`

// probe is a line of a probedPod, with the seconds between two probes.
func probe(kind string, period int) string {
	return fmt.Sprintf("    %sProbe: {httpGet: {port: 8080}, periodSeconds: %d}\n", kind, period)
}

// podClasses are the probes of the classes of pods from the API. There are as
// many pods of each.
var podClasses = []string{
	probe("readiness", 1), probe("readiness", 10), probe("readiness", 30), probe("readiness", 10) + probe("startup", 10),
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
func createPods(ctx context.Context, b *bed.Bed, count int) *probedPods {
	p := &probedPods{kube: b.Kube, node: b.Node.Name(), seen: readiness{}}
	for i := range count {
		var pod *corev1.Pod
		text := fmt.Sprintf(probedPod, fmt.Sprintf("probed-%d", i)) + podClasses[i%len(podClasses)]
		must.OK(yaml.UnmarshalStrict([]byte(text), &pod))
		pod.Spec.NodeName = p.node
		must.Get(b.Kube.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}))
		p.names = append(p.names, pod.Name)
	}

	p.names = append(p.names, "static-"+p.node) // its mirror pod
	must.OK(os.WriteFile(filepath.Join(b.Node.Dir(), "manifests", "static.yaml"), []byte(fmt.Sprintf(probedPod, "static")+probe("readiness", 10)), 0o644))

	return p
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
func (p *probedPods) becomeReady(ctx context.Context) {
	bed.Await(ctx, 5*time.Minute, func(context.Context) {
		p.mu.Lock()
		defer p.mu.Unlock()
		missing := slices.DeleteFunc(slices.Clone(p.names), p.seen.ready)
		must.That(len(missing) == 0, "not Ready: %s: %q", printable.Count(len(missing), "pod"), missing)
	})
}

// cost returns what a period cost the pods.
func (p *probedPods) cost(from, to time.Time) cost {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.cost(p.names, from, to)
}
