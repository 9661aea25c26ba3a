// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/query"
)

// cache is a cache of a cluster's nodes, NodeConfigs and rollouts, kept current
// by watches, with only the fields that the map shows. As a client.Reader, it
// lists these kinds from memory, and reads single objects from the API.
type cache struct {
	api client.WithWatch

	mu       sync.Mutex
	nodes    map[string]*corev1.Node
	configs  map[string]*v1alpha1.NodeConfig
	rollouts map[string]*v1alpha1.NodeConfigRollout
	// listed has the kinds that were listed at least once.
	listed map[string]bool
	// failing has the kinds that cannot be read now.
	failing map[string]failure
	// answers has the controller's Lease, and ConfigMaps of templates and
	// revisions; see cachedReader.
	answers map[string]kept
	// mayNotPatch is why the user may not change rollouts, once that is known;
	// empty: the user may.
	rightsKnown bool
	mayNotPatch string
	changed     chan struct{}
	// renewed is the last renewal of the controller's Lease, and renewedAt when
	// it was seen, on the clock of this machine.
	renewed, renewedAt time.Time
}

// renewal returns when the controller last renewed its Lease: on its own clock
// at first, and later on that of this machine.
func (w *cache) renewal(ctx context.Context, namespace string, now time.Time) query.Renewal {
	lease := query.ControllerRenewal(ctx, cachedReader{w}, namespace)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.renewed.IsZero():
		w.renewed, w.renewedAt = lease.Time, lease.Time
	case !lease.Time.Equal(w.renewed):
		w.renewed, w.renewedAt = lease.Time, now
	}

	lease.Time = w.renewedAt

	return lease
}

// failure is why a kind cannot be read, and since when.
type failure struct {
	since time.Time
	err   error
}

// The watched kinds.
const (
	kindNodes    = "Nodes"
	kindConfigs  = "NodeConfigs"
	kindRollouts = "rollouts"
)

func newCache(api client.WithWatch) *cache {
	return &cache{
		api: api, nodes: map[string]*corev1.Node{}, configs: map[string]*v1alpha1.NodeConfig{},
		rollouts: map[string]*v1alpha1.NodeConfigRollout{},
		listed:   map[string]bool{}, failing: map[string]failure{}, answers: map[string]kept{},
		changed: make(chan struct{}, 1),
	}
}

// watch keeps the cache current until ctx ends.
func (w *cache) watch(ctx context.Context) {
	var all sync.WaitGroup
	for _, feed := range w.feeds() {
		all.Go(func() { feed.Run(ctx) })
	}

	all.Go(func() { w.ping(ctx) })
	all.Wait()
}

// feeds returns the watches of all kinds, by kind.
func (w *cache) feeds() map[string]*fleet.Feed {
	return map[string]*fleet.Feed{
		kindNodes:    feedOf(w, kindNodes, w.nodes, &corev1.NodeList{}, fleet.StripNode),
		kindConfigs:  feedOf(w, kindConfigs, w.configs, &v1alpha1.NodeConfigList{}, stripNodeConfig),
		kindRollouts: feedOf(w, kindRollouts, w.rollouts, &v1alpha1.NodeConfigRolloutList{}, fleet.StripRollout),
	}
}

// stripNodeConfig is fleet.StripNodeConfig, but keeps what only the page shows:
// the version of the kubelet, values that depend on the machine, and when and
// why configurations failed.
func stripNodeConfig(nc *v1alpha1.NodeConfig) {
	kubelet, intern := unique.Make(nc.Status.ComponentVersion), func(text string) string { return unique.Make(text).Value() }
	bad, values := slices.Clone(nc.Status.BadConfigs), nc.Status.ResolvedValues
	for i, v := range values { // many nodes have the same
		values[i].Path, values[i].Value, values[i].From = intern(v.Path), intern(v.Value), intern(v.From)
	}

	fleet.StripNodeConfig(nc)
	nc.Status.ComponentVersion, nc.Status.ResolvedValues = kubelet.Value(), values
	for i, b := range bad {
		nc.Status.BadConfigs[i].Time, nc.Status.BadConfigs[i].Reason = b.Time, brief(b.Reason)
	}
}

