// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// RunPods starts pods that sleep on the node, and waits until they run.
func (n *Subject) RunPods(names ...string) {
	n.T.Helper()
	n.RunPodsWith(func(*corev1.PodSpec) {}, names...)
}

// RunPodsWith is RunPods with a change of each pod.
func (n *Subject) RunPodsWith(change func(*corev1.PodSpec), names ...string) {
	n.T.Helper()
	for _, name := range names {
		pod := localcluster.SleepingPod(n.Node.Name() + "-" + name)
		pod.Spec.NodeName = n.Node.Name()
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
		change(&pod.Spec)
		assert.NoError(n.T, assert.Err(n.Kube.CoreV1().Pods(metav1.NamespaceDefault).Create(n.T.Context(), pod, metav1.CreateOptions{})))
	}

	for _, name := range names {
		n.PodRuns(n.Node.Name() + "-" + name)
	}
}

// PodRuns waits until a pod runs.
func (n *Subject) PodRuns(name string) {
	n.T.Helper()
	n.Eventually("pod "+name+" runs", func(ctx context.Context) error {
		pod, err := n.Kube.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		return errors.Join(err, assert.Unless(pod.Status.Phase == corev1.PodRunning, "its status is %s", pod.Status.String()))
	})
}

// DeletePods deletes pods, and waits until they are gone.
func (n *Subject) DeletePods(names ...string) {
	n.T.Helper()
	now := int64(1)
	for _, name := range names {
		assert.NoError(n.T, n.Kube.CoreV1().Pods(metav1.NamespaceDefault).Delete(n.T.Context(), n.Node.Name()+"-"+name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	}

	n.Eventually("the pods are gone", func(ctx context.Context) error {
		pods, err := n.Pods(ctx)
		if err != nil {
			return err
		}

		for _, pod := range pods {
			if slices.Contains(names, strings.TrimPrefix(pod.Name, n.Node.Name()+"-")) {
				return fmt.Errorf("%s is still there", pod.Name)
			}
		}

		return nil
	})
}

// Containers returns the ID and restart count of every container on the node.
func (n *Subject) Containers() map[string]string {
	n.T.Helper()
	out := map[string]string{}
	for _, pod := range assert.Value(n.Pods(n.T.Context()))(n.T) {
		for _, c := range pod.Status.ContainerStatuses {
			out[pod.Name] = fmt.Sprintf("%s, phase %s, restarted %d times", c.ContainerID, pod.Status.Phase, c.RestartCount)
		}
	}

	return out
}

// SameContainers requires that these containers run as before, and that no
// others do.
func (n *Subject) SameContainers(before map[string]string) {
	n.T.Helper()
	if after := n.Containers(); !maps.Equal(before, after) {
		n.T.Errorf("containers are %v, were %v", after, before)
	}
}
