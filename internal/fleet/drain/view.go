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
)

// view is the API as the filters of kubectl drain see it: without the pods that are left alone. The filters cannot tell these
// apart, and report an API server that does not answer as a pod that must not be evicted.
type view struct {
	kubernetes.Interface
	ignored   labels.Selector
	leftAlone []string // pods that the selector leaves alone, as namespace/name
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
		return nil, err
	}
	kept := list.Items[:0]
	for i := range list.Items {
		pod := &list.Items[i]
		ended, ignored := isIgnored(pod, p.view.ignored)
		if ignored {
			p.view.leftAlone = append(p.view.leftAlone, pod.Namespace+"/"+pod.Name)
		}
		if !ended && !ignored {
			kept = append(kept, *pod)
		}
	}
	list.Items = kept
	return list, nil
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

// Get notes an error, unless the DaemonSet does not exist: then the filters decide about its pod.
func (d daemonSetsView) Get(ctx context.Context, name string, options metav1.GetOptions) (*appsv1.DaemonSet, error) {
	set, err := d.DaemonSetInterface.Get(ctx, name, options)
	if err != nil && !apierrors.IsNotFound(err) {
		d.view.failed = fmt.Errorf("read DaemonSet %s: %w", name, err)
	}
	return set, err
}
