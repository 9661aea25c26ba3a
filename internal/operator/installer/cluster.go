// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
)

// ErrApplyFirst means that objects of evenkeel's manifests are missing in the cluster.
var ErrApplyFirst = errors.New("apply evenkeel's manifests first: kubectl apply -f install.yaml")

// DesiredOf reads the operation's DaemonSet. It waits some seconds until kube-controller-manager has observed it.
func DesiredOf(ctx context.Context, c client.Client, m Operation) (w Desired, err error) {
	late := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, query.ObserveTimeout, true, func(context.Context) (bool, error) {
		w, err = Newest(ctx, c, m) // not the context of the poll, so that a read is not cut off
		return err != nil || w.Revision != "", nil
	})
	if late != nil && ctx.Err() == nil {
		late = fmt.Errorf("kube-controller-manager has not observed the newest DaemonSet %s/%s: is it running?", v1alpha1.InstallNamespace,
			m.DaemonSet)
	}
	return w, cmp.Or(err, late)
}

// Newest reads the operation's DaemonSet. The revision is empty until kube-controller-manager has observed it.
func Newest(ctx context.Context, c client.Client, m Operation) (Desired, error) {
	d := &appsv1.DaemonSet{}
	err := c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.InstallNamespace, Name: m.DaemonSet}, d)
	if apierrors.IsNotFound(err) {
		return Desired{}, fmt.Errorf("there is no DaemonSet %s/%s: %w", v1alpha1.InstallNamespace, m.DaemonSet, ErrApplyFirst)
	}
	if err != nil {
		return Desired{}, fmt.Errorf("read the DaemonSet %s/%s: %w", v1alpha1.InstallNamespace, m.DaemonSet, err)
	}
	container := &d.Spec.Template.Spec.Containers[0]
	w := Desired{Image: container.Image, Version: describe.ImageVersion(container.Image)}
	if probe := container.ReadinessProbe; probe != nil {
		// A restarted kubelet reports the old readiness of a pod until its first probe.
		w.ReadyFor = 2 * time.Duration(probe.PeriodSeconds) * time.Second
	}
	if d.Status.ObservedGeneration < d.Generation {
		return w, nil
	}
	revisions := &appsv1.ControllerRevisionList{}
	err = c.List(ctx, revisions, client.InNamespace(v1alpha1.InstallNamespace), client.MatchingLabels(d.Spec.Selector.MatchLabels))
	if err != nil {
		return w, fmt.Errorf("list the revisions of the DaemonSet %s/%s: %w", v1alpha1.InstallNamespace, m.DaemonSet, err)
	}
	newest := int64(-1)
	for _, r := range revisions.Items {
		owned := len(r.OwnerReferences) > 0 && r.OwnerReferences[0].UID == d.UID
		if owned && r.Revision > newest {
			newest, w.Revision = r.Revision, r.Labels[appsv1.ControllerRevisionHashLabelKey]
		}
	}
	return w, nil
}

// Events returns the newest Events of a Node since a time, at most so many, the newest last.
func Events(ctx context.Context, c client.Client, node string, since time.Time, most int) ([]corev1.Event, error) {
	list := &corev1.EventList{}
	err := c.List(ctx, list, client.InNamespace(metav1.NamespaceDefault), client.MatchingFieldsSelector{
		Selector: fields.Set{"involvedObject.kind": "Node", "involvedObject.name": node}.AsSelector(),
	})
	if err != nil {
		return nil, err
	}
	at := func(e corev1.Event) time.Time { return cmp.Or(e.LastTimestamp.Time, e.EventTime.Time) }
	found := slices.DeleteFunc(list.Items, func(e corev1.Event) bool { return at(e).Before(since.Truncate(time.Second)) })
	slices.SortStableFunc(found, func(a, b corev1.Event) int { return at(a).Compare(at(b)) })
	return found[max(0, len(found)-most):], nil
}
