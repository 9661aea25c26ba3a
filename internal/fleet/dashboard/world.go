package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/fleet/query"
)

// world is what the watches have told of a cluster: of each object what is shown of all of them at once, and no more. It
// is a reader for what internal/fleet asks: lists of what is watched come from memory, and what is asked for by its name
// from the API, whole.
type world struct {
	api client.WithWatch

	mu       sync.Mutex
	nodes    map[string]*corev1.Node
	configs  map[string]*v1alpha1.NodeConfig
	rollouts map[string]*v1alpha1.NodeConfigRollout
	// listed tells which kinds have been seen whole at least once.
	listed map[string]bool
	// failing is which kinds cannot be seen now.
	failing map[string]failure
	memory  map[string]remembered
	changed chan struct{}
}

// failure is why a kind cannot be seen, and since when.
type failure struct {
	since time.Time
	err   error
}

// The kinds that are watched.
const (
	kindNodes    = "Nodes"
	kindConfigs  = "NodeConfigs"
	kindRollouts = "rollouts"
)

func newWorld(api client.WithWatch) *world {
	return &world{
		api: api, nodes: map[string]*corev1.Node{}, configs: map[string]*v1alpha1.NodeConfig{}, rollouts: map[string]*v1alpha1.NodeConfigRollout{},
		listed: map[string]bool{}, failing: map[string]failure{}, memory: map[string]remembered{}, changed: make(chan struct{}, 1),
	}
}

// watch keeps the world up to date until ctx ends.
func (w *world) watch(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { w.watchNodes().Run(ctx, w.api) })
	all.Go(func() { w.watchConfigs().Run(ctx, w.api) })
	all.Go(func() { w.watchRollouts().Run(ctx, w.api) })
	all.Go(func() { w.feel(ctx) })
	all.Wait()
}

func (w *world) watchNodes() query.Watch[*corev1.Node] {
	return watchKind(w, kindNodes, w.nodes, func() client.ObjectList { return &corev1.NodeList{} }, policy.StripNode)
}

func (w *world) watchConfigs() query.Watch[*v1alpha1.NodeConfig] {
	return watchKind(w, kindConfigs, w.configs, func() client.ObjectList { return &v1alpha1.NodeConfigList{} }, policy.StripNodeConfig)
}

func (w *world) watchRollouts() query.Watch[*v1alpha1.NodeConfigRollout] {
	return watchKind(w, kindRollouts, w.rollouts, func() client.ObjectList { return &v1alpha1.NodeConfigRolloutList{} }, policy.StripRollout)
}

// watchKind returns a watch that keeps the items of one kind up to date. strip removes the fields that the page does not show.
func watchKind[T any, P interface {
	*T
	client.Object
}](w *world, kind string, items map[string]P, newList func() client.ObjectList, strip func(P)) query.Watch[P] {
	change := func(do func()) {
		w.mu.Lock()
		do()
		w.mu.Unlock()
		w.wake()
	}
	return query.Watch[P]{
		Object: new(T), NewList: newList,
		Replace: func(objects []P) {
			change(func() {
				clear(items)
				for _, o := range objects {
					strip(o)
					items[o.GetName()] = o
				}
				w.listed[kind] = true
			})
		},
		Update:   func(o P) { strip(o); change(func() { items[o.GetName()] = o }) },
		Delete:   func(o P) { change(func() { delete(items, o.GetName()) }) },
		Answered: func(err error) { w.note(kind, err) },
	}
}

// feelEvery is how often the API server is asked whether it is there: a watch does not notice one that only hangs.
const feelEvery = 3 * time.Second

// kindAPI stands for the API server itself.
const kindAPI = "the API server"

// feel notes whether the API server answers.
func (w *world) feel(ctx context.Context) {
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, 2*feelEvery)
		err := w.api.List(asking, &v1alpha1.NodeConfigRolloutList{}, client.Limit(1))
		cancel()
		if ctx.Err() == nil {
			if err != nil && !away(err) {
				err = nil // an answer, if no good one: who lists the kind tells
			}
			w.note(kindAPI, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(feelEvery):
		}
	}
}

// note notes that a kind can be seen, or why not.
func (w *world) note(kind string, err error) {
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

func (w *world) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Get asks the API: what is looked at by its name is shown whole, and as it is now.
func (w *world) Get(ctx context.Context, key client.ObjectKey, object client.Object, o ...client.GetOption) error {
	return w.api.Get(ctx, key, object, o...)
}

// List answers from memory what is watched, in the order of the names and in one page.
func (w *world) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(options)
	switch l := list.(type) {
	case *corev1.NodeList:
		l.Items = listOf(w, w.nodes, o.LabelSelector)
	case *v1alpha1.NodeConfigList:
		l.Items = listOf(w, w.configs, o.LabelSelector)
	case *v1alpha1.NodeConfigRolloutList:
		l.Items = listOf(w, w.rollouts, o.LabelSelector)
	default:
		return w.api.List(ctx, list, options...)
	}
	return w.blind(list)
}

// blind is the error for a kind that was never seen whole.
func (w *world) blind(list client.ObjectList) error {
	kind := kindRollouts
	switch list.(type) {
	case *corev1.NodeList:
		kind = kindNodes
	case *v1alpha1.NodeConfigList:
		kind = kindConfigs
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listed[kind] {
		return nil
	}
	if f, ok := w.failing[kind]; ok {
		return f.err
	}
	return fmt.Errorf("the %s have not been seen yet", kind)
}

func listOf[T any, P interface {
	*T
	client.Object
}](w *world, items map[string]P, selector labels.Selector) []T {
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
		out[i] = *o // what it points to is shared, and never changed
	}
	return out
}

// troubles is what cannot be seen now.
func (w *world) troubles() map[string]failure {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.failing)
}

// ready tells whether everything that can be seen has been. Without Nodes there is something to see.
func (w *world) ready() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, kind := range []string{kindNodes, kindConfigs, kindRollouts} {
		if _, failing := w.failing[kind]; !w.listed[kind] && !(failing && kind == kindNodes) {
			return false
		}
	}
	return true
}
