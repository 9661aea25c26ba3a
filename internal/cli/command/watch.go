// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/internal/fleet"
)

// Limited returns a context that ends after a time, unless that is 0.
func Limited(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	if after == 0 {
		return context.WithCancel(ctx)
	}

	return context.WithTimeout(ctx, after)
}

// Update is a newer version of a watched object, or an error. Nothing follows
// an update with Last.
type Update[T client.Object] struct {
	Object T
	Err    error
	Last   bool
}

// Watched is an object to watch.
type Watched[T client.Object] struct {
	List    client.ObjectList // of the kind, empty
	Name    string
	What    string // in errors, such as: rollout "workers"
	Deleted string // in the error when the object is deleted: what follows from that
}

// Follow sends the newest version of the object and each later one, until ctx
// ends or an error is final; then it closes the channel. After a transient
// error it sends the error and tries again.
func (w Watched[T]) Follow(ctx context.Context, c client.WithWatch) <-chan Update[T] {
	out := make(chan Update[T])
	ctx, stop := context.WithCancel(ctx)
	send := func(u Update[T]) {
		select {
		case out <- u:
		case <-ctx.Done():
		}

		if u.Last {
			stop()
		}
	}
	deleted := func() { send(Update[T]{Err: fmt.Errorf("%s was deleted: %s", w.What, w.Deleted), Last: true}) }
	exists := false // on the present connection
	feed := fleet.Feed{
		API: c, List: w.List, Options: client.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, w.Name)},
		Set: fleet.Typed(func(o T) {
			exists = true
			send(Update[T]{Object: o})
		}),
		Remove: func(client.Object) { deleted() },
		Synced: func() {
			if !exists {
				deleted()
			}
		},
		Lost: func(err error) {
			exists = false
			if err != nil {
				send(Update[T]{Err: fmt.Errorf("watch %s: %w", w.What, err), Last: !fleet.Passing(err)})
			}
		},
	}
	go func() {
		defer close(out)
		defer stop()
		feed.Run(ctx)
	}()

	return out
}
