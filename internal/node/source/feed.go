package source

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// feed keeps one watch up and hands on what it sees.
//
// Every connection begins with all that there is, as of now: few objects match, so that this costs less than keeping
// track of resource versions, an expired one (410) is nothing special, and what was seen can never go back in time.
type feed struct {
	client    *Client
	gv        schema.GroupVersion
	namespace string
	resource  string
	fields    string        // the selector: what a node may watch depends on it
	slowest   time.Duration // between two attempts that fail

	replace func(objects []runtime.Object) // all that there is: the watch is up
	apply   func(change watch.EventType, object runtime.Object)
	fail    func(error) // an attempt failed: nothing is known until the next replace
}

// run watches until ctx ends. The three functions are called one at a time, and not after run has returned. A watch
// that ends and can be opened again is not worth a call of fail.
func (f *feed) run(ctx context.Context) {
	retry := retries(f.slowest)
	for {
		recovered := f.client.recovered()
		began := time.Now()
		synced, err := f.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if synced && time.Since(began) > time.Second {
			retry = retries(f.slowest)
			continue
		}
		if !synced {
			f.client.note(err)
			f.fail(err)
		}
		if !pause(ctx, polite(err, retry.Step()), recovered, nil) {
			return
		}
		afresh(&retry, f.slowest, recovered)
	}
}

// once watches over one connection. It returns whether it got to know all that there was.
func (f *feed) once(ctx context.Context) (synced bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	deadline := time.AfterFunc(f.client.timeout, func() { cancel(errNoAnswer) })
	defer deadline.Stop()
	up := func(objects []runtime.Object) {
		deadline.Stop()
		synced = true
		f.client.note(nil)
		f.replace(objects)
	}
	client, err := f.client.rest(f.gv)
	if err != nil {
		return false, err
	}
	err = f.stream(ctx, client, up)
	if !synced && apierrors.IsInvalid(err) { // an API server that cannot begin a watch with what there is
		err = f.listAndWatch(ctx, client, up)
	}
	if !synced && context.Cause(ctx) == errNoAnswer {
		err = errNoAnswer
	}
	return synced, err
}

func (f *feed) stream(ctx context.Context, client *rest.RESTClient, up func([]runtime.Object)) error {
	begin := true
	options := metav1.ListOptions{
		SendInitialEvents:    &begin,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}
	// Until the bookmark changes may come as well, such as those that the API server's cache had yet to see.
	var objects initial
	synced := false
	return f.watch(ctx, client, options, func(e watch.Event) {
		switch {
		case synced:
			if e.Type != watch.Bookmark {
				f.apply(e.Type, e.Object)
			}
		case e.Type != watch.Bookmark:
			objects.apply(e.Type, e.Object)
		default:
			if o, ok := e.Object.(metav1.Object); ok && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
				synced = true
				up(objects)
				objects = nil
			}
		}
	})
}

// initial are the objects that there are, before all of them are known.
type initial []runtime.Object

func (i *initial) apply(change watch.EventType, object runtime.Object) {
	*i = slices.DeleteFunc(*i, func(o runtime.Object) bool { return sameName(o, object) })
	if change != watch.Deleted {
		*i = append(*i, object)
	}
}

// sameName reports whether two objects are one; what has no name is only itself.
func sameName(a, b runtime.Object) bool {
	x, okX := a.(metav1.Object)
	y, okY := b.(metav1.Object)
	return okX && okY && x.GetNamespace() == y.GetNamespace() && x.GetName() == y.GetName()
}

func (f *feed) listAndWatch(ctx context.Context, client *rest.RESTClient, up func([]runtime.Object)) error {
	list, err := f.get(client, metav1.ListOptions{}).Do(ctx).Get()
	if err != nil {
		return err
	}
	of, err := meta.ListAccessor(list)
	if err != nil {
		return fmt.Errorf("understand a list: %w", err)
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return fmt.Errorf("understand a list: %w", err)
	}
	up(objects)
	options := metav1.ListOptions{ResourceVersion: of.GetResourceVersion()}
	return f.watch(ctx, client, options, func(e watch.Event) {
		if e.Type != watch.Bookmark {
			f.apply(e.Type, e.Object)
		}
	})
}

func (f *feed) watch(ctx context.Context, client *rest.RESTClient, options metav1.ListOptions, handle func(watch.Event)) error {
	// Watches of one fleet must not all end at once; left to itself, the API server picks 30 minutes or more.
	timeout := int64(wait.Jitter(5*time.Minute, 1).Seconds())
	options.Watch, options.TimeoutSeconds, options.AllowWatchBookmarks = true, &timeout, true
	w, err := f.get(client, options).Watch(ctx)
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
				return errClosed
			}
			if e.Type == watch.Error {
				return apierrors.FromObject(e.Object)
			}
			handle(e)
		}
	}
}

func (f *feed) get(client *rest.RESTClient, options metav1.ListOptions) *rest.Request {
	options.FieldSelector = f.fields
	return client.Get().NamespaceIfScoped(f.namespace, f.namespace != "").Resource(f.resource).
		VersionedParams(&options, metav1.ParameterCodec).MaxRetries(0)
}

// single makes f a feed of the one object of that name: see is called with it, and with nil when there is none. What is
// no T is neither: it is a failure.
func single[T any, P interface {
	*T
	runtime.Object
}](f feed, name string, see func(P)) *feed {
	f.fields = fields.OneTermEqualSelector("metadata.name", name).String()
	take := func(change watch.EventType, object runtime.Object) {
		p, ok := object.(P)
		switch {
		case !ok:
			f.fail(fmt.Errorf("understand the answer: it has a %T in it", object))
		case change == watch.Deleted:
			see(nil)
		default:
			see(p)
		}
	}
	f.apply = take
	f.replace = func(objects []runtime.Object) {
		if len(objects) == 0 {
			see(nil)
			return
		}
		take(watch.Added, objects[0])
	}
	return &f
}
