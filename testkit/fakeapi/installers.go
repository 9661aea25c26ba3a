// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/installer"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// Installers are the installer's two DaemonSets with their controller, and the
// kubelets and agents of the nodes on which their pods run. It works with a
// real API server too, and must not run beside the controllers of Kubernetes
// there.
type Installers struct {
	client.Client

	mu    sync.Mutex
	plays map[string]Play // by node
	order []string        // nodes, as their pods became ready
	most  int             // pods that were not ready at a time
}

// Play is how a node behaves with a pod.
type Play struct {
	Version  string // that the agent reports; empty: none does
	Ready    bool
	Exit     int32
	Said     string // by the container that has exited
	Waiting  string // REASON: MESSAGE
	Unseen   bool   // the kubelet has not seen the pod
	Restarts int32
}

// Plays.
var (
	ComesBack = Play{Ready: true, Version: "v1.0.0"}
	TakenBack = Play{Exit: 2, Said: "level=INFO msg=restarting\nevenkeel-agent: the kubelet did not come back: /healthz: connection refused", Restarts: 1}
)

// Image makes both DaemonSets have an image, and their controller observe it.
func (i *Installers) Image(ctx context.Context, image string) (err error) {
	defer must.Catch(&err)

	for _, op := range []installer.Operation{installer.Install, installer.Uninstall} {
		d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.InstallNamespace, Name: op.DaemonSet}}
		its := map[string]string{"app.kubernetes.io/name": op.DaemonSet}
		if err := i.Get(ctx, client.ObjectKeyFromObject(d), d); apierrors.IsNotFound(err) {
			d.Spec.Selector, d.Spec.Template.Labels = &metav1.LabelSelector{MatchLabels: its}, its
			d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "installer", Image: image, ReadinessProbe: &corev1.Probe{
				PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"probe"}}},
			}}}
			must.OK(i.Create(ctx, d))
		} else {
			must.OK(err)
			c := &d.Spec.Template.Spec.Containers[0]
			c.Image, c.ReadinessProbe.PeriodSeconds = image, 1
			must.OK(i.Update(ctx, d))
		}

		d.Status.ObservedGeneration = d.Generation
		version := strings.NewReplacer(":", "-", "/", "-").Replace(image)
		r := &appsv1.ControllerRevision{Revision: d.Generation, Data: runtime.RawExtension{Raw: []byte("{}")}, ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name + "-" + version, Labels: map[string]string{"app.kubernetes.io/name": d.Name, appsv1.ControllerRevisionHashLabelKey: version},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: d.Name, UID: d.UID}},
		}}
		must.OK(i.Status().Update(ctx, d))
		must.OK(i.Create(ctx, r))
	}

	return nil
}

// Plays sets how a node behaves.
func (i *Installers) Plays(node string, p Play) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.plays == nil {
		i.plays = map[string]Play{}
	}

	i.plays[node] = p
}

// Order returns the nodes whose pods became ready since the last call, and how
// many pods were not ready at a time.
func (i *Installers) Order() (order []string, most int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	order, most = i.order, i.most
	i.order, i.most = nil, 0

	return order, most
}

// Run lets the DaemonSets and the nodes act, each tick, until ctx ends.
func (i *Installers) Run(ctx context.Context, tick time.Duration) error {
	for {
		if err := i.Step(ctx); err != nil && ctx.Err() == nil {
			return err
		}

		select {
		case <-ctx.Done():
			return nil
		case <-time.After(tick):
		}
	}
}

