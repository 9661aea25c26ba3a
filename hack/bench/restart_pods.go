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
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/kubectl/pkg/util/podutils"
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

// watch records the pods' readiness until ctx ends.
func (p *probedPods) watch(ctx context.Context) {
	see := func(name string, s sighting) {
		p.mu.Lock()
		defer p.mu.Unlock()
		s.at = time.Now()
		p.seen[name] = append(p.seen[name], s)
	}
	seen := func(o any) { see(o.(*corev1.Pod).Name, sighting{ready: podutils.IsPodReady(o.(*corev1.Pod))}) }
	_, informer := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: toolscache.NewListWatchFromClient(p.kube.CoreV1().RESTClient(), "pods", metav1.NamespaceDefault,
			fields.OneTermEqualSelector("spec.nodeName", p.node)),
		ObjectType: &corev1.Pod{},
		Handler: toolscache.ResourceEventHandlerFuncs{
			AddFunc: seen, UpdateFunc: func(_, o any) { seen(o) },
			DeleteFunc: func(o any) {
				name, _ := toolscache.DeletionHandlingObjectToName(o) // fails only for what is no object
				see(name.Name, sighting{gone: true})
			},
		},
	})
	informer.RunWithContext(ctx)
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
