package controller

import (
	"context"
	"fmt"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/terms"
)

// maxErrorKept is how many characters of a node's error are kept: what status.failedNodes can hold.
const maxErrorKept = 1024

// cacheOptions makes caches that keep what is read of an object, and nothing else of it. What cannot be seen is noted.
func cacheOptions(namespace string, p *problems) (cache.Options, error) {
	revisions, err := labels.NewRequirement(v1alpha1.LabelRollout, selection.Exists, nil)
	if err != nil {
		return cache.Options{}, fmt.Errorf("select revisions: %w", err)
	}
	return cache.Options{
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:                {Transform: transform(stripNode)},
			&v1alpha1.NodeConfig{}:        {Transform: transform(stripNodeConfig)},
			&v1alpha1.NodeConfigRollout{}: {Transform: transform(stripRollout)},
			&corev1.ConfigMap{}: {
				Namespaces: map[string]cache.Config{namespace: {LabelSelector: labels.NewSelector().Add(*revisions)}},
				Transform:  transform(stripRevision),
			},
		},
		NewInformer: func(lw toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			return toolscache.NewSharedIndexInformer(consistent(lw, resourceOf(object), p), object, resync, indexers)
		},
	}, nil
}

// resourceOf is what the API calls a kind that is cached.
func resourceOf(object runtime.Object) string {
	switch object.(type) {
	case *corev1.Node:
		return "nodes/v1"
	case *v1alpha1.NodeConfig:
		return "nodeconfigs.evenkeel.dev/v1alpha1"
	case *v1alpha1.NodeConfigRollout:
		return "nodeconfigrollouts.evenkeel.dev/v1alpha1"
	}
	return "configmaps/v1"
}

// consistent lists what is stored, never what a watch cache of the API server remembers: a controller that has just
// started must see every write of the one before.
func consistent(lw toolscache.ListerWatcher, what string, p *problems) toolscache.ListerWatcher {
	inner := toolscache.ToListerWatcherWithContext(lw)
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.ResourceVersion, o.ResourceVersionMatch = "", ""
			list, err := inner.ListWithContext(ctx, o)
			p.note(what, advise(what, err))
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := inner.WatchWithContext(ctx, o)
			if err == nil || o.SendInitialEvents == nil { // else a list follows, and says the same
				p.note(what, advise(what, err))
			}
			return w, err
		},
	}
}

// transform applies to objects of one type; what else an informer holds stays as it is.
func transform[T any](strip func(T)) toolscache.TransformFunc {
	return func(object any) (any, error) {
		if o, ok := object.(T); ok {
			strip(o)
		}
		return object, nil
	}
}

func stripMeta(m *metav1.ObjectMeta, labels map[string]string) {
	*m = metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, Labels: labels,
	}
}

func stripNode(n *corev1.Node) {
	stripMeta(&n.ObjectMeta, n.Labels)
	n.Spec = corev1.NodeSpec{}
	info := n.Status.NodeInfo
	var ready []corev1.NodeCondition
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			ready = []corev1.NodeCondition{{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime}}
		}
	}
	n.Status = corev1.NodeStatus{Conditions: ready, NodeInfo: corev1.NodeSystemInfo{
		KubeletVersion: once(info.KubeletVersion), Architecture: once(info.Architecture), OperatingSystem: once(info.OperatingSystem),
	}}
}

// once returns the one copy of a text that nodes have in common.
func once[T ~string](s T) T { return T(unique.Make(string(s)).Value()) }

func stripNodeConfig(nc *v1alpha1.NodeConfig) {
	observed, is := nc.Annotations[v1alpha1.AnnotationObserved]
	stripMeta(&nc.ObjectMeta, nil)
	if is {
		nc.Annotations = map[string]string{v1alpha1.AnnotationObserved: observed}
	}
	if s := nc.Spec.ConfigSource; s != nil {
		stripReference(s.ConfigMapRef)
		stripRolloutRef(s.RolloutRef)
	}
	st := &nc.Status
	if st.Assigned != nil {
		st.Assigned.RolloutRef = nil
		stripRevisionOf(&st.Assigned.ConfigRevision)
	}
	stripRevisionOf(st.Active)
	if st.LastKnownGood != nil {
		stripRevisionOf(&st.LastKnownGood.ConfigRevision)
	}
	st.AgentVersion, st.ComponentVersion = once(st.AgentVersion), ""
	st.OverriddenFields = nil
	st.Error = cut(st.Error, maxErrorKept)
	for i := range st.Conditions {
		c := &st.Conditions[i]
		c.Type, c.Reason, c.Message = once(c.Type), once(c.Reason), once(cut(c.Message, maxErrorKept))
	}
	for i, b := range st.BadConfigs {
		st.BadConfigs[i] = v1alpha1.BadConfig{UID: b.UID, Provisional: b.Provisional}
	}
}

func stripReference(ref *v1alpha1.ConfigMapReference) {
	if ref != nil {
		ref.Namespace, ref.Name, ref.UID, ref.SHA256 = once(ref.Namespace), once(ref.Name), once(ref.UID), once(ref.SHA256)
	}
}

func stripRolloutRef(r *v1alpha1.RolloutReference) {
	if r == nil {
		return
	}
	r.Name = once(r.Name)
	if p := r.Previous; p != nil {
		p.Rollout = once(p.Rollout)
		stripReference(&p.ConfigMapRef)
	}
}

// stripRevisionOf keeps which object and which content it was.
func stripRevisionOf(r *v1alpha1.ConfigRevision) {
	if r != nil {
		*r = v1alpha1.ConfigRevision{UID: once(r.UID), SHA256: once(r.SHA256)}
	}
}

func stripRollout(r *v1alpha1.NodeConfigRollout) { stripMeta(&r.ObjectMeta, nil) }

// digestHeld is where a ConfigMap in the cache has the digest of what it holds, whatever its annotations say of that. No
// object of the API can have an annotation of this name.
const digestHeld = "digest of what it holds"

// stripRevision keeps of a revision's ConfigMap the digest of its content in place of that. An informer may do it twice.
func stripRevision(cm *corev1.ConfigMap) {
	if _, done := cm.Annotations[digestHeld]; done {
		return
	}
	kept := map[string]string{digestHeld: terms.PayloadDigest(cm)}
	if stopped, ok := cm.Annotations[annotationStopped]; ok {
		kept[annotationStopped] = stopped
	}
	stripMeta(&cm.ObjectMeta, map[string]string{
		v1alpha1.LabelRollout: cm.Labels[v1alpha1.LabelRollout], v1alpha1.LabelRevision: cm.Labels[v1alpha1.LabelRevision],
	})
	cm.Annotations = kept
	cm.Data, cm.BinaryData = nil, nil
}

// cut shortens a text to so many characters.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	runes := 0
	for i := range s {
		if runes++; runes > most {
			return s[:i]
		}
	}
	return s
}
