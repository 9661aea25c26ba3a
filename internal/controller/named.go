package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
)

// errUnread is that a ConfigMap has not been read yet; whoever asked is told when it was.
var errUnread = errors.New("not read yet")

// named are the ConfigMaps that templates name, each with a watch of its own: they may be in any namespace, and nothing
// else there is the controller's business.
type named struct {
	api     rest.Interface // of core/v1
	changed func()

	mu  sync.Mutex
	all map[types.NamespacedName]*watched
}

// watched is one of them.
type watched struct {
	stop   context.CancelFunc
	read   bool
	object *corev1.ConfigMap // nil: there is none
	err    error             // of the last try to read it
}

func newNamed(api rest.Interface, changed func()) *named {
	return &named{api: api, changed: changed, all: map[types.NamespacedName]*watched{}}
}

// get returns a ConfigMap that is watched. The error says why there is none, and what to do.
func (n *named) get(namespace, name string) (*corev1.ConfigMap, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.all[types.NamespacedName{Namespace: namespace, Name: name}]
	what := fmt.Sprintf("spec.template.configMapRef: ConfigMap %s/%s", namespace, name)
	switch {
	case w != nil && apierrors.IsForbidden(w.err):
		return nil, unusablef("%s cannot be read: %w; give the controller's ServiceAccount get, list and watch on it, or name one in the controller's own namespace", what, w.err)
	case w != nil && !w.read && w.err != nil:
		return nil, fmt.Errorf("%s cannot be read: %w", what, w.err)
	case w == nil || !w.read:
		return nil, fmt.Errorf("%s: %w", what, errUnread)
	case w.object == nil:
		return nil, unusablef("%s does not exist: create it, or name another; nothing changes until then", what)
	}
	return w.object, nil
}

// watch watches these ConfigMaps and no others, until ctx ends.
func (n *named) watch(ctx context.Context, all map[types.NamespacedName]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, w := range n.all {
		if !all[key] {
			w.stop()
			delete(n.all, key)
		}
	}
	for key := range all {
		if n.all[key] == nil {
			n.begin(ctx, key)
		}
	}
}

func (n *named) begin(ctx context.Context, key types.NamespacedName) {
	ctx, stop := context.WithCancel(ctx)
	w := &watched{stop: stop}
	n.all[key] = w
	set := func(read bool, object *corev1.ConfigMap) {
		n.mu.Lock()
		w.object, w.read = object, w.read || read
		n.mu.Unlock()
		n.changed()
	}
	tried := func(err error) {
		n.mu.Lock()
		news := (w.err == nil) != (err == nil)
		w.err = err
		n.mu.Unlock()
		if news {
			n.changed()
		}
	}
	from := toolscache.NewListWatchFromClient(n.api, "configmaps", key.Namespace, fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name))
	_, controller := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: &toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				list, err := from.ListWithContext(ctx, o)
				tried(err)
				return list, err
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				w, err := from.WatchWithContext(ctx, o)
				tried(err)
				return w, err
			},
		},
		ObjectType: &corev1.ConfigMap{},
		Handler: toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { set(true, o.(*corev1.ConfigMap)) },
			UpdateFunc: func(_, o any) { set(true, o.(*corev1.ConfigMap)) },
			DeleteFunc: func(any) { set(true, nil) },
		},
		Transform: func(o any) (any, error) {
			if cm, ok := o.(*corev1.ConfigMap); ok {
				stripMeta(&cm.ObjectMeta, nil)
			}
			return o, nil
		},
	})
	go controller.RunWithContext(ctx)
	go func() {
		if toolscache.WaitForCacheSync(ctx.Done(), controller.HasSynced) {
			n.mu.Lock()
			w.read = true
			n.mu.Unlock()
			n.changed()
		}
	}()
}
