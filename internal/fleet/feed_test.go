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
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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
		d := p.Next(err)
		assert.That(t, d >= least && d <= most*6/5, "%s: after %s, want %s to %s", what, d, least, most)
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
func late(within time.Duration) client.WithWatch {
	return interceptor.NewClient(nil, interceptor.Funcs{
		Watch: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
			w := watch.NewFakeWithChanSize(1, false)
			if raw := options[0].(*client.ListOptions).Raw; raw.SendInitialEvents != nil {
				refused := apierrors.NewTimeoutError("Too large resource version: 12, current: 7", 1).ErrStatus
				refused.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
				w.Error(&refused)
			}

			return w, nil
		},
		List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			nodes := list.(*corev1.NodeList)
			if options[0].(*client.ListOptions).Continue == "" {
				nodes.Items, nodes.Continue = []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "first"}}}, "more"
				return nil
			}

			nodes.Items = []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "second"}}}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(within):
				return nil
			}
		},
	})
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
					API: late(c.within), List: &corev1.NodeList{},
					Set:    func(o client.Object) { set = append(set, o.GetName()) },
					Synced: func() { synced = true; cancel() },
					Lost:   func(err error) { lost = err; cancel() },
				}
				f.Run(ctx)
				all := slices.Equal(set, []string{"first", "second"})
				assert.That(t, synced == c.synced && errors.Is(lost, c.lost) && all == synced, "synced %t with %q, lost: %v", synced, set, lost)
			})
		})
	}
}

func TestAWatchThatHasEndedBeginsAgainWithAllObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		nodes, asked := []string{"stays", "goes"}, []metav1.ListOptions{}
		known := map[string]client.Object{}
		var said []string
		f := Feed{
			// It ends each watch soon, as an API server that restarts does.
			API: interceptor.NewClient(nil, interceptor.Funcs{
				Watch: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
					asked = append(asked, *options[0].(*client.ListOptions).Raw)
					w := watch.NewFakeWithChanSize(len(nodes)+1, false)
					for _, name := range nodes {
						w.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "7"}})
					}

					last := metav1.ObjectMeta{ResourceVersion: "8", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
					w.Action(watch.Bookmark, &corev1.Node{ObjectMeta: last})
					time.AfterFunc(2*time.Second, w.Stop)

					return w, nil
				},
			}),
			List:   &corev1.NodeList{},
			Set:    func(o client.Object) { known[o.GetName()] = o },
			Remove: func(o client.Object) { delete(known, o.GetName()) },
			Known:  func() []client.Object { return slices.Collect(maps.Values(known)) },
			Lost:   func(err error) { said = append(said, fmt.Sprint("lost ", err)) },
		}
		f.Synced = func() {
			said = append(said, fmt.Sprint("synced ", slices.Sorted(maps.Keys(known))))
			if nodes = []string{"stays"}; len(asked) == 2 {
				cancel()
			}
		}
		f.Run(ctx)
		want := []string{"synced [goes stays]", "lost <nil>", "synced [stays]"}
		assert.That(t, slices.Equal(said, want), "got %q, want %q", said, want)
		for _, o := range asked {
			assert.That(t, o.ResourceVersion == "" && *o.SendInitialEvents, "it asks for %+v", o)
		}
	})
}
