// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/internal/listwatch"
)

const (
	// syncTimeout is how long the API server may be silent while it streams the
	// existing objects.
	syncTimeout = 15 * time.Second
	// listTimeout is that for a page of a list. An API server (since 1.34)
	// serves the pages after the first from its watch cache, and refuses them
	// until that has reached the version of the first. The client repeats such
	// a request for up to 45 s.
	listTimeout = time.Minute
	// The longest delays between two attempts: when the API server does not
	// answer, which costs it nothing, and when it refuses.
	longestUnanswered = time.Second
	longestRefused    = 5 * time.Second
)

// PageSize is the number of objects in a page.
const PageSize = 500

// Feed keeps one watch open.
//
// Every connection begins with all existing objects, as of that moment. A watch
// that resumes from a resource version may be accepted by an API server that
// has just started, and end a moment later because the version is too old: in
// between, old state looks current. So after a watch has ended the objects
// count as incomplete until the next connection is synced.
type Feed struct {
	API     client.WithWatch
	List    client.ObjectList // of the kind, empty
	Options client.ListOptions
	Retry   <-chan struct{} // the API server may answer again; nil: no such signal

	Set    func(client.Object)
	Remove func(client.Object)
	// Known returns the objects that are known, of which Run removes those that
	// no longer exist; nil: none to remove.
	Known func() []client.Object
	// Synced is called when all existing objects were set, and Lost when that
	// no longer holds; err is nil if the watch reached its time limit.
	Synced func()
	Lost   func(err error)
}

// Typed passes the objects of a feed to a function of their type.
func Typed[T client.Object](to func(T)) func(client.Object) {
	return func(o client.Object) {
		if o, ok := o.(T); ok {
			to(o)
		}
	}
}

// Run watches until ctx ends. It calls the functions of f one at a time, and
// never after it has returned.
func (f *Feed) Run(ctx context.Context) {
	delay := Backoff{}
	for ctx.Err() == nil {
		synced, err := f.connect(ctx)
		if ctx.Err() != nil {
			return
		}

		if !synced.IsZero() && time.Since(synced) > time.Second {
			f.Lost(nil)
			delay = Backoff{}
			continue
		}

		f.Lost(err)
		select {
		case <-time.After(delay.Next(err)):
		case <-f.Retry:
		case <-ctx.Done():
		}
	}
}

// connect watches over one connection. It returns when all existing objects
// were set; zero if they were not.
func (f *Feed) connect(ctx context.Context) (synced time.Time, err error) {
	exists := map[client.ObjectKey]bool{} // until all are known
	c := listwatch.Connection{
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := f.empty()
			return list, f.API.List(ctx, list, f.within(o))
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return f.API.Watch(ctx, f.empty(), f.within(o))
		},
		// Each new watch costs the API server a full list: the watches should
		// not end at the same time.
		StreamTimeout: syncTimeout, ListTimeout: listTimeout, Extend: true, PageSize: PageSize, Lifetime: wait.Jitter(time.Hour, 0.5),
		Set: func(o listwatch.Object) {
			if exists != nil {
				exists[client.ObjectKeyFromObject(o)] = true
			}

			f.Set(o)
		},
		Remove: func(o listwatch.Object) {
			delete(exists, client.ObjectKeyFromObject(o))
			f.Remove(o)
		},
		Synced: func(version string) {
			f.removeOthers(exists, version)
			exists = nil
			f.Synced()
		},
	}

	return c.Run(ctx)
}

// removeOthers removes known objects that did not exist at a resource version.
func (f *Feed) removeOthers(exists map[client.ObjectKey]bool, version string) {
	if f.Known == nil {
		return
	}

	for _, o := range f.Known() {
		if !exists[client.ObjectKeyFromObject(o)] && !Older(version, o.GetResourceVersion()) {
			f.Remove(o)
		}
	}
}

// Older reports whether resource version a is older than b. A version that
// cannot be compared counts as newer.
func Older(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && c < 0
}

func (f *Feed) empty() client.ObjectList { return f.List.DeepCopyObject().(client.ObjectList) }

func (f *Feed) within(raw metav1.ListOptions) *client.ListOptions {
	o := f.Options
	o.Raw, o.Limit, o.Continue = &raw, raw.Limit, raw.Continue
	return &o
}

// Backoff returns the delays between attempts: short at first, then longer, up
// to a few seconds.
type Backoff struct {
	delay    time.Duration
	answered bool // the API server answered the last attempt
}

// Next returns the delay after a failed attempt.
func (b *Backoff) Next(err error) time.Duration {
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

// Passing reports whether an error may go away by itself, such as that of an
// API server that restarts.
func Passing(err error) bool {
	var unreachable *url.Error
	var network *net.OpError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status):
		code := status.Status().Code
		return code >= 500 || code == 429 || apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
	case errors.Is(err, listwatch.ErrSilent), errors.Is(err, listwatch.ErrEnded):
		return true
	case errors.Is(err, context.Canceled):
		return false
	}

	text := err.Error()

	return errors.As(err, &unreachable) || errors.As(err, &network) || strings.Contains(text, "stream error: ") ||
		strings.Contains(text, "http2: ")
}
