package command

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/query"
)

// Update is a newer version of a watched object, or an error. Nothing follows an update with Last.
type Update[T client.Object] struct {
	Object T
	Err    error
	Last   bool
}

// Watched is an object to watch.
type Watched[T client.Object] struct {
	What    string // in errors, such as: rollout "workers"
	Deleted string // in the error when the object is deleted: what follows from that
	Watch   query.Watch[T]
}

// Follow sends the newest version of the object and each later one, until ctx ends or an error is final; then it closes the
// channel. After a transient error it sends the error and tries again.
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
	w.Watch.Update = func(o T) {
		if r, ok := any(o).(*v1alpha1.NodeConfigRollout); ok {
			query.FromServer(r)
		}
		send(Update[T]{Object: o})
	}
	w.Watch.Replace = func(objects []T) {
		if len(objects) == 0 {
			deleted()
			return
		}
		w.Watch.Update(objects[0])
	}
	w.Watch.Delete = func(T) { deleted() }
	w.Watch.Answered = func(err error) {
		if err != nil {
			send(Update[T]{Err: fmt.Errorf("watch %s: %w", w.What, err), Last: !query.Passing(err)})
		}
	}
	go func() {
		defer close(out)
		defer stop()
		w.Watch.Run(ctx, c)
	}()
	return out
}
