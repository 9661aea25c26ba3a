package command

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/report"
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
	Name    string
	List    client.ObjectList // an empty list of the object's kind
	Read    func(context.Context) (T, error)
	Deleted string // in the error when the object is deleted: what follows from that
}

// Follow watches an object from a resource version on until ctx ends, and then closes the channel. After a transient error
// it sends the error and tries again.
func (w Watched[T]) Follow(ctx context.Context, c client.WithWatch, version string) <-chan Update[T] {
	out := make(chan Update[T])
	go func() {
		defer close(out)
		send := func(u Update[T]) bool {
			select {
			case out <- u:
				return !u.Last
			case <-ctx.Done():
				return false
			}
		}
		wait := time.Duration(0)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			err := w.once(ctx, c, &version, send)
			if err == nil && version == "" { // read what changed between two watches
				var o T
				if o, err = w.Read(ctx); err == nil {
					version = o.GetResourceVersion()
					if !send(Update[T]{Object: o}) {
						return
					}
				}
			}
			switch {
			case ctx.Err() != nil:
				return
			case err == nil:
				wait = 0
			case report.Passing(err):
				version = ""
				wait = min(max(2*wait, 500*time.Millisecond), 5*time.Second)
				if !send(Update[T]{Err: err}) {
					return
				}
			default:
				send(Update[T]{Err: err, Last: true})
				return
			}
		}
	}()
	return out
}

// once sends the updates of one watch until the watch ends. Without a version it does nothing: the caller must read the object
// first. It clears version when the watch has started.
func (w Watched[T]) once(ctx context.Context, c client.WithWatch, version *string, send func(Update[T]) bool) error {
	if *version == "" {
		return nil
	}
	events, err := c.Watch(ctx, w.List, &client.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", w.Name),
		Raw:           &metav1.ListOptions{ResourceVersion: *version},
	})
	if err != nil {
		return fmt.Errorf("watch %s: %w", w.What, err)
	}
	defer events.Stop()
	*version = ""
	for event := range events.ResultChan() {
		switch event.Type {
		case apiwatch.Added, apiwatch.Modified:
			o, ok := event.Object.(T)
			if !ok {
				return fmt.Errorf("watch %s: the server sent a %T", w.What, event.Object)
			}
			if r, ok := event.Object.(*v1alpha1.NodeConfigRollout); ok {
				report.FromServer(r)
			}
			if !send(Update[T]{Object: o}) {
				return nil
			}
		case apiwatch.Deleted:
			return fmt.Errorf("%s was deleted: %s", w.What, w.Deleted)
		case apiwatch.Error:
			err := apierrors.FromObject(event.Object)
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				return nil
			}
			return fmt.Errorf("watch %s: %w", w.What, err)
		}
	}
	return nil
}
