package query

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Watch follows the objects of one kind, or one of them. The functions are called from one goroutine.
type Watch[T client.Object] struct {
	Object  T                        // an empty object
	NewList func() client.ObjectList // returns an empty list
	Name    string                   // of the only object to watch; empty: all of the kind

	Replace func([]T) // all objects, after each list
	Update  func(T)   // one object, after it was created or changed
	Delete  func(T)
	// Answered gets the error of each list and watch request that fails, and nil for one that succeeds.
	Answered func(error)
}

// Run lists and watches until ctx ends. After an error it tries again within seconds: a person is waiting.
func (w Watch[T]) Run(ctx context.Context, c client.WithWatch) {
	// Answered gets the errors that client-go would log.
	ctx = klog.NewContext(ctx, klog.Logger{})
	answered := func(err error) {
		if ctx.Err() == nil {
			w.Answered(err)
		}
	}
	options := func(raw *metav1.ListOptions) *client.ListOptions {
		o := &client.ListOptions{Raw: raw}
		if w.Name != "" {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", w.Name)
		}
		return o
	}
	lw := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.ResourceVersion == "0" {
				o.ResourceVersion = "" // a list from a stale cache can be older than what the caller wrote
			}
			list := w.NewList()
			err := c.List(ctx, list, options(&o))
			if err != nil {
				answered(err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			events, err := c.Watch(ctx, w.NewList(), options(&o))
			if err == nil || o.SendInitialEvents == nil { // otherwise a list follows, and fails for the same reason
				answered(err)
			}
			return events, err
		},
	}
	toolscache.NewReflectorWithOptions(toolscache.ToListWatcherWithWatchListSemantics(lw, c), w.Object, store[T]{w}, toolscache.ReflectorOptions{
		Backoff: &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Steps: 6, Jitter: 0.2, Cap: 3 * time.Second},
	}).RunWithContext(ctx)
}

// store hands a reflector's objects, which are all of type T, to a watch.
type store[T client.Object] struct{ watch Watch[T] }

func (s store[T]) Add(object any) error    { return s.Update(object) }
func (s store[T]) Update(object any) error { s.watch.Update(object.(T)); return nil }
func (s store[T]) Delete(object any) error { s.watch.Delete(object.(T)); return nil }
func (s store[T]) Resync() error           { return nil }

func (s store[T]) Replace(objects []any, _ string) error {
	all := make([]T, len(objects))
	for i, object := range objects {
		all[i] = object.(T)
	}
	s.watch.Replace(all)
	return nil
}
