// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// watcher keeps a watch open, and passes on what the API server sends.
//
// Each connection begins with the current list. Few objects match the selector, so this costs less than resource
// versions, needs no handling of expired ones (410), and never shows an older state than before.
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

// run watches until ctx ends. It calls replace, apply and fail one at a time, and not after it has returned. A watch
// that ended and can be opened again is not a failure.
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

// once watches over one connection. synced reports whether the list was complete.
func (w *watcher) once(ctx context.Context) (synced bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	deadline := time.AfterFunc(w.client.timeout, func() { cancel(errNoAnswer) })
	defer deadline.Stop()
	onSynced := func(objects []runtime.Object) {
		deadline.Stop()
		synced = true
		w.client.noteReachable(nil)
		w.replace(objects)
	}
	client, err := w.client.rest(w.gv)
	if err != nil {
		return false, err
	}
	err = w.stream(ctx, client, onSynced)
	// The API server cannot begin a watch with the list, or its watch cache is seconds behind etcd.
	if !synced && (apierrors.IsInvalid(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)) {
		deadline.Reset(w.client.timeout)
		err = w.listAndWatch(ctx, client, onSynced)
	}
	if !synced && context.Cause(ctx) == errNoAnswer {
		err = errNoAnswer
	}
	return synced, err
}

func (w *watcher) stream(ctx context.Context, client *rest.RESTClient, onSynced func([]runtime.Object)) error {
	begin := true
	options := metav1.ListOptions{
		SendInitialEvents:    &begin,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}
	// Changes may arrive before the bookmark too, such as those that the cache of the API server did not have yet.
	objects := map[types.NamespacedName]runtime.Object{}
	synced := false
	return w.watch(ctx, client, options, func(e watch.Event) {
		switch {
		case synced:
			if e.Type != watch.Bookmark {
				w.apply(e.Type, e.Object)
			}
		case e.Type == watch.Deleted:
			delete(objects, nameOf(e.Object))
		case e.Type != watch.Bookmark:
			objects[nameOf(e.Object)] = e.Object
		default:
			if o, ok := e.Object.(metav1.Object); ok && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
				synced = true
				onSynced(slices.Collect(maps.Values(objects)))
				objects = nil
			}
		}
	})
}

// nameOf is empty for what is not an object.
func nameOf(object runtime.Object) types.NamespacedName {
	o, err := meta.Accessor(object)
	if err != nil {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func (w *watcher) listAndWatch(ctx context.Context, client *rest.RESTClient, onSynced func([]runtime.Object)) error {
	list, err := w.get(client, metav1.ListOptions{}).Do(ctx).Get()
	if err != nil {
		return err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return fmt.Errorf("decode the list: %w", err)
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return fmt.Errorf("decode the list: %w", err)
	}
	onSynced(objects)
	options := metav1.ListOptions{ResourceVersion: accessor.GetResourceVersion()}
	return w.watch(ctx, client, options, func(e watch.Event) {
		if e.Type != watch.Bookmark {
			w.apply(e.Type, e.Object)
		}
	})
}

func (w *watcher) watch(ctx context.Context, client *rest.RESTClient, options metav1.ListOptions, handle func(watch.Event)) error {
	// The watches of a fleet must not all end at once; the default of the API server is 30 minutes or more.
	timeout := int64(wait.Jitter(5*time.Minute, 1).Seconds())
	options.Watch, options.TimeoutSeconds, options.AllowWatchBookmarks = true, &timeout, true
	stream, err := w.get(client, options).Watch(ctx)
	if err != nil {
		return err
	}
	defer stream.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, open := <-stream.ResultChan():
			if !open {
				return errClosed
			}
			if e.Type == watch.Error {
				return apierrors.FromObject(e.Object)
			}
			handle(e)
		}
	}
}

func (w *watcher) get(client *rest.RESTClient, options metav1.ListOptions) *rest.Request {
	options.FieldSelector = w.fields
	return client.Get().NamespaceIfScoped(w.namespace, w.namespace != "").Resource(w.resource).
		VersionedParams(&options, metav1.ParameterCodec).MaxRetries(0)
}

// watchObject makes w watch the one object of that name: it calls see with the object, and with nil if there is none.
// Objects of another type are failures.
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
