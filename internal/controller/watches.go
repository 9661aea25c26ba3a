// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
)

// syncState records which watched kinds are synced: all their objects are
// known. The controller plans only while all kinds are.
type syncState struct {
	mu       sync.Mutex
	unsynced map[string]bool
	retry    map[string]chan struct{} // tells the feed of a kind to try again at once
	changed  chan struct{}            // a kind was synced
}

func newSyncState(kinds ...string) *syncState {
	s := &syncState{unsynced: map[string]bool{}, retry: map[string]chan struct{}{}, changed: make(chan struct{}, 1)}
	for _, k := range kinds {
		s.unsynced[k], s.retry[k] = true, make(chan struct{}, 1)
	}

	return s
}

// complete reports whether all kinds are synced.
func (s *syncState) complete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.unsynced) == 0
}

func (s *syncState) lost(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsynced[kind] = true
}

// synced records that a kind is synced. The feeds of the other kinds then try
// again at once: the API server answers.
func (s *syncState) synced(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unsynced, kind)
	for other := range s.unsynced {
		signal(s.retry[other])
	}

	signal(s.changed)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// The kinds that are watched, as messages name them.
const (
	kindNodes     = "nodes/v1"
	kindConfigs   = "nodeconfigs.evenkeel.dev/v1alpha1"
	kindRollouts  = "nodeconfigrollouts.evenkeel.dev/v1alpha1"
	kindRevisions = "configmaps/v1"
)

// runWatches watches all kinds, each with its own feed, and returns when ctx
// ends and the feeds have ended.
func (c *Controller) runWatches(ctx context.Context) {
	revisions, _ := labels.NewRequirement(v1alpha1.LabelRollout, selection.Exists, nil) // a constant, which is valid
	f := c.fleet
	var all sync.WaitGroup
	for kind, feed := range map[string]*fleet.Feed{
		kindRollouts: {List: &v1alpha1.NodeConfigRolloutList{}, Set: fleet.Typed(f.setRollout), Remove: fleet.Typed(f.deleteRollout)},
		kindConfigs: {List: &v1alpha1.NodeConfigList{}, Set: fleet.Typed(f.setConfig),
			Remove: func(o client.Object) { f.deleteConfig(o.GetName(), o.GetUID()) }},
		kindNodes: {List: &corev1.NodeList{}, Set: fleet.Typed(f.setNode), Remove: func(o client.Object) { f.deleteNode(o.GetName()) }},
		kindRevisions: {List: &corev1.ConfigMapList{}, Set: fleet.Typed(f.setRevision), Remove: fleet.Typed(f.deleteRevision),
			Options: client.ListOptions{Namespace: c.settings.Namespace, LabelSelector: labels.NewSelector().Add(*revisions)}},
	} {
		feed.API, feed.Retry = c.watching, c.watches.retry[kind]
		feed.Known = func() []client.Object { return f.known(kind) }
		feed.Synced = func() {
			c.watchErrors.set(kind, nil)
			c.watches.synced(kind)
			if c.watches.complete() {
				f.setLost(time.Time{})
			}

			f.scheduleAll()
		}
		feed.Lost = func(err error) {
			c.watches.lost(kind)
			f.setLost(f.now())
			if err != nil && ctx.Err() == nil {
				c.watchErrors.set(kind, advise(kind, err))
			}
		}
		all.Go(func() { feed.Run(ctx) })
	}

	all.Wait()
}

// errUnread means that a ConfigMap has not been read yet. All rollouts become
// due when it has.
var errUnread = errors.New("not read yet")

// templateSources are the ConfigMaps that templates name. They may be in any
// namespace, so each has its own watch: the controller needs permission for
// these objects only.
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

// get returns a ConfigMap that is watched; nil if it does not exist. The error
// says why it cannot be read, and what to do.
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
