// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// extended is a resource of the Node without a device plugin: kubelets keep the
// capacity that the API server has.
const extended corev1.ResourceName = "evenkeel.test/x"

// staticLabel marks pods that a manifest of the kubelet defines.
const staticLabel = "evenkeel.test/static"

// addExtras adds to a world how much it has of the extended resource, and
// feature gates that the kubelet's version can change.
func (w *world) addExtras(minor int) {
	d := newRand(w.seed, extraStream)
	w.extended = 4
	if d.chance(35) {
		w.extended = int64(1 + d.IntN(3))
	}

	gates := map[string]any{}
	if d.chance(8) && minor >= 34 {
		gates["PodLevelResources"] = false
		// A kubelet ends if gates are on that depend on one that is off.
		if minor >= 35 {
			gates["InPlacePodLevelResourcesVerticalScaling"] = false
		}
		if minor >= 37 {
			gates["PodLevelResourcesFixDefaulting"], gates["PodLevelResourcesFixKubeletQOSClass"] = false, false
		}
	}

	if d.chance(8) && minor < 35 {
		gates["InPlacePodVerticalScaling"] = false
	}

	w.config["featureGates"] = gates
}

// disables reports whether the world has the feature gate off.
func (w world) disables(gate string) bool {
	return w.config["featureGates"].(map[string]any)[gate] == false
}

// makeStatic turns a pod into one of a manifest, which cannot name other
// objects. Before 1.35 a kubelet may admit it before it has seen the Node's
// labels, so that the prediction refuses each pair with a selector.
func makeStatic(pod *corev1.Pod, minor int) {
	if minor < 35 {
		pod.Spec.NodeSelector, pod.Spec.Affinity = nil, nil
	}

	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	pod.Labels = map[string]string{staticLabel: "yes"}
	pod.Spec.PriorityClassName, pod.Spec.RuntimeClassName = "", nil
}

func isStatic(pod *corev1.Pod) bool { return pod.Labels[staticLabel] != "" }

// create creates a pod, or writes its manifest, and returns the name that it
// has in the API.
func (n *node) create(pod *corev1.Pod) (string, error) {
	if !isStatic(pod) {
		_, err := n.Kube.CoreV1().Pods(namespace).Create(n.T.Context(), pod, metav1.CreateOptions{})
		return pod.Name, err
	}

	name := pod.Name + "-" + n.Node.Name()
	n.T.Logf("%s is a static pod", name)

	return name, os.WriteFile(n.manifest(name), []byte(asYAML(pod)), 0o644)
}

// manifest is the file of a static pod; other pods have none.
func (n *node) manifest(name string) string {
	return filepath.Join(n.base["staticPodPath"].(string), name+".yaml")
}

// setExtended sets the Node's capacity of the extended resource.
func (n *node) setExtended(ctx context.Context, amount int64) error {
	patch := fmt.Appendf(nil, `{"status":{"capacity":{%q:"%d"}}}`, extended, amount)
	_, err := n.Kube.CoreV1().Nodes().Patch(ctx, n.Node.Name(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// resize changes the CPU request of a running pod in some pairs, and waits
// until the kubelet has decided about it.
func (n *node) resize(seed uint64, before world) {
	n.T.Helper()
	d := newRand(seed, resizeStream)
	if !d.chance(25) || before.disables("InPlacePodVerticalScaling") {
		return
	}

	pods := assert.Value(n.pods(n.T.Context()))(n.T)
	for _, pod := range pods {
		c := pod.Spec.Containers[0]
		now := c.Resources.Requests.Cpu().MilliValue()
		_, limited := c.Resources.Limits[corev1.ResourceCPU]
		critical := pod.Spec.Priority != nil && *pod.Spec.Priority > 0 // its resize could preempt another pod before the restart
		if now < 4 || limited || critical || isStatic(pod) || pod.Spec.Resources != nil || pod.Status.Phase != corev1.PodRunning || d.chance(30) {
			continue
		}

		want := *resource.NewMilliQuantity(oneOf(d, now/2, now/2, now/3, now+1, 2*now), resource.DecimalSI)
		patch := assert.Value(json.Marshal(map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
			"name": c.Name, "resources": map[string]any{"requests": map[string]any{"cpu": want.String()}}}}}}))(n.T)
		if _, err := n.Kube.CoreV1().Pods(namespace).Patch(n.T.Context(), pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "resize"); apierrors.IsForbidden(err) {
			continue // newer API servers refuse a request that no node of this size can meet
		} else if err != nil {
			n.T.Fatalf("seed %d: resize %s to %s: %v", seed, pod.Name, want.String(), err)
		}

		n.Eventually("the kubelet has decided about the resize", func(ctx context.Context) error {
			now, err := n.Kube.CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}

			for _, c := range now.Status.Conditions {
				if c.Type == corev1.PodResizePending {
					return nil
				}
			}

			for _, s := range now.Status.ContainerStatuses {
				if s.Name == c.Name && s.AllocatedResources.Cpu().Cmp(want) == 0 {
					return nil
				}
			}

			return fmt.Errorf("%s: %+v", pod.Name, now.Status)
		})
		n.T.Logf("seed %d: %s is resized from %dm to %s", seed, pod.Name, now, want.String())

		return
	}
}