// feedOf returns a watch that keeps the items of one kind current. strip
// removes the fields that the page does not show.
func feedOf[T client.Object](w *cache, kind string, items map[string]T, list client.ObjectList, strip func(T)) *fleet.Feed {
	change := func(do func()) {
		w.mu.Lock()
		do()
		w.mu.Unlock()
		w.wake()
	}
	return &fleet.Feed{
		API: w.api, List: list,
		Set: fleet.Typed(func(o T) {
			strip(o)
			change(func() { items[o.GetName()] = o })
		}),
		Remove: func(o client.Object) { change(func() { delete(items, o.GetName()) }) },
		Known: func() (known []client.Object) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, o := range items {
				known = append(known, o)
			}

			return known
		},
		Synced: func() {
			w.record(kind, nil)
			change(func() { w.listed[kind] = true })
		},
		Lost: func(err error) {
			if err != nil {
				w.record(kind, err)
			}
		},
	}
}

// pingInterval is the time between two requests that check the API server: a
// watch does not notice a server that hangs.
const pingInterval = 3 * time.Second

// kindAPI is the key in failing of the API server itself.
const kindAPI = "the API server"

// ping records whether the API server answers, and what the user may do.
func (w *cache) ping(ctx context.Context) {
	var checked time.Time
	for ctx.Err() == nil {
		if time.Since(checked) > rightsInterval && w.checkRights(ctx) == nil {
			checked = time.Now()
		}

		requestCtx, cancel := context.WithTimeout(ctx, 2*pingInterval)
		err := w.api.List(requestCtx, &v1alpha1.NodeConfigRolloutList{}, client.Limit(1))
		cancel()
		if ctx.Err() == nil {
			if err != nil && !unreachable(err) {
				err = nil // it answers; the watch of the kind records this error
			}

			w.record(kindAPI, err)
		}

		select {
		case <-ctx.Done():
		case <-time.After(pingInterval):
		}
	}
}

// record records that a kind can be read, or why not.
func (w *cache) record(kind string, err error) {
	w.mu.Lock()
	was, failing := w.failing[kind]
	switch {
	case err == nil:
		delete(w.failing, kind)
	case failing:
		w.failing[kind] = failure{was.since, err}
	default:
		w.failing[kind] = failure{time.Now(), err}
	}

	w.mu.Unlock()
	if failing || err != nil {
		w.wake()
	}
}

func (w *cache) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Get reads an object from the API, current and with all fields.
func (w *cache) Get(ctx context.Context, key client.ObjectKey, object client.Object, o ...client.GetOption) error {
	return w.api.Get(ctx, key, object, o...)
}

// List returns watched kinds from memory, sorted by name and in one page. It
// returns an error for a kind that was never listed.
func (w *cache) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(options)
	kind := ""
	switch l := list.(type) {
	case *corev1.NodeList:
		kind, l.Items = kindNodes, listOf(w, w.nodes, o.LabelSelector)
	case *v1alpha1.NodeConfigList:
		kind, l.Items = kindConfigs, listOf(w, w.configs, o.LabelSelector)
	case *v1alpha1.NodeConfigRolloutList:
		kind, l.Items = kindRollouts, listOf(w, w.rollouts, o.LabelSelector)
	default:
		return w.api.List(ctx, list, options...)
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listed[kind] {
		return nil
	}
	if f, ok := w.failing[kind]; ok {
		return f.err
	}

	return fmt.Errorf("the %s have not been listed yet", kind)
}

func listOf[T any, P interface {
	*T
	client.Object
}](w *cache, items map[string]P, selector labels.Selector) []T {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := make([]P, 0, len(items))
	for _, o := range items {
		if selector == nil || selector.Matches(labels.Set(o.GetLabels())) {
			found = append(found, o)
		}
	}

	slices.SortFunc(found, func(a, b P) int { return cmp.Compare(a.GetName(), b.GetName()) })
	out := make([]T, len(found))
	for i, o := range found {
		out[i] = *o // shares pointers, which nobody changes
	}

	return out
}

// failures returns what cannot be read now.
func (w *cache) failures() map[string]failure {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.failing)
}

// ready reports whether all kinds were listed, except Nodes that cannot be.
func (w *cache) ready() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, kind := range []string{kindNodes, kindConfigs, kindRollouts} {
		if _, failing := w.failing[kind]; !w.listed[kind] && !(failing && kind == kindNodes) {
			return false
		}
	}

	return true
}
