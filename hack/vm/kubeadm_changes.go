// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// rollout is the rollout that selects both nodes, by this label.
const (
	rolloutName = "all"
	poolLabel   = "node-restriction.kubernetes.io/pool=all"
)

// workload are pods that a drain evicts. They may run on both nodes.
const workload = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      tolerations: [{key: node-role.kubernetes.io/control-plane}]
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}
      containers: [{name: web, image: "evenkeel.dev/sleep:1", imagePullPolicy: Never}]
`

func rollsOut(ctx context.Context, w *whole) {
	before := w.containers(ctx)
	w.applies(ctx, filepath.Join(w.release, "evenkeel-drain-"+filepath.Base(w.release)+".yaml"))
	w.applies(ctx, w.file("web.yaml", workload))
	w.available(ctx, "default", "web")
	w.kubectl(ctx, "label", "node", nodeName, workerName, poolLabel)

	plain := w.away(ctx, func() {
		w.run(ctx, w.machine, "systemctl restart kubelet", patience)
		w.becomesHealthy(ctx, w.machine)
		w.ready(ctx)
	})
	changed := w.away(ctx, func() {
		w.push(ctx, 0, "maxPods: 120", "--selector="+poolLabel, "--drop-in", "--steps=1,100%")
	})
	w.runsWith(ctx, 120)
	checked("a rollout changes both nodes; the API server was away for %s at most, and for %s while the kubelet restarted without a change", changed, plain)

	w.push(ctx, 2, crashes)
	w.becomesHealthy(ctx, w.machine)
	w.runsWith(ctx, 120)
	checked("a rollout of a change that crashes halts after one node, which has rolled back")
	w.sameControlPlane(ctx, before)
}

func drains(ctx context.Context, w *whole) {
	before := w.containers(ctx)
	w.kubectl(ctx, "patch", "nodeconfigrollout", rolloutName, "--type=merge", `--patch={"spec": {"strategy": {"drain": "WhenBlocked"}}}`)
	pods := w.podsOn(ctx, nodeName)
	// One less than there are pods, so that a running pod would be refused by
	// the new kubelet.
	w.push(ctx, 0, fmt.Sprintf("maxPods: %d", len(pods)-1))
	w.runsWith(ctx, len(pods)-1)
	left := pods
	w.eventually(ctx, "the node is drained", func(ctx context.Context) {
		left = w.podsOn(ctx, nodeName) // the last pod can still be ending when there are few enough
		stays := slices.ContainsFunc(left, func(p string) bool { return strings.HasPrefix(p, "default/") && slices.Contains(pods, p) })
		must.That(!stays, "its pods were %s and are %s", pods, left)
	})
	checked("a change for which the node has too many pods drains it first: %d pods, then %d", len(pods), len(left))
	w.push(ctx, 0, "maxPods: 121")
	w.available(ctx, "default", "web")
	w.sameControlPlane(ctx, before)
}

// push gives the rollout a drop-in, waits until it is complete or has stopped,
// and requires the exit code of rollout status.
func (w *whole) push(ctx context.Context, code int, dropIn string, flags ...string) {
	file := w.file("push.yaml", kubeletConfiguration(dropIn))
	args := append([]string{"push", rolloutName, "--filename=" + file, "--yes", "--trial-duration=15s", "--crash-loop-threshold=1", "--preflight=off"}, flags...)
	out, got := w.evenkeel(ctx, args...)
	must.That(got == 0 || got == code || got == 3, "push of %q ended with %d: %s", dropIn, got, out) // 3: it has not seen the end
	out, got = w.evenkeel(ctx, "rollout", "status", rolloutName, "--watch", "--timeout=80m")
	must.That(got == code, "the rollout of %q ended with %d, want %d: %s", dropIn, got, code, out)
}

// pods lists the pods of a namespace; "" is all namespaces.
func (w *whole) pods(ctx context.Context, namespace string, o metav1.ListOptions) []corev1.Pod {
	return must.Get(w.client().CoreV1().Pods(namespace).List(ctx, o)).Items
}

// podsOn returns the pods of a node, as namespace/name, that have not ended.
func (w *whole) podsOn(ctx context.Context, node string) (names []string) {
	for _, p := range w.pods(ctx, "", metav1.ListOptions{FieldSelector: "spec.nodeName=" + node + ",status.phase=Running"}) {
		names = append(names, p.Namespace+"/"+p.Name)
	}

	return names
}

// away returns the longest time between two answers of the API server while
// something is done.
func (w *whole) away(ctx context.Context, do func()) (longest time.Duration) {
	client := w.client()
	done, stop := context.WithCancel(ctx)
	var asking sync.WaitGroup
	asking.Go(func() {
		last := time.Now()
		for done.Err() == nil {
			ctx, cancel := context.WithTimeout(done, 5*time.Second)
			if client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil {
				longest, last = max(longest, time.Since(last)), time.Now()
			}

			cancel()
		}
	})
	err := must.Try(do)
	stop()
	asking.Wait()
	must.OK(err)

	return longest.Round(100 * time.Millisecond)
}
