// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/evenkeel/evenkeel/internal/printable"
)

// view is the API as the filters of kubectl drain see it: without the pods that
// are left alone or are ending. The filters cannot tell these apart, and report
// an API server that does not answer as a pod that must not be evicted.
type view struct {
	kubernetes.Interface
	ignored   labels.Selector
	listed    int      // pods
	leftAlone []string // pods that the selector leaves alone, as namespace/name
	ending    []string // pods that are being deleted, as namespace/name
	failed    error    // a request that failed
}

func (v *view) CoreV1() coreclient.CoreV1Interface { return coreView{v.Interface.CoreV1(), v} }
func (v *view) AppsV1() appsclient.AppsV1Interface { return appsView{v.Interface.AppsV1(), v} }

type coreView struct {
	coreclient.CoreV1Interface
	view *view
}

func (c coreView) Pods(namespace string) coreclient.PodInterface {
	return podsView{c.CoreV1Interface.Pods(namespace), c.view}
}

type podsView struct {
	coreclient.PodInterface
	view *view
}

// List returns the pods that the filters judge.
func (p podsView) List(ctx context.Context, options metav1.ListOptions) (*corev1.PodList, error) {
	list, err := p.PodInterface.List(ctx, options)
	if err != nil {
		p.view.failed = fmt.Errorf("list the pods of the node: %w", err)
		return nil, p.view.failed
	}

	if p.view.listed += len(list.Items); p.view.listed > maxObjects {
		p.view.failed = fmt.Errorf("the node has more than %s", printable.Count(maxObjects, "pod"))
		return nil, p.view.failed
	}

	kept := list.Items[:0]
	for i := range list.Items {
		switch pod := &list.Items[i]; {
		case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed: // ended
		case isPartOfNode(pod):
			if pod.DeletionTimestamp == nil {
				kept = append(kept, *pod)
			}
		case p.view.ignored.Matches(labels.Set(pod.Labels)):
			p.view.leftAlone = append(p.view.leftAlone, nameOf(pod))
		case pod.DeletionTimestamp != nil: // whoever deleted it has decided
			p.view.ending = append(p.view.ending, nameOf(pod))
		default:
			kept = append(kept, *pod)
		}
	}

	list.Items = kept

	return list, nil
}

// isPartOfNode reports whether a pod is static or of a DaemonSet: no drain
// evicts it.
func isPartOfNode(pod *corev1.Pod) bool {
	_, static := pod.Annotations[corev1.MirrorPodAnnotationKey]
	owner := metav1.GetControllerOfNoCopy(pod)
	return static || owner != nil && owner.APIVersion == appsv1.SchemeGroupVersion.String() && owner.Kind == "DaemonSet"
}

type appsView struct {
	appsclient.AppsV1Interface
	view *view
}

func (a appsView) DaemonSets(namespace string) appsclient.DaemonSetInterface {
	return daemonSetsView{a.AppsV1Interface.DaemonSets(namespace), a.view}
}

type daemonSetsView struct {
	appsclient.DaemonSetInterface
	view *view
}

// Get notes an error, unless the DaemonSet does not exist: then the filters
// decide about its pod.
func (d daemonSetsView) Get(ctx context.Context, name string, options metav1.GetOptions) (*appsv1.DaemonSet, error) {
	set, err := d.DaemonSetInterface.Get(ctx, name, options)
	if err != nil && !apierrors.IsNotFound(err) {
		d.view.failed = fmt.Errorf("read DaemonSet %s: %w", name, err)
	}

	return set, err
}
