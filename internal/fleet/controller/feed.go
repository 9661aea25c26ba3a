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
	// silence is how long the API server may say nothing before it has told all that there is.
	silence = 15 * time.Second
	// page is how many objects are listed at a time, where they must be listed.
	page = 500
	// Between two attempts: of an API server that does not answer, which costs it nothing, and of one that refuses.
	longestUnanswered = time.Second
	longestRefused    = 5 * time.Second
)

// feed keeps one watch up, and hands on what it sees, stripped.
//
// Every connection begins with all that there is, as of the moment in which it was asked for. A watch that goes on from
// a resource version may be accepted by an API server that has just started, and end a moment later because that version
// is too old: between the two everything looks as it was before the outage. So a watch that has ended means that the
// view is incomplete, until the next connection has told everything.
type feed struct {
	api    client.WithWatch
	list   client.ObjectList  // of the kind, empty
	within client.ListOptions // what of the kind
	wake   <-chan struct{}    // the API server may be back; nil: nobody knows

	set    func(client.Object)
	remove func(client.Object)
	// only forgets what there was before the version of a list and is not in it.
	only func(there map[client.ObjectKey]bool, version string)
	// seen is called when everything has been told, and lost when it is not known any more whether it has; err is nil if
	// the watch ended as all watches do in the end.
	seen func()
	lost func(err error)
}

// run watches until ctx ends. The functions of f are called one at a time, and not after run has returned.
func (f *feed) run(ctx context.Context) {
	p := pace{}
	for {
		began := time.Now()
		synced, err := f.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if synced && time.Since(began) > time.Second {
			f.lost(nil)
			p = pace{}
			continue
		}
		f.lost(err)
		timer := time.NewTimer(p.next(err))
		select {
		case <-timer.C:
		case <-f.wake:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// once watches over one connection. It reports whether everything was told.
func (f *feed) once(ctx context.Context) (synced bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	deadline := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer deadline.Stop()
	there := map[client.ObjectKey]bool{}
	told := func(version string) {
		deadline.Stop()
		f.only(there, version)
		there, synced = nil, true
		f.seen()
	}
	begin := true
	err = f.watch(ctx, metav1.ListOptions{SendInitialEvents: &begin, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}, func(e watch.EventType, o client.Object) {
		if !synced {
			deadline.Reset(silence)
		}
		switch {
		case e == watch.Bookmark:
			if !synced && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
				told(o.GetResourceVersion())
			}
			return
		case !synced && e == watch.Deleted:
			delete(there, client.ObjectKeyFromObject(o))
		case !synced:
			there[client.ObjectKeyFromObject(o)] = true
		}
		f.apply(e, o)
	})
	if !synced && apierrors.IsInvalid(err) { // an API server that cannot begin a watch with what there is
		err = f.listAndWatch(ctx, there, func() { deadline.Reset(silence) }, told)
	}
	if !synced && context.Cause(ctx) == errSilent {
		err = errSilent
	}
	return synced, err
}

// listAndWatch lists what is stored, never what a watch cache of the API server remembers.
func (f *feed) listAndWatch(ctx context.Context, there map[client.ObjectKey]bool, progress func(), told func(version string)) error {
	version := ""
	for options := (metav1.ListOptions{Limit: page}); ; {
		list := f.list.DeepCopyObject().(client.ObjectList)
		if err := f.api.List(ctx, list, f.options(options)); err != nil {
			return err
		}
		progress()
		err := meta.EachListItem(list, func(item runtime.Object) error {
			o, ok := item.(client.Object)
			if !ok {
				return fmt.Errorf("understand the answer: it has a %T in it", item)
			}
			there[client.ObjectKeyFromObject(o)] = true
			f.set(o)
			return nil
		})
		if err != nil {
			return err
		}
		version, options.Continue = list.GetResourceVersion(), list.GetContinue()
		if options.Continue == "" {
			break
		}
	}
	told(version)
	return f.watch(ctx, metav1.ListOptions{ResourceVersion: version}, func(e watch.EventType, o client.Object) {
		if e != watch.Bookmark {
			f.apply(e, o)
		}
	})
}

func (f *feed) apply(e watch.EventType, o client.Object) {
	if e == watch.Deleted {
		f.remove(o)
		return
	}
	f.set(o)
}

func (f *feed) watch(ctx context.Context, options metav1.ListOptions, handle func(watch.EventType, client.Object)) error {
	// The API server begins with everything again when it ends. Not all of them should end at once.
	timeout := int64(wait.Jitter(time.Hour, 0.5).Seconds())
	options.TimeoutSeconds, options.AllowWatchBookmarks = &timeout, true
	w, err := f.api.Watch(ctx, f.list.DeepCopyObject().(client.ObjectList), f.options(options))
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
				return fmt.Errorf("understand the answer: it has a %T in it", e.Object)
			}
			handle(e.Type, o)
		}
	}
}

func (f *feed) options(raw metav1.ListOptions) *client.ListOptions {
	o := f.within
	o.Raw, o.Limit, o.Continue = &raw, raw.Limit, raw.Continue
	return &o
}

var (
	errSilent = fmt.Errorf("the API server said nothing for %s", silence)
	errEnded  = errors.New("the watch has ended before it told everything")
)

// pace is how soon what fails is tried again: soon at first, and ever more rarely up to a few seconds. There is one
// controller, so that this is polite.
type pace struct {
	wait     time.Duration
	answered bool // the last time
}

func (p *pace) next(err error) time.Duration {
	most := longestUnanswered
	answered := false
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		most, answered = longestRefused, true
	}
	if p.wait == 0 || answered && !p.answered { // what an API server that has just started refuses, it may soon grant
		p.wait = 200 * time.Millisecond
	}
	p.answered = answered
	p.wait = min(p.wait*5/4, most) // 20 seconds until it is at its longest: an API server is up by then
	d := p.wait
	if after, ok := apierrors.SuggestsClientDelay(err); ok {
		d = max(d, min(time.Duration(after)*time.Second, longestRefused))
	}
	return wait.Jitter(d, 0.2)
}
