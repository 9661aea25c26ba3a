// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package listwatch watches objects over one connection, which begins with all
// existing objects. It has no client, does not connect again, and must not know
// what the objects mean.
package listwatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Errors of connections.
var (
	ErrSilent = errors.New("the API server sent nothing in time")
	ErrEnded  = errors.New("the API server ended the watch")
)

// Object is an object of the API.
type Object interface {
	runtime.Object
	metav1.Object
}

// Connection is one connection of a watch. It calls Set, Remove and Synced one
// at a time.
type Connection struct {
	List  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	Watch func(context.Context, metav1.ListOptions) (watch.Interface, error)

	// StreamTimeout and ListTimeout limit how long the API server may take to
	// send all existing objects, as events and in lists.
	StreamTimeout, ListTimeout time.Duration
	Extend                     bool          // the timeouts begin again with each event and each page
	PageSize                   int64         // objects of a list; 0: all
	Lifetime                   time.Duration // of the watch; those of many clients must not end at the same time

	Set, Remove func(Object)
	Synced      func(version string) // all existing objects, as of a resource version, were set
}

// Run watches until the connection ends, and returns when all existing objects
// were set; zero if they were not.
func (c *Connection) Run(ctx context.Context) (synced time.Time, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	deadline := time.AfterFunc(c.StreamTimeout, func() { cancel(ErrSilent) })
	defer deadline.Stop()
	finish := func(version string) {
		deadline.Stop()
		synced = time.Now()
		c.Synced(version)
	}
	begin := true
	err = c.watch(ctx, metav1.ListOptions{SendInitialEvents: &begin, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
		func(e watch.EventType, o Object) {
			if synced.IsZero() && c.Extend {
				deadline.Reset(c.StreamTimeout)
			}

			// Changes may arrive before the bookmark too, such as those that
			// the cache of the API server did not have yet.
			c.apply(e, o)
			if synced.IsZero() && e == watch.Bookmark && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
				finish(o.GetResourceVersion())
			}
		})
	// The API server does not stream lists, or its watch cache is seconds
	// behind etcd: list the objects instead.
	if synced.IsZero() && (apierrors.IsInvalid(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)) {
		deadline.Reset(c.ListTimeout)
		var version string
		if version, err = c.list(ctx, deadline); err == nil {
			finish(version)
			err = c.watch(ctx, metav1.ListOptions{ResourceVersion: version}, c.apply)
		}
	}

	if synced.IsZero() && context.Cause(ctx) == ErrSilent {
		err = ErrSilent
	}

	return synced, err
}

// list sets all objects, as of one resource version that is not older than the
// request, and returns that version.
func (c *Connection) list(ctx context.Context, deadline *time.Timer) (version string, err error) {
	for options := (metav1.ListOptions{Limit: c.PageSize}); ; {
		list, err := c.List(ctx, options)
		if err != nil {
			return "", err
		}

		page, err := meta.ListAccessor(list)
		if err != nil {
			return "", fmt.Errorf("decode the list: %w", err)
		}

		err = meta.EachListItem(list, func(item runtime.Object) error {
			if c.Extend {
				deadline.Reset(c.ListTimeout)
			}

			return handle(watch.Added, item, c.apply)
		})
		if options.Continue = page.GetContinue(); err != nil || options.Continue == "" {
			return page.GetResourceVersion(), err
		}
	}
}

func (c *Connection) watch(ctx context.Context, options metav1.ListOptions, to func(watch.EventType, Object)) error {
	timeout := int64(c.Lifetime.Seconds())
	options.Watch, options.TimeoutSeconds, options.AllowWatchBookmarks = true, &timeout, true
	stream, err := c.Watch(ctx, options)
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
				return ErrEnded
			}
			if e.Type == watch.Error {
				return apierrors.FromObject(e.Object)
			}
			if err := handle(e.Type, e.Object, to); err != nil {
				return err
			}
		}
	}
}

// handle passes what the API server sent to a function, unless it is no object.
func handle(e watch.EventType, object runtime.Object, to func(watch.EventType, Object)) error {
	o, ok := object.(Object)
	if !ok {
		return fmt.Errorf("the API server sent a %T", object)
	}

	to(e, o)

	return nil
}

func (c *Connection) apply(e watch.EventType, o Object) {
	switch e {
	case watch.Bookmark:
	case watch.Deleted:
		c.Remove(o)
	default:
		c.Set(o)
	}
}
