// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/evenkeel/evenkeel/internal/listwatch"
)

// watcher keeps a watch open, and passes on what the API server sends.
//
// Each connection begins with the current list. Few objects match the selector,
// so this costs less than resource versions, needs no handling of expired ones
// (410), and never shows an older state than before.
type watcher struct {
	client    *Client
	gv        schema.GroupVersion
	namespace string
	resource  string
	fields    string        // the field selector; a node may only watch what belongs to it
	maxDelay  time.Duration // between failed attempts

	replace func(objects []runtime.Object) // the complete list: the watch is open
	apply   func(change watch.EventType, object runtime.Object)
	fail    func(error) // an attempt failed; no changes arrive until the next replace
}

// run watches until ctx ends. It calls replace, apply and fail one at a time,
// and not after it has returned. A watch that ended and can be opened again is
// not a failure.
func (w *watcher) run(ctx context.Context) {
	retry := newRetry(w.client, w.maxDelay)
	for {
		began := time.Now()
		synced, err := w.once(ctx)
		if ctx.Err() != nil {
			return
		}

		if synced && time.Since(began) > time.Second {
			retry.reset()
			continue
		}

		if !synced {
			w.client.noteReachable(err)
			w.fail(err)
		}

		if !retry.wait(ctx, err, nil) {
			return
		}
	}
}

// once watches over one connection. synced reports whether the list was
// complete.
func (w *watcher) once(ctx context.Context) (synced bool, err error) {
	client, err := w.client.rest(w.gv)
	if err != nil {
		return false, err
	}

	get := func(options metav1.ListOptions) *rest.Request {
		options.FieldSelector = w.fields
		return client.Get().NamespaceIfScoped(w.namespace, w.namespace != "").Resource(w.resource).
			VersionedParams(&options, metav1.ParameterCodec).MaxRetries(0)
	}
	objects := map[types.NamespacedName]runtime.Object{} // nil: all are known
	nameOf := func(o metav1.Object) types.NamespacedName {
		return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
	}
	c := listwatch.Connection{
		List:          func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return get(o).Do(ctx).Get() },
		Watch:         func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return get(o).Watch(ctx) },
		StreamTimeout: w.client.timeout, ListTimeout: w.client.timeout,
		// The watches of a fleet must not all end at once; the default of the
		// API server is 30 minutes or more.
		Lifetime: wait.Jitter(5*time.Minute, 1),
		Set: func(o listwatch.Object) {
			if objects == nil {
				w.apply(watch.Modified, o)
			} else {
				objects[nameOf(o)] = o
			}
		},
		Remove: func(o listwatch.Object) {
			if objects == nil {
				w.apply(watch.Deleted, o)
			} else {
				delete(objects, nameOf(o))
			}
		},
		Synced: func(string) {
			w.client.noteReachable(nil)
			w.replace(slices.Collect(maps.Values(objects)))
			objects = nil
		},
	}
	at, err := c.Run(ctx)

	return !at.IsZero(), err
}

// watchObject makes w watch the one object of that name: it calls see with the
// object, and with nil if there is none. Objects of another type are failures.
func watchObject[T any, P interface {
	*T
	runtime.Object
}](w watcher, name string, see func(P)) *watcher {
	w.fields = fields.OneTermEqualSelector("metadata.name", name).String()
	handle := func(change watch.EventType, object runtime.Object) {
		p, ok := object.(P)
		switch {
		case !ok:
			w.fail(fmt.Errorf("decode the answer: unexpected object of type %T", object))
		case change == watch.Deleted:
			see(nil)
		default:
			see(p)
		}
	}
	w.apply = handle
	w.replace = func(objects []runtime.Object) {
		if len(objects) == 0 {
			see(nil)
			return
		}

		handle(watch.Added, objects[0])
	}

	return &w
}
