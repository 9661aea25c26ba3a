package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/fleet/report"
)

// update is what became of a followed object: a newer version of it, or an error. With over nothing comes after it.
type update[T client.Object] struct {
	object T
	err    error
	over   bool
}

// watched is one object that is followed.
type watched[T client.Object] struct {
	what    string // in errors, such as: rollout "workers"
	name    string
	list    client.ObjectList // of its kind, empty
	read    func(context.Context) (T, error)
	deleted string // what its deletion means
}

// watchRollout follows one rollout from a version of it that was read; see follow.
func watchRollout(ctx context.Context, c client.WithWatch, from *v1alpha1.NodeConfigRollout) <-chan update[*v1alpha1.NodeConfigRollout] {
	return watched[*v1alpha1.NodeConfigRollout]{
		what: fmt.Sprintf("rollout %q", from.Name), name: from.Name, list: &v1alpha1.NodeConfigRolloutList{},
		read: func(ctx context.Context) (*v1alpha1.NodeConfigRollout, error) {
			return report.Rollout(ctx, c, from.Name)
		},
		deleted: "its nodes stay as they are",
	}.follow(ctx, c, from.ResourceVersion)
}

// follow follows an object from a version of it that was read, until ctx ends, which closes the channel. Errors that may
// pass are told and waited out.
func (w watched[T]) follow(ctx context.Context, c client.WithWatch, version string) <-chan update[T] {
	out := make(chan update[T])
	go func() {
		defer close(out)
		tell := func(u update[T]) bool {
			select {
			case out <- u:
				return !u.over
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
			err := w.once(ctx, c, &version, tell)
			if err == nil && version == "" { // what is missing between two watches is read
				var o T
				if o, err = w.read(ctx); err == nil {
					version = o.GetResourceVersion()
					if !tell(update[T]{object: o}) {
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
				if !tell(update[T]{err: err}) {
					return
				}
			default:
				tell(update[T]{err: err, over: true})
				return
			}
		}
	}()
	return out
}

// once tells what a watch brings, until it ends. Without a version there is nothing to watch from: it leaves that to be
// read; a watch that ends leaves none.
func (w watched[T]) once(ctx context.Context, c client.WithWatch, version *string, tell func(update[T]) bool) error {
	if *version == "" {
		return nil
	}
	events, err := c.Watch(ctx, w.list, &client.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", w.name),
		Raw:           &metav1.ListOptions{ResourceVersion: *version},
	})
	if err != nil {
		return fmt.Errorf("watch %s: %w", w.what, err)
	}
	defer events.Stop()
	*version = ""
	for event := range events.ResultChan() {
		switch event.Type {
		case apiwatch.Added, apiwatch.Modified:
			o, ok := event.Object.(T)
			if !ok {
				return fmt.Errorf("watch %s: the server sent a %T", w.what, event.Object)
			}
			if r, ok := event.Object.(*v1alpha1.NodeConfigRollout); ok {
				report.FromServer(r)
			}
			if !tell(update[T]{object: o}) {
				return nil
			}
		case apiwatch.Deleted:
			return fmt.Errorf("%s was deleted: %s", w.what, w.deleted)
		case apiwatch.Error:
			err := apierrors.FromObject(event.Object)
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				return nil
			}
			return fmt.Errorf("watch %s: %w", w.what, err)
		}
	}
	return nil
}

// follower shows a rollout while it is waited for.
type follower struct {
	out, errOut io.Writer
	line        func(*v1alpha1.NodeConfigRollout) (string, error)
	last        string // what was said last
	troubled    bool
	live        *live // on a terminal; nil: lines
}

func (a *app) follower(ctx context.Context, c client.Client, f printing.Format) *follower {
	o := &follower{out: a.Out, errOut: a.ErrOut}
	switch f {
	case printing.JSON:
		o.line = jsonLine
	case printing.YAML:
		o.line = yamlDocument
	case printing.Name:
		o.line = func(r *v1alpha1.NodeConfigRollout) (string, error) {
			return "nodeconfigrollout." + v1alpha1.GroupName + "/" + r.Name, nil
		}
	default:
		o.line = func(r *v1alpha1.NodeConfigRollout) (string, error) { return plainLine(r), nil }
		if _, _, ok := a.screen(); ok {
			o.live = newLive(ctx, c, a.terminal, a.screen, f == printing.Wide)
		}
	}
	return o
}

// show shows a newer version of the rollout.
func (o *follower) show(r *v1alpha1.NodeConfigRollout) {
	o.troubled = false
	if o.live != nil {
		o.live.show(r)
		return
	}
	line, err := o.line(r)
	if err != nil {
		line = fmt.Sprintf("%s: %v", r.Name, err)
	}
	if line != o.last {
		fmt.Fprintln(o.out, line)
		o.last = line
	}
}

// trouble says, once, that the API server does not answer.
func (o *follower) trouble(err error) {
	if o.live != nil {
		o.live.trouble = err.Error()
		o.live.redraw()
	} else if !o.troubled {
		fmt.Fprintf(o.errOut, "waiting for the API server: %s\n", report.OneLine(err.Error()))
	}
	o.troubled = true
}

func (o *follower) tick() <-chan time.Time {
	if o.live == nil {
		return nil
	}
	return o.live.ticker.C
}

func (o *follower) redraw() { o.live.redraw() }

func (o *follower) end() {
	if o.live != nil {
		o.live.end()
	}
}
