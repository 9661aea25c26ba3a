// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// bindPods creates pods on the node, one in each namespace, and does not wait
// for them.
func (n *node) bindPods(name string, change func(*corev1.PodSpec), namespaces ...string) {
	n.t.Helper()
	for _, namespace := range namespaces {
		_, err := n.Kube.CoreV1().Namespaces().Create(n.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
			metav1.CreateOptions{})
		assert.That(n.t, err == nil || apierrors.IsAlreadyExists(err), "create namespace %s: %v", namespace, err)
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}} // no controller does it
		_, err = n.Kube.CoreV1().ServiceAccounts(namespace).Create(n.t.Context(), account, metav1.CreateOptions{})
		assert.That(n.t, err == nil || apierrors.IsAlreadyExists(err), "create the account of %s: %v", namespace, err)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: n.Node.Name() + "-" + name},
			Spec: corev1.PodSpec{
				NodeName: n.Node.Name(), AutomountServiceAccountToken: new(bool),
				Containers: []corev1.Container{{Name: "sleep", Image: localcluster.SleepImage}},
			},
		}
		change(&pod.Spec)
		assert.NoError(n.t, assert.Err(n.Kube.CoreV1().Pods(namespace).Create(n.t.Context(), pod, metav1.CreateOptions{})))
	}
}

func (n *node) adopts(cm *corev1.ConfigMap) {
	n.t.Helper()
	n.AssignMap(cm)
	n.Eventually("the kubelet runs "+cm.Name, func(ctx context.Context) error {
		nc, err := n.Get(ctx)
		if err == nil && (nc.Status.Trial == nil || nc.Status.Trial.HealthySeconds < 1 || nc.Status.Active == nil || nc.Status.Active.Name != cm.Name) {
			err = fmt.Errorf("trial: %+v", nc.Status.Trial)
		}

		return err
	})
}

// podsStarted waits for the reason of the condition PodsStarted, and returns
// its message.
func (n *node) podsStarted(reason string) (message string) {
	n.t.Helper()
	n.Eventually("PodsStarted says "+reason, func(ctx context.Context) error {
		nc, err := n.Get(ctx)
		if err != nil {
			return err
		}

		c := meta.FindStatusCondition(nc.Status.Conditions, v1alpha1.ConditionPodsStarted)
		if c == nil || c.Reason != reason {
			return fmt.Errorf("PodsStarted is %+v, ConfigOK %+v", c, meta.FindStatusCondition(nc.Status.Conditions, v1alpha1.ConditionConfigOK))
		}

		message = c.Message

		return nil
	})

	return message
}

// plain is for bindPods: a pod that sleeps.
func plain(*corev1.PodSpec) {}

// innocent are pods that cannot start whatever the kubelet's configuration is.
var innocent = map[string]func(*corev1.PodSpec){
	"image":   func(s *corev1.PodSpec) { s.Containers[0].Image = "registry.invalid/nothing:1" },
	"exits":   func(s *corev1.PodSpec) { s.Containers[0].Args = []string{"no-time"} },
	"command": func(s *corev1.PodSpec) { s.Containers[0].Command = []string{"/no-such-program"} },
	"secret": func(s *corev1.PodSpec) {
		s.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "missing"}}}}
		s.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	},
	"environment": func(s *corev1.PodSpec) {
		s.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "missing"}}}}
	},
}

func TestATrialFailsIfNoPodCanStart(t *testing.T) {
	t.Parallel()
	n := newNode(t, "starts", "--config-trial-duration=40s")
	n.Up()
	n.bindPods("before", innocent["command"], "kube-system")

	good := n.groupedConfigMap("starts-good", nil, map[string]any{"containerLogMaxFiles": 7})
	n.adopts(good)
	for name, change := range innocent {
		n.bindPods(name, change, metav1.NamespaceDefault, "kube-system")
	}

	n.LastKnownGood(good)
	t.Log(n.podsStarted(v1alpha1.PodsStartObserved)) // the program that exits was started

	// The trial is long enough for a busy machine to refuse pods in it, and
	// ends when they are refused.
	bad := n.groupedConfigMap("starts-bad", map[string]any{"configTrialDuration": "10m"}, map[string]any{"podPidsLimit": 2})
	n.adopts(bad)
	n.bindPods("web", plain, metav1.NamespaceDefault, "starts-shop")
	const want = "left the node unable to start pods: 2 refused, "
	nc := n.Says("False", v1alpha1.ReasonPodsCannotStart, want)
	for _, namespace := range []string{metav1.NamespaceDefault, "starts-shop"} {
		name := fmt.Sprintf("pod %s/%s-web: CreatePodSandboxError: ", namespace, n.Node.Name())
		assert.That(t, strings.Contains(nc.Status.Error, name), "error: %s", nc.Status.Error)
	}

	n.Event("Warning", "ConfigRolledBack", want)
}
