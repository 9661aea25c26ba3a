package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// syncTimeout is how long the API server may be silent while it sends the existing objects.
	syncTimeout = 15 * time.Second
	// pageSize is how many objects one request lists, for an API server without streaming lists.
	pageSize = 500
	// The longest delays between two attempts: when the API server does not answer, which costs it nothing, and when it
	// refuses.
	longestUnanswered = time.Second
	longestRefused    = 5 * time.Second
)

// feed keeps one watch open.
//
// Every connection begins with all existing objects, as of that moment. A watch that resumes from a resource version may be
// accepted by an API server that has just started, and end a moment later because the version is too old: in between, old
// state looks current. So after a watch has ended the objects count as incomplete until the next connection is synced.
type feed struct {
	api     client.WithWatch
	list    client.ObjectList // of the kind, empty
	options client.ListOptions
	retry   <-chan struct{} // the API server may answer again; nil: no such signal

	set    func(client.Object)
	remove func(client.Object)
	// known returns the objects that are known, of which run removes those that no longer exist; nil: none to remove.
	known func() []client.Object
	// synced is called when all existing objects were set, and lost when that no longer holds; err is nil if the watch
	// reached its time limit.
	synced func()
	lost   func(err error)
}

// run watches until ctx ends. It calls the functions of f one at a time, and never after it has returned.
func (f *feed) run(ctx context.Context) {
	delay := backoff{}
	for {
		began := time.Now()
		synced, err := f.connect(ctx)
		if ctx.Err() != nil {
			return
		}
		if synced && time.Since(began) > time.Second {
			f.lost(nil)
			delay = backoff{}
			continue
		}
		f.lost(err)
		timer := time.NewTimer(delay.next(err))
		select {
		case <-timer.C:
		case <-f.retry:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// connect watches over one connection. It reports whether all existing objects were set.
func (f *feed) connect(ctx context.Context) (synced bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	deadline := time.AfterFunc(syncTimeout, func() { cancel(errSilent) })
	defer deadline.Stop()
	exists := map[client.ObjectKey]bool{}
	add := func(o client.Object) {
		deadline.Reset(syncTimeout)
		exists[client.ObjectKeyFromObject(o)] = true
		f.set(o)
	}
	finish := func(version string) {
		deadline.Stop()
		f.removeOthers(exists, version)
		exists, synced = nil, true
		f.synced()
	}
	begin := true
	err = f.watch(ctx, metav1.ListOptions{SendInitialEvents: &begin, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}, func(e watch.EventType, o client.Object) {
		switch {
		case synced:
			f.apply(e, o)
		case e == watch.Bookmark:
			deadline.Reset(syncTimeout)
			if o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
				finish(o.GetResourceVersion())
			}
		case e == watch.Deleted:
			deadline.Reset(syncTimeout)
			delete(exists, client.ObjectKeyFromObject(o))
			f.remove(o)
		default:
			add(o)
		}
	})
	if !synced && apierrors.IsInvalid(err) { // an API server without streaming lists
		var version string
		if version, err = f.listAll(ctx, add); err == nil {
			finish(version)
			err = f.watch(ctx, metav1.ListOptions{ResourceVersion: version}, f.apply)
		}
	}
	if !synced && context.Cause(ctx) == errSilent {
		err = errSilent
	}
	return synced, err
}

// removeOthers removes known objects that did not exist at a resource version.
func (f *feed) removeOthers(exists map[client.ObjectKey]bool, version string) {
	if f.known == nil {
		return
	}
	for _, o := range f.known() {
		if !exists[client.ObjectKeyFromObject(o)] && !older(version, o.GetResourceVersion()) {
			f.remove(o)
		}
	}
}

// listAll lists the stored objects, never those of a watch cache, and returns the resource version of the list.
func (f *feed) listAll(ctx context.Context, add func(client.Object)) (version string, err error) {
	for options := (metav1.ListOptions{Limit: pageSize}); ; {
		list := f.list.DeepCopyObject().(client.ObjectList)
		if err := f.api.List(ctx, list, f.within(options)); err != nil {
			return "", err
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			add(item.(client.Object))
			return nil
		})
		if options.Continue = list.GetContinue(); err != nil || options.Continue == "" {
			return list.GetResourceVersion(), err
		}
	}
}

func (f *feed) apply(e watch.EventType, o client.Object) {
	switch e {
	case watch.Bookmark:
	case watch.Deleted:
		f.remove(o)
	default:
		f.set(o)
	}
}

func (f *feed) watch(ctx context.Context, options metav1.ListOptions, handle func(watch.EventType, client.Object)) error {
	// Each new watch costs the API server a full list: the watches should not end at the same time.
	timeout := int64(wait.Jitter(time.Hour, 0.5).Seconds())
	options.TimeoutSeconds, options.AllowWatchBookmarks = &timeout, true
	w, err := f.api.Watch(ctx, f.list.DeepCopyObject().(client.ObjectList), f.within(options))
	if err != nil {
		return err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, open := <-w.ResultChan():
			if !open {
				return errEnded
			}
			if e.Type == watch.Error {
				return apierrors.FromObject(e.Object)
			}
			o, ok := e.Object.(client.Object)
			if !ok {
				return fmt.Errorf("the watch sent a %T", e.Object)
			}
			handle(e.Type, o)
		}
	}
}

func (f *feed) within(raw metav1.ListOptions) *client.ListOptions {
	o := f.options
	o.Raw, o.Limit, o.Continue = &raw, raw.Limit, raw.Continue
	return &o
}

var (
	errSilent = fmt.Errorf("the API server sent nothing for %s", syncTimeout)
	errEnded  = errors.New("the watch ended before all objects were received")
)

// backoff returns the delays between attempts: short at first, then longer, up to a few seconds.
type backoff struct {
	delay    time.Duration
	answered bool // the API server answered the last attempt
}

func (b *backoff) next(err error) time.Duration {
	longest := longestUnanswered
	answered := false
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		longest, answered = longestRefused, true
	}
	if b.delay == 0 || answered && !b.answered { // an API server that has just started refuses at first
		b.delay = 200 * time.Millisecond
	}
	b.answered = answered
	b.delay = min(b.delay*5/4, longest) // reaches the longest after 20 seconds: enough for an API server to start
	d := b.delay
	if after, ok := apierrors.SuggestsClientDelay(err); ok {
		d = max(d, min(time.Duration(after)*time.Second, longestRefused))
	}
	return wait.Jitter(d, 0.2)
}