// Step is what the DaemonSets and the nodes do at one moment.
func (i *Installers) Step(ctx context.Context) (err error) {
	defer must.Catch(&err)

	nodes, pods := &corev1.NodeList{}, &corev1.PodList{}
	must.OK(errors.Join(i.List(ctx, nodes), i.List(ctx, pods, client.InNamespace(v1alpha1.InstallNamespace))))
	has := map[string]bool{}
	busy := 0
	for n := range pods.Items {
		pod := &pods.Items[n]
		name := pod.Labels["app.kubernetes.io/name"]
		has[name+"/"+pod.Spec.NodeName] = true
		wanted := false
		for _, node := range nodes.Items {
			op := operationFor(&node)
			wanted = wanted || node.Name == pod.Spec.NodeName && op != nil && name == op.DaemonSet
		}

		if !wanted || pod.DeletionTimestamp != nil {
			must.OK(client.IgnoreNotFound(i.Delete(ctx, pod, client.GracePeriodSeconds(0))))
			continue
		}

		i.mu.Lock()
		play := i.plays[pod.Spec.NodeName]
		i.mu.Unlock()
		if !fleet.PodReady(pod) {
			busy++
		}
		if fleet.PodReady(pod) == play.Ready && play.Ready || play.Unseen {
			continue
		}

		i.report(ctx, pod, play)
	}

	i.mu.Lock()
	i.most = max(i.most, busy)
	i.mu.Unlock()
	for _, node := range nodes.Items {
		if op := operationFor(&node); op != nil && !has[op.DaemonSet+"/"+node.Name] {
			i.start(ctx, *op, node.Name)
		}
	}

	return nil
}

// operationFor returns the operation that a node's label asks for, or nil.
func operationFor(node *corev1.Node) *installer.Operation {
	switch node.Labels[v1alpha1.LabelAgent] {
	case v1alpha1.AgentInstall:
		return &installer.Install
	case v1alpha1.AgentUninstall:
		return &installer.Uninstall
	}

	return nil
}

// start creates the pod of a DaemonSet on a node.
func (i *Installers) start(ctx context.Context, op installer.Operation, node string) {
	want, err := installer.Newest(ctx, i.Client, op)
	if errors.Is(err, installer.ErrApplyFirst) {
		return
	}

	must.OK(err)
	must.OK(i.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.InstallNamespace, Name: fmt.Sprintf("%s-%s-%s", op.DaemonSet, node, want.Revision),
			Labels: map[string]string{"app.kubernetes.io/name": op.DaemonSet, appsv1.ControllerRevisionHashLabelKey: want.Revision}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "installer", Image: want.Image}}},
	}))
}

// report writes a pod's status, and the report of the agent if it started.
func (i *Installers) report(ctx context.Context, pod *corev1.Pod, play Play) {
	if play.Version != "" && pod.Labels["app.kubernetes.io/name"] == installer.Install.DaemonSet {
		nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: pod.Spec.NodeName}}
		must.OK(client.IgnoreAlreadyExists(i.Create(ctx, nc)))
		must.OK(i.Get(ctx, client.ObjectKeyFromObject(nc), nc))
		nc.Status = v1alpha1.NodeConfigStatus{ObservedGeneration: nc.Generation, AgentVersion: play.Version}
		must.OK(i.Status().Update(ctx, nc))
	}

	container := corev1.ContainerStatus{Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, RestartCount: play.Restarts, Ready: play.Ready}
	switch reason, message, _ := strings.Cut(play.Waiting, ": "); {
	case reason != "":
		container.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
	case play.Exit != 0:
		container.ContainerID = "containerd://1"
		container.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
		container.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: play.Exit, Message: play.Said, ContainerID: "containerd://1"}
	default:
		container.ContainerID = "containerd://1"
		container.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.Now()}
	}

	pod.Status.Phase, pod.Status.ContainerStatuses, pod.Status.Conditions = corev1.PodRunning, []corev1.ContainerStatus{container}, nil
	if play.Ready {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		i.mu.Lock()
		i.order = append(i.order, pod.Spec.NodeName)
		i.mu.Unlock()
	}

	must.OK(client.IgnoreNotFound(i.Status().Update(ctx, pod)))
}

// PodsOf returns the UIDs of the pods by node.
func (i *Installers) PodsOf(ctx context.Context) (map[string]types.UID, error) {
	list := &corev1.PodList{}
	err := i.List(ctx, list, client.InNamespace(v1alpha1.InstallNamespace))
	found := map[string]types.UID{}
	for _, pod := range list.Items {
		found[pod.Spec.NodeName] = pod.UID
	}

	return found, err
}
