// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package startprobe starts and stops one small pod on a node, which shows
// whether the node's kubelet can start pods with its present configuration.
//
// It knows of rollouts only how they take a result (rollout.ProbeReport), and
// must not know why the pod is started.
package startprobe

import (
	"crypto/sha256"
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Lifetimes of the pod, in seconds.
const (
	deadline = 300
	grace    = 5
)

const (
	containerName = "start-probe"
	user          = 65532 // runs the container's program
)

// Probe describes the pod of one start probe.
type Probe struct {
	Namespace string
	Node      string
	Config    *v1alpha1.NodeConfig // of the node, which owns the pod
	For       string               // value of its label
	Key       string               // two probes of a node with the same key are the same
	Image     string               // empty: that of the agent's pod on the node
}

// name returns the name of the pod.
func (p *Probe) name() string {
	sum := sha256.Sum256([]byte(p.Node + "/" + p.Key))
	return "evenkeel-start-probe-" + hex.EncodeToString(sum[:8])
}

// Pod returns the pod with an image that the node has. It has no volume, no
// token and no rights, and the restricted profile of the Pod Security
// Standards. The command of the agent's image waits for SIGTERM.
func (p *Probe) Pod(image string) *corev1.Pod {
	no, yes := false, true
	container := corev1.Container{
		Name: containerName, Image: image, ImagePullPolicy: corev1.PullNever,
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}},
		SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
	}
	if p.Image == "" {
		container.Command = []string{"/evenkeel-agent", "start-probe"}
	}

	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.name(),
			Labels:      map[string]string{v1alpha1.LabelStartProbe: p.For, "app.kubernetes.io/part-of": "evenkeel"},
			Annotations: map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
			// A drain deletes a pod that has a controller.
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeConfig", Name: p.Config.Name,
				UID: p.Config.UID, Controller: &yes}},
		},
		Spec: corev1.PodSpec{
			NodeName: p.Node, Containers: []corev1.Container{container}, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
			ActiveDeadlineSeconds: new(int64(deadline)), TerminationGracePeriodSeconds: new(int64(grace)),
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: new(int64(user)), RunAsGroup: new(int64(user)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		},
	}
}
