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
	"github.com/evenkeel/evenkeel/internal/fleet/report"
)

// update is what became of a followed rollout: a newer version of it, or an error. With over nothing comes after it.
type update struct {
	rollout *v1alpha1.NodeConfigRollout
	err     error
	over    bool
}

// watchRollout follows one rollout from a version of it that was read, until ctx ends, which closes the channel. Errors
// that may pass are told and waited out.
func watchRollout(ctx context.Context, c client.WithWatch, from *v1alpha1.NodeConfigRollout) <-chan update {
	out := make(chan update)
	go func() {
		defer close(out)
		tell := func(u update) bool {
			select {
			case out <- u:
				return !u.over
			case <-ctx.Done():
				return false
			}
		}
		version, wait := from.ResourceVersion, time.Duration(0)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			err := watchOnce(ctx, c, from.Name, &version, tell)
			if err == nil && version == "" { // what is missing between two watches is read
				var r *v1alpha1.NodeConfigRollout
				if r, err = report.Rollout(ctx, c, from.Name); err == nil {
					version = r.ResourceVersion
					if !tell(update{rollout: r}) {
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
				if !tell(update{err: err}) {
					return
				}
			default:
				tell(update{err: err, over: true})
				return
			}
		}
	}()
	return out
}

// watchOnce tells what a watch brings, until it ends. Without a version there is nothing to watch from: it leaves that to
// be read; a watch that ends leaves none.
func watchOnce(ctx context.Context, c client.WithWatch, name string, version *string, tell func(update) bool) error {
	if *version == "" {
		return nil
	}
	events, err := c.Watch(ctx, &v1alpha1.NodeConfigRolloutList{}, &client.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", name),
		Raw:           &metav1.ListOptions{ResourceVersion: *version},
	})
	if err != nil {
		return fmt.Errorf("watch rollout %q: %w", name, err)
	}
	defer events.Stop()
	*version = ""
	for event := range events.ResultChan() {
		switch event.Type {
		case apiwatch.Added, apiwatch.Modified:
			r, ok := event.Object.(*v1alpha1.NodeConfigRollout)
			if !ok {
				return fmt.Errorf("watch rollout %q: the server sent a %T", name, event.Object)
			}
			report.FromServer(r)
			if !tell(update{rollout: r}) {
				return nil
			}
		case apiwatch.Deleted:
			return fmt.Errorf("rollout %q was deleted: its nodes stay as they are", name)
		case apiwatch.Error:
			err := apierrors.FromObject(event.Object)
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				return nil
			}
			return fmt.Errorf("watch rollout %q: %w", name, err)
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

func (a *app) follower(ctx context.Context, c client.Client, f format) *follower {
	o := &follower{out: a.Out, errOut: a.ErrOut}
	switch f {
	case formatJSON:
		o.line = jsonLine
	case formatYAML:
		o.line = yamlDocument
	case formatName:
		o.line = func(r *v1alpha1.NodeConfigRollout) (string, error) {
			return "nodeconfigrollout." + v1alpha1.GroupName + "/" + r.Name, nil
		}
	default:
		o.line = func(r *v1alpha1.NodeConfigRollout) (string, error) { return plainLine(r), nil }
		if _, _, ok := a.screen(); ok {
			o.live = newLive(ctx, c, a.Out, a.screen, f == formatWide)
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
