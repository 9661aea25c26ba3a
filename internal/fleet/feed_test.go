// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/listwatch"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestBackoffGrowsToALimit(t *testing.T) {
	refused := errors.New("connection refused")
	forbidden := apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("x").GroupResource(), "", errors.New("no"))
	p := Backoff{}
	within := func(what string, err error, least, most time.Duration) {
		t.Helper()
		if d := p.Next(err); d < least || d > most*6/5 {
			t.Errorf("%s: after %s, want %s to %s", what, d, least, most)
		}
	}
	within("the first time", refused, 250*time.Millisecond, 250*time.Millisecond)
	for range 20 {
		p.Next(refused)
	}

	within("nobody answers", refused, longestUnanswered, longestUnanswered)
	within("it has just started", forbidden, 250*time.Millisecond, 250*time.Millisecond)
	for range 20 {
		p.Next(forbidden)
	}

	within("it goes on refusing", forbidden, longestRefused, longestRefused)
	p = Backoff{}
	within("it says when", apierrors.NewTooManyRequests("busy", 3), 3*time.Second, 3*time.Second)
	within("it says in an hour", apierrors.NewTooManyRequests("busy", 3600), longestRefused, longestRefused)
}

// late is an API server whose watch cache is behind etcd: it streams no list,
// and answers the second page after a while.
type late struct {
	client.WithWatch
	within time.Duration
}

func (l late) Watch(_ context.Context, _ client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
	w := watch.NewFakeWithChanSize(1, false)
	if raw := options[0].(*client.ListOptions).Raw; raw.SendInitialEvents != nil {
		refused := apierrors.NewTimeoutError("Too large resource version: 12, current: 7", 1).ErrStatus
		refused.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
		w.Error(&refused)
	}

	return w, nil
}

func (l late) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	nodes := list.(*corev1.NodeList)
	if options[0].(*client.ListOptions).Continue == "" {
		nodes.Items, nodes.Continue = []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "first"}}}, "more"
		return nil
	}

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(l.within):
	}

	nodes.Items = []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "second"}}}

	return nil
}

func TestAListWaitsForAWatchCacheThatIsLate(t *testing.T) {
	for name, c := range map[string]struct {
		within time.Duration
		synced bool
		lost   error
	}{
		"it answers":           {listTimeout - time.Second, true, nil},
		"it answers no longer": {listTimeout + time.Second, false, listwatch.ErrSilent},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var set []string
				var lost error
				synced := false
				f := Feed{
					API: late{within: c.within}, List: &corev1.NodeList{},
					Set:    func(o client.Object) { set = append(set, o.GetName()) },
					Synced: func() { synced = true; cancel() },
					Lost:   func(err error) { lost = err; cancel() },
				}
				f.Run(ctx)
				if synced != c.synced || !errors.Is(lost, c.lost) || synced && !slices.Equal(set, []string{"first", "second"}) {
					t.Errorf("synced %t with %q, lost: %v", synced, set, lost)
				}
			})
		})
	}
}

// restarting is an API server that ends each watch soon, as one that restarts
// does.
type restarting struct {
	client.WithWatch
	nodes []string // that there are
	asked []metav1.ListOptions
}

func (r *restarting) Watch(_ context.Context, _ client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
	r.asked = append(r.asked, *options[0].(*client.ListOptions).Raw)
	w := watch.NewFakeWithChanSize(len(r.nodes)+1, false)
	for _, name := range r.nodes {
		w.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "7"}})
	}

	last := metav1.ObjectMeta{ResourceVersion: "8", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
	w.Action(watch.Bookmark, &corev1.Node{ObjectMeta: last})
	time.AfterFunc(2*time.Second, w.Stop)

	return w, nil
}

func TestAWatchThatHasEndedBeginsAgainWithAllObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		api := &restarting{nodes: []string{"stays", "goes"}}
		known := map[string]client.Object{}
		var said []string
		f := Feed{
			API: api, List: &corev1.NodeList{},
			Set:    func(o client.Object) { known[o.GetName()] = o },
			Remove: func(o client.Object) { delete(known, o.GetName()) },
			Known:  func() []client.Object { return slices.Collect(maps.Values(known)) },
			Lost:   func(err error) { said = append(said, fmt.Sprint("lost ", err)) },
		}
		f.Synced = func() {
			said = append(said, fmt.Sprint("synced ", slices.Sorted(maps.Keys(known))))
			if api.nodes = []string{"stays"}; len(api.asked) == 2 {
				cancel()
			}
		}
		f.Run(ctx)
		want := []string{"synced [goes stays]", "lost <nil>", "synced [stays]"}
		assert.That(t, slices.Equal(said, want), "got %q, want %q", said, want)
		for _, o := range api.asked {
			assert.That(t, o.ResourceVersion == "" && *o.SendInitialEvents, "it asks for %+v", o)
		}
	})
}
