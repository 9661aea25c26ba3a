// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package startprobe

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// agents are where pods of the agent's image run.
var agents = []client.ObjectKey{
	{Namespace: v1alpha1.InstallNamespace, Name: v1alpha1.InstallerName},
	{Namespace: metav1.NamespaceSystem, Name: "evenkeel-kubelet"},
}

// Interval returns the least time between two passes over a probe: a pod that
// is late, and its Events, are read seldom.
func Interval(before rollout.ProbeReport, now time.Time) time.Duration {
	if !before.Began.IsZero() && now.Sub(before.Began) >= judgedFrom {
		return 10 * time.Second
	}

	return time.Second
}

// Pass does what is due for a probe: it creates the pod, deletes it when it is
// Ready, and judges it. before is the report of the pass before; zero: there is
// none, or it is not known any more, and a pod that is gone is created again.
// Only differences of now count. A pod that failed stays, so that the node's
// agent and people see it; RemoveOld deletes it.
func Pass(ctx context.Context, c client.Client, p Probe, before rollout.ProbeReport, now time.Time) rollout.ProbeReport {
	if before.Began.IsZero() {
		before.Began = now
	}

	report, err := pass(ctx, c, &p, before, now.Sub(before.Began))
	switch {
	case err == nil:
	case fleet.Passing(err) && now.Sub(before.Began) < patience || ctx.Err() != nil:
		report = rollout.ProbeReport{Stopping: before.Stopping, Message: printable.Line(err.Error())}
	default:
		report = rollout.ProbeReport{Result: rollout.ProbeUnknown, Message: printable.Line(err.Error())}
	}

	report.Key, report.Message, report.Began = p.Key, printable.Cut(report.Message, v1alpha1.MaxOutcomeMessage), before.Began
	if report.Stopping && !before.Stopping {
		report.Began = now
	}

	return report
}

func pass(ctx context.Context, c client.Client, p *Probe, before rollout.ProbeReport, waited time.Duration) (rollout.ProbeReport, error) {
	pod := &corev1.Pod{}
	err := c.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.name()}, pod)
	switch {
	case apierrors.IsNotFound(err) && before.Stopping:
		return rollout.ProbeReport{Result: rollout.ProbePassed}, nil
	case apierrors.IsNotFound(err) && waited >= patience:
		return rollout.ProbeReport{Result: rollout.ProbeUnknown, Message: "its pod is deleted again and again"}, nil
	case apierrors.IsNotFound(err):
		return create(ctx, c, p)
	case err != nil:
		return rollout.ProbeReport{}, fmt.Errorf("read the pod: %w", err)
	case pod.Labels[v1alpha1.LabelStartProbe] == "" || pod.Spec.NodeName != p.Node:
		return rollout.ProbeReport{}, fmt.Errorf("pod %s/%s is not a start probe of the node", pod.Namespace, pod.Name)
	case pod.DeletionTimestamp == nil && fleet.PodReady(pod):
		return rollout.ProbeReport{Stopping: true, Message: "its pod was Ready, and stops"}, remove(ctx, c, pod)
	case pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == "DeadlineExceeded":
		return rollout.ProbeReport{Message: "its pod had reached its deadline, and is created again"}, remove(ctx, c, pod)
	}

	events := &corev1.EventList{}
	if waited >= judgedFrom {
		if err := c.List(ctx, events, client.InNamespace(p.Namespace), client.Limit(maxEvents),
			client.MatchingFields{"involvedObject.uid": string(pod.UID)}); err != nil {
			return rollout.ProbeReport{}, fmt.Errorf("list the Events of the pod: %w", err)
		}
	}

	report := judge(pod, events.Items, p.Image == "", waited)
	report.Stopping = before.Stopping

	return report, nil
}

// Remove deletes the pod of a probe, if it exists.
func Remove(ctx context.Context, c client.Client, p Probe) error {
	return remove(ctx, c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.name()}})
}

// remove deletes a pod that was read, and no later one of its name; of a pod
// without a UID, the one that has the name.
func remove(ctx context.Context, c client.Client, pod *corev1.Pod) error {
	var same client.Preconditions
	if pod.UID != "" {
		same.UID = &pod.UID
	}
	if err := c.Delete(ctx, pod, same); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete start probe %s: %w", pod.Name, err)
	}

	return nil
}

// create creates the pod.
func create(ctx context.Context, c client.Client, p *Probe) (rollout.ProbeReport, error) {
	image := p.Image
	if image == "" {
		var err error
		if image, err = AgentImage(ctx, c, p.Node); err != nil {
			return rollout.ProbeReport{}, err
		} else if image == "" {
			return rollout.ProbeReport{}, fmt.Errorf("node %s has no evenkeel-agent pod whose image can be used: "+
				"set startProbeImage, or --start-probe=IMAGE, to an image that the node has", p.Node)
		}
	}

	if err := c.Create(ctx, p.Pod(image)); err != nil && !apierrors.IsAlreadyExists(err) {
		return rollout.ProbeReport{}, fmt.Errorf("create the pod: %w", err)
	}

	return rollout.ProbeReport{Message: "its pod was created"}, nil
}

// AgentImage returns the image of the agent's pod on a node, or on any node if
// that is empty. It returns an empty image if there is no such pod, or if the
// client may not list the pods.
func AgentImage(ctx context.Context, c client.Reader, node string) (string, error) {
	for _, agent := range agents {
		pods := &corev1.PodList{}
		options := []client.ListOption{client.InNamespace(agent.Namespace), client.Limit(1),
			client.MatchingLabels{"app.kubernetes.io/name": agent.Name}}
		if node != "" { // the API server's cache has an index of the nodes
			options = append(options, client.MatchingFields{"spec.nodeName": node},
				&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}})
		}

		err := c.List(ctx, pods, options...)
		switch {
		case apierrors.IsForbidden(err):
		case err != nil:
			return "", fmt.Errorf("list the pods in %s: %w", agent.Namespace, err)
		case len(pods.Items) > 0 && len(pods.Items[0].Spec.Containers) > 0:
			return pods.Items[0].Spec.Containers[0].Image, nil
		}
	}

	return "", nil
}

const (
	maxEvents = 100
	maxAge    = 10 * time.Minute // of a pod: no probe takes longer
)

// RemoveOld deletes the pods of probes that were left behind, such as by a
// rollout that was stopped.
func RemoveOld(ctx context.Context, c client.Client, namespace string, now time.Time) error {
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(namespace), client.HasLabels{v1alpha1.LabelStartProbe}); err != nil {
		return fmt.Errorf("list start probes: %w", err)
	}

	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.DeletionTimestamp != nil || now.Sub(pod.CreationTimestamp.Time) < maxAge {
			continue
		}
		if err := remove(ctx, c, pod); err != nil {
			return err
		}
	}

	return nil
}
