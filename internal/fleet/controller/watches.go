package controller

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
)

// sight is which of the kinds that decisions are made of are seen completely now. Nothing is decided while one is not.
type sight struct {
	mu      sync.Mutex
	lacking map[string]bool
	wake    map[string]chan struct{} // feeds that may try again
	news    chan struct{}            // something is seen that was not
}

func newSight(kinds ...string) *sight {
	s := &sight{lacking: map[string]bool{}, wake: map[string]chan struct{}{}, news: make(chan struct{}, 1)}
	for _, k := range kinds {
		s.lacking[k], s.wake[k] = true, make(chan struct{}, 1)
	}
	return s
}

// whole reports whether everything is seen.
func (s *sight) whole() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lacking) == 0
}

func (s *sight) lost(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lacking[kind] = true
}

// seen notes that a kind is seen completely, and wakes the feeds of the others: the API server answers.
func (s *sight) seen(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lacking, kind)
	for other := range s.lacking {
		signal(s.wake[other])
	}
	signal(s.news)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// What the API calls the kinds that are watched.
const (
	kindNodes     = "nodes/v1"
	kindConfigs   = "nodeconfigs.evenkeel.dev/v1alpha1"
	kindRollouts  = "nodeconfigrollouts.evenkeel.dev/v1alpha1"
	kindRevisions = "configmaps/v1"
)

// look watches all that decisions are made of until ctx ends, each kind with a feed of its own, and returns when the
// feeds have ended.
func (c *Controller) look(ctx context.Context) {
	revisions, _ := labels.NewRequirement(v1alpha1.LabelRollout, selection.Exists, nil) // a constant, which is valid
	f := c.fleet
	var all sync.WaitGroup
	for kind, feed := range map[string]*feed{
		kindRollouts: {list: &v1alpha1.NodeConfigRolloutList{}, only: f.onlyRollouts,
			set: stripped(policy.StripRollout, f.setRollout), remove: stripped(policy.StripRollout, f.deleteRollout)},
		kindConfigs: {list: &v1alpha1.NodeConfigList{}, only: f.onlyConfigs,
			set: stripped(policy.StripNodeConfig, f.setConfig), remove: func(o client.Object) { f.deleteConfig(o.GetName(), o.GetUID()) }},
		kindNodes: {list: &corev1.NodeList{}, only: f.onlyNodes,
			set: stripped(policy.StripNode, f.setNode), remove: func(o client.Object) { f.deleteNode(o.GetName()) }},
		kindRevisions: {list: &corev1.ConfigMapList{}, within: client.ListOptions{Namespace: c.settings.Namespace, LabelSelector: labels.NewSelector().Add(*revisions)},
			only: f.onlyRevisions, set: stripped(policy.StripRevision, f.setRevision), remove: stripped(policy.StripRevision, f.deleteRevision)},
	} {
		feed.api, feed.wake = c.watching, c.sight.wake[kind]
		feed.seen = func() {
			c.blind.note(kind, nil)
			c.sight.seen(kind)
			f.markAll()
		}
		feed.lost = func(err error) {
			c.sight.lost(kind)
			if err != nil && ctx.Err() == nil {
				c.blind.note(kind, advise(kind, err))
			}
		}
		all.Go(func() { feed.run(ctx) })
	}
	all.Wait()
}

// stripped hands on what is kept of an object of a type.
func stripped[T client.Object](strip, to func(T)) func(client.Object) {
	return func(o client.Object) {
		if o, ok := o.(T); ok {
			strip(o)
			to(o)
		}
	}
}

// gone are objects that are known, were read before a list of that version, and are not in it.
func gone[T client.Object](all []T, there map[client.ObjectKey]bool, version string) (out []T) {
	for _, o := range all {
		if !there[client.ObjectKeyFromObject(o)] && !older(version, o.GetResourceVersion()) {
			out = append(out, o)
		}
	}
	return out
}

func (f *fleet) onlyNodes(there map[client.ObjectKey]bool, version string) {
	var known []*corev1.Node
	f.mu.Lock()
	for _, m := range f.nodes {
		if m.node != nil {
			known = append(known, m.node)
		}
	}
	f.mu.Unlock()
	for _, n := range gone(known, there, version) {
		f.deleteNode(n.Name)
	}
}

func (f *fleet) onlyConfigs(there map[client.ObjectKey]bool, version string) {
	var known []*v1alpha1.NodeConfig
	f.mu.Lock()
	for _, m := range f.nodes {
		if m.config != nil {
			known = append(known, m.config)
		}
	}
	f.mu.Unlock()
	for _, nc := range gone(known, there, version) {
		f.deleteConfig(nc.Name, nc.UID)
	}
}

func (f *fleet) onlyRollouts(there map[client.ObjectKey]bool, version string) {
	var known []*v1alpha1.NodeConfigRollout
	f.mu.Lock()
	for _, r := range f.rollouts {
		known = append(known, r.object)
	}
	f.mu.Unlock()
	for _, o := range gone(known, there, version) {
		f.deleteRollout(o)
	}
}

func (f *fleet) onlyRevisions(there map[client.ObjectKey]bool, version string) {
	var known []*corev1.ConfigMap
	f.mu.Lock()
	for _, of := range f.revisions {
		for _, cm := range of {
			known = append(known, cm)
		}
	}
	f.mu.Unlock()
	for _, cm := range gone(known, there, version) {
		f.deleteRevision(cm)
	}
}
