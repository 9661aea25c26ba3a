// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// bindPods creates pods on the node, one in each namespace, and does not wait
// for them.
func (n *node) bindPods(name string, change func(*corev1.PodSpec), namespaces ...string) {
	n.t.Helper()
	ctx, core := n.t.Context(), n.Kube.CoreV1()
	created := func(_ any, err error) {
		n.t.Helper()
		assert.That(n.t, err == nil || apierrors.IsAlreadyExists(err), "create: %v", err)
	}
	for _, namespace := range namespaces {
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		created(core.Namespaces().Create(ctx, space, metav1.CreateOptions{}))
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}} // no controller does it
		created(core.ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}))
		pod := localcluster.SleepingPod(n.Node.Name() + "-" + name)
		pod.Spec.NodeName = n.Node.Name()
		change(&pod.Spec)
		assert.NoError(n.t, assert.Err(core.Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})))
	}
}

// adopts assigns a ConfigMap, and waits until the clock of its trial runs.
func (n *node) adopts(cm *corev1.ConfigMap) {
	n.t.Helper()
	n.AssignMap(cm)
	n.Awaits("the kubelet runs "+cm.Name, func(nc *v1alpha1.NodeConfig) error {
		p, a := nc.Status.Trial, nc.Status.Active
		return assert.Unless(p != nil && p.HealthySeconds >= 1 && a != nil && a.UID == cm.UID, "trial: %+v of %+v", p, a)
	})
}

// plain is for bindPods: a pod that sleeps.
func plain(*corev1.PodSpec) {}

// innocent are pods that cannot start whatever the kubelet's configuration is.
var innocent = map[string]func(*corev1.PodSpec){
	"image":   func(s *corev1.PodSpec) { s.Containers[0].Image = "registry.invalid/nothing:1" },
	"exits":   func(s *corev1.PodSpec) { s.Containers[0].Args = []string{"-v"} }, // the program of SleepImage ends at once
	"command": func(s *corev1.PodSpec) { s.Containers[0].Command = []string{"/no-such-program"} },
}

func TestATrialFailsIfNoPodCanStart(t *testing.T) {
	t.Parallel()
	n := newNode(t, "starts", "--config-trial-duration=40s")
	n.Up()
	good := n.ConfigMap("good", map[string]any{"containerLogMaxFiles": 7})
	n.adopts(good)
	for name, change := range innocent {
		n.bindPods(name, change, metav1.NamespaceDefault, "kube-system")
	}

	n.Eventually("the program that exits is started again and again", func(ctx context.Context) error {
		pod, err := n.Kube.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, n.Node.Name()+"-exits", getOptions)
		c := pod.Status.ContainerStatuses

		return errors.Join(err, assert.Unless(len(c) == 1 && c[0].RestartCount > 0, "its status is %s", pod.Status.String()))
	})
	n.LastKnownGood(good)
	n.Awaits("the program that exits was started", func(nc *v1alpha1.NodeConfig) error {
		c := meta.FindStatusCondition(nc.Status.Conditions, v1alpha1.ConditionPodsStarted)
		return assert.Unless(c != nil && c.Reason == v1alpha1.PodsStartObserved, "PodsStarted is %+v", c)
	})

	// Pods of before keep their cgroups, and so are no witnesses of a limit of
	// PIDs: those that exit would be started again.
	for _, namespace := range []string{metav1.NamespaceDefault, "kube-system"} {
		n.kubectl("delete", "pod", n.Node.Name()+"-exits", "--namespace="+namespace, "--now")
	}

	n.RunPods("before")

	// The trial is long enough for a busy machine to refuse pods in it, and
	// ends when they are refused.
	n.stop()
	n.Flags = []string{"--config-trial-duration=10m"}
	n.Up()
	n.adopts(n.ConfigMap("bad", map[string]any{"podPidsLimit": 2}))
	n.bindPods("web", plain, metav1.NamespaceDefault, "starts-shop")
	const want = "left the node unable to start pods: 2 refused, "
	nc := n.Says("False", v1alpha1.ReasonPodsCannotStart, want)
	for _, namespace := range []string{metav1.NamespaceDefault, "starts-shop"} {
		name := fmt.Sprintf("pod %s/%s-web: CreatePodSandboxError: ", namespace, n.Node.Name())
		assert.That(t, strings.Contains(nc.Status.Error, name), "error: %s", nc.Status.Error)
	}

	n.Event("Warning", "ConfigRolledBack", want)
	n.healthyWith(good)

	// Their cgroups keep the limit, so last-known-good cannot start them either.
	// That must not bring the failed configuration back.
	n.Awaits("the pods have been refused for long enough", func(nc *v1alpha1.NodeConfig) error {
		assert.Equal(t, nc.Status.Active.UID, good.UID, "what runs after the rollback")
		c := bed.ConfigOK(nc)
		assert.Equal(t, c.Reason, v1alpha1.ReasonPodsCannotStart, "ConfigOK")

		return assert.Unless(c.LastTransitionTime.Add(130*time.Second).Before(time.Now()), "it changed %s", c.LastTransitionTime)
	})
}

// TestARolloutStartsAPodOnItsFirstNode pushes configurations to a node without
// other pods: only the pod of the start probe shows whether the kubelet can
// start pods.
func TestARolloutStartsAPodOnItsFirstNode(t *testing.T) {
	t.Parallel()
	n := newCluster(t, "probed", "--config-trial-duration=2s")
	n.Kubelet = append(n.Kubelet, "--node-labels=pool=probed")
	n.Up()
	n.Controlled()
	n.Push("probed", map[string]any{"maxPods": 105}, "--selector=pool=probed", "--on-failure=rollback")
	n.RolloutEnds("probed", 0, "1 of 1 node updated") // no pod of the agent runs, and no image is named: no start probe
	n.patchStrategy("probed", fmt.Sprintf(`{"startProbeImage":%q}`, localcluster.SleepImage))
	n.Push("probed", map[string]any{"maxPods": 106})
	n.RolloutEnds("probed", 0, "1 of 1 node updated")
	n.Awaits("the node has passed a start probe", func(nc *v1alpha1.NodeConfig) error {
		return assert.Unless(nc.Annotations[v1alpha1.AnnotationObserved] == `{"rollout":"probed","revision":2,"attempt":1,"startProbe":"Passed"}`,
			"the controller has observed %s", nc.Annotations[v1alpha1.AnnotationObserved])
	})
	pods := assert.Value(n.Kube.CoreV1().Pods(v1alpha1.SystemNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelStartProbe}))(t)
	assert.Equal(t, len(pods.Items), 0, "pods of start probes that are left")

	n.Push("probed", map[string]any{"maxPods": 106, "podPidsLimit": 2})
	n.RolloutEnds("probed", 2, "PodsCannotStart")
	n.KubeletHas("maxPods", 106.0)

	assign := func(code int, fields map[string]any, words ...string) {
		n.Plugin(code, []string{"assign", "probed", "-f", n.File(n.DropIn(fields)), "--drop-in", "--yes", "--start-probe=" + localcluster.SleepImage}, words...)
	}
	assign(0, map[string]any{"maxPods": 107}, "node probed started and stopped a pod within")
	assign(1, map[string]any{"maxPods": 107, "podPidsLimit": 2}, "the node cannot start pod", "can't get final child's PID")
}

// patchStrategy changes the strategy of a rollout.
func (n *node) patchStrategy(rollout, strategy string) {
	n.t.Helper()
	n.kubectl("patch", "nodeconfigrollout", rollout, "--type=merge", "--patch="+fmt.Sprintf(`{"spec":{"strategy":%s}}`, strategy))
}
