// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/podguard"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// predict returns the pods that the prediction names, with reason and message,
// from the same inputs as the agent's. NeedsDrain refuses the whole pair.
func (n *node) predict(running, planned component.Effective, obj *corev1.Node, pods []*corev1.Pod) map[string]string {
	n.t.Helper()
	in := podguard.Input{Minor: n.kubelet.minor, Before: running, After: planned, Node: obj, Pods: pods, Running: runningOf(pods)}
	read(n, "allocated_pods_state", func(data []byte) (err error) { in.Allocated, err = podguard.DecodeAllocated(data); return err })
	read(n, "cpu_manager_state", func(data []byte) (err error) { in.CPUState, err = podguard.DecodeCPUState(data); return err })
	read(n, "memory_manager_state", func(data []byte) (err error) { in.MemoryState, err = podguard.DecodeMemoryState(data); return err })
	if why := podguard.NeedsDrain(in); len(why) > 0 {
		n.t.Errorf("the random configuration needs a drain: %s", strings.Join(why, "; "))
	}

	predicted := map[string]string{}
	for _, loss := range podguard.Predict(in) {
		predicted[loss.Name] = loss.Reason + ": " + loss.Message
	}

	return predicted
}

// read decodes a file of the kubelet's root directory, unless it is missing.
func read(n *node, name string, decode func([]byte) error) {
	n.t.Helper()
	data, err := os.ReadFile(filepath.Join(n.host.Dir(), "kubelet", name))
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err == nil {
		err = decode(data)
	}

	assert.NoError(n.t, err)
}

// runningOf returns the running containers. The pods do not change while the
// prediction is made, so their statuses are as good as the container runtime's
// answer.
func runningOf(pods []*corev1.Pod) map[types.UID]map[string]bool {
	running := map[types.UID]map[string]bool{}
	for _, pod := range pods {
		running[pod.UID] = map[string]bool{}
		for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
			for _, s := range statuses {
				if s.State.Running != nil {
					running[pod.UID][s.Name] = true
				}
			}
		}
	}

	return running
}
