// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
)

// syncState records which watched kinds are synced: all their objects are known. The controller plans only while all kinds
// are.
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

// synced records that a kind is synced. The feeds of the other kinds then try again at once: the API server answers.
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

// runWatches watches all kinds, each with its own feed, and returns when ctx ends and the feeds have ended.
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
