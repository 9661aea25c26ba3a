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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/internal/fleet/policy"
)

// errUnread is that a ConfigMap has not been read yet; whoever asked is told when it was.
var errUnread = errors.New("not read yet")

// templateSources are the ConfigMaps that templates name, each with a watch of its own: they may be in any namespace, and nothing
// else there is the controller's business.
type templateSources struct {
	api     client.WithWatch
	changed func()

	mu  sync.Mutex
	all map[types.NamespacedName]*watched
}

// watched is one of them.
type watched struct {
	stop   context.CancelFunc
	read   bool              // what there is now is known
	object *corev1.ConfigMap // nil: there is none
	err    error             // why it is not known
}

func newTemplateSources(api client.WithWatch, changed func()) *templateSources {
	return &templateSources{api: api, changed: changed, all: map[types.NamespacedName]*watched{}}
}

// get returns a ConfigMap that is watched; nil if it does not exist. The error says why that is not known, and what to do.
func (n *templateSources) get(namespace, name string) (*corev1.ConfigMap, error) {
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
	}
	return w.object, nil
}

// watch watches these ConfigMaps and no others, until ctx ends.
func (n *templateSources) watch(ctx context.Context, all map[types.NamespacedName]bool) {
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

func (n *templateSources) begin(ctx context.Context, key types.NamespacedName) {
	ctx, stop := context.WithCancel(ctx)
	w := &watched{stop: stop}
	n.all[key] = w
	take := func(change func()) {
		n.mu.Lock()
		change()
		n.mu.Unlock()
		n.changed()
	}
	var now *corev1.ConfigMap // of this connection
	f := feed{
		api: n.api, list: &corev1.ConfigMapList{},
		within: client.ListOptions{Namespace: key.Namespace, FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name)},
		only:   func(map[client.ObjectKey]bool, string) {},
		seen:   func() { take(func() { w.object, w.read, w.err = now, true, nil }) },
		lost: func(err error) {
			now = nil
			take(func() { w.read, w.err = false, err })
		},
	}
	show := func(o *corev1.ConfigMap) {
		now = o
		take(func() { w.object = o })
	}
	f.set = stripped(func(cm *corev1.ConfigMap) { policy.StripMeta(&cm.ObjectMeta, nil) }, show)
	f.remove = func(client.Object) { show(nil) }
	go f.run(ctx)
}
