// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/printable"
)

const (
	// shortestRound is the time between two rounds of WatchList: changes in between are shown together.
	shortestRound = time.Second
	// longestRound is how soon a state is shown that changes with time only, such as that of a silent agent.
	longestRound = 5 * time.Second
)

// WatchList watches all objects of some kinds, given as empty lists. It calls round once all are known, and again after changes, with
// a client that lists these kinds from memory; a kind that the user may not list is an error there. While the API server does
// not answer, it says so once and goes on. It returns nil when ctx ends, and otherwise the error of round or the first that does
// not pass. A round that fails because the API server does not answer is repeated.
func (e *Env) WatchList(ctx context.Context, c client.WithWatch, kinds []client.ObjectList, round func(client.WithWatch) error) error {
	interrupted := ctx
	ctx, stop := context.WithCancel(ctx)
	m := &memory{WithWatch: c, kinds: map[string]*remembered{}, changed: make(chan struct{}, 1)}
	for _, list := range kinds {
		m.kinds[kindOf(list)] = &remembered{objects: map[string]client.Object{}}
	}
	var feeds sync.WaitGroup
	defer feeds.Wait()
	defer stop()
	for _, list := range kinds {
		feed := m.feed(list)
		feeds.Go(func() { feed.Run(ctx) })
	}
	troubled, next := false, time.NewTimer(longestRound)
	defer next.Stop()
	for known := false; ; {
		select {
		case <-interrupted.Done():
			return nil
		case <-m.changed:
		case <-next.C:
		}
		complete, trouble := m.state()
		if known = known || complete; known && trouble == nil {
			trouble = round(m)
		}
		switch {
		case interrupted.Err() != nil:
			return nil
		case trouble != nil && !fleet.Passing(trouble):
			return trouble
		case trouble != nil && !troubled:
			fmt.Fprintln(e.ErrOut, "waiting for the API server:", printable.Line(describe.Brief(trouble)))
		}
		troubled = trouble != nil
		select {
		case <-interrupted.Done():
			return nil
		case <-time.After(shortestRound):
		}
		next.Reset(longestRound)
	}
}

// memory is a client that lists some kinds from memory.
type memory struct {
	client.WithWatch
	changed chan struct{} // has an element after a change

	mu    sync.Mutex
	kinds map[string]*remembered
}

// remembered are the objects of a kind.
type remembered struct {
	objects map[string]client.Object
	listed  bool  // completely, at least once
	err     error // why the kind cannot be read now
}

func kindOf(list client.ObjectList) string { return fmt.Sprintf("%T", list) }

// List implements client.Reader.
func (m *memory) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	kind := m.kinds[kindOf(list)]
	if kind == nil {
		return m.WithWatch.List(ctx, list, options...)
	}
	if !kind.listed && kind.err != nil {
		return kind.err
	}
	o := (&client.ListOptions{}).ApplyOptions(options)
	var items []runtime.Object
	for _, object := range kind.objects {
		if o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(object.GetLabels())) {
			items = append(items, object.DeepCopyObject())
		}
	}
	slices.SortFunc(items, func(a, b runtime.Object) int {
		return cmp.Compare(a.(client.Object).GetName(), b.(client.Object).GetName())
	})
	return meta.SetList(list, items)
}

// state reports whether all kinds were listed, or may not be, and why a kind cannot be read now.
func (m *memory) state() (complete bool, trouble error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	complete = true
	for _, kind := range m.kinds {
		forbidden := apierrors.IsForbidden(kind.err)
		complete = complete && (kind.listed || forbidden)
		if kind.err != nil && (!forbidden || kind.listed) {
			trouble = kind.err
		}
	}
	return complete, trouble
}

// feed returns a watch that keeps a kind current.
func (m *memory) feed(list client.ObjectList) *fleet.Feed {
	kind := m.kinds[kindOf(list)]
	change := func(do func()) {
		m.mu.Lock()
		do()
		m.mu.Unlock()
		select {
		case m.changed <- struct{}{}:
		default:
		}
	}
	return &fleet.Feed{
		API: m.WithWatch, List: list,
		Set:    func(o client.Object) { change(func() { kind.objects[o.GetName()] = o }) },
		Remove: func(o client.Object) { change(func() { delete(kind.objects, o.GetName()) }) },
		Known: func() (known []client.Object) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, o := range kind.objects {
				known = append(known, o)
			}
			return known
		},
		Synced: func() { change(func() { kind.listed, kind.err = true, nil }) },
		Lost: func(err error) {
			if err != nil {
				change(func() { kind.err = err })
			}
		},
	}
}
