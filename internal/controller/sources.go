// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

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

	"github.com/evenkeel/evenkeel/internal/fleet"
)

// errUnread means that a ConfigMap has not been read yet. All rollouts become due when it has.
var errUnread = errors.New("not read yet")

// templateSources are the ConfigMaps that templates name. They may be in any namespace, so each has its own watch: the
// controller needs permission for these objects only.
type templateSources struct {
	api     client.WithWatch
	changed func()

	mu  sync.Mutex
	all map[types.NamespacedName]*templateSource
}

// templateSource is one of these ConfigMaps.
type templateSource struct {
	stop   context.CancelFunc
	read   bool              // object is current
	object *corev1.ConfigMap // nil: there is none
	err    error             // why object is not current
}

func newTemplateSources(api client.WithWatch, changed func()) *templateSources {
	return &templateSources{api: api, changed: changed, all: map[types.NamespacedName]*templateSource{}}
}

// get returns a ConfigMap that is watched; nil if it does not exist. The error says why it cannot be read, and what to do.
func (n *templateSources) get(namespace, name string) (*corev1.ConfigMap, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.all[types.NamespacedName{Namespace: namespace, Name: name}]
	what := fmt.Sprintf("spec.template.configMapRef: ConfigMap %s/%s", namespace, name)
	switch {
	case w != nil && apierrors.IsForbidden(w.err):
		return nil, invalidTemplatef("%s cannot be read: %w; grant the controller's ServiceAccount get, list and watch on it, or use a "+
			"ConfigMap in the controller's namespace", what, w.err)
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
			n.start(ctx, key)
		}
	}
}

func (n *templateSources) start(ctx context.Context, key types.NamespacedName) {
	ctx, stop := context.WithCancel(ctx)
	w := &templateSource{stop: stop}
	n.all[key] = w
	update := func(change func()) {
		n.mu.Lock()
		change()
		n.mu.Unlock()
		n.changed()
	}
	var now *corev1.ConfigMap // from this connection
	f := fleet.Feed{
		API: n.api, List: &corev1.ConfigMapList{},
		Options: client.ListOptions{Namespace: key.Namespace, FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name)},
		Synced:  func() { update(func() { w.object, w.read, w.err = now, true, nil }) },
		Lost: func(err error) {
			now = nil
			update(func() { w.read, w.err = false, err })
		},
		Set: fleet.Typed(func(cm *corev1.ConfigMap) {
			fleet.StripMeta(&cm.ObjectMeta, nil)
			now = cm
			update(func() { w.object = cm })
		}),
		Remove: func(client.Object) {
			now = nil
			update(func() { w.object = nil })
		},
	}
	go f.Run(ctx)
}
