package command

import (
	"context"
	"fmt"
	"io"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/fleet/query"
	"github.com/evenkeel/evenkeel/internal/printable"
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
	deleted string // what its deletion means
	watch   query.Watch[T]
}

// watchRollout follows a rollout; see follow.
func watchRollout(ctx context.Context, c client.WithWatch, name string) <-chan update[*v1alpha1.NodeConfigRollout] {
	return watched[*v1alpha1.NodeConfigRollout]{
		what: fmt.Sprintf("rollout %q", name), deleted: "its nodes stay as they are",
		watch: query.Watch[*v1alpha1.NodeConfigRollout]{
			Object: &v1alpha1.NodeConfigRollout{}, NewList: func() client.ObjectList { return &v1alpha1.NodeConfigRolloutList{} }, Name: name,
		},
	}.follow(ctx, c)
}

// follow sends the newest version of the object, and each later one, until ctx ends or an error is final; then it closes the
// channel. After an error that may pass it tries again.
func (w watched[T]) follow(ctx context.Context, c client.WithWatch) <-chan update[T] {
	out := make(chan update[T])
	ctx, stop := context.WithCancel(ctx)
	send := func(u update[T]) {
		select {
		case out <- u:
		case <-ctx.Done():
		}
		if u.over {
			stop()
		}
	}
	deleted := func() { send(update[T]{err: fmt.Errorf("%s was deleted: %s", w.what, w.deleted), over: true}) }
	w.watch.Update = func(o T) {
		if r, ok := any(o).(*v1alpha1.NodeConfigRollout); ok {
			query.FromServer(r)
		}
		send(update[T]{object: o})
	}
	w.watch.Replace = func(objects []T) {
		if len(objects) == 0 {
			deleted()
			return
		}
		w.watch.Update(objects[0])
	}
	w.watch.Delete = func(T) { deleted() }
	w.watch.Answered = func(err error) {
		if err != nil {
			send(update[T]{err: fmt.Errorf("watch %s: %w", w.what, err), over: !query.Passing(err)})
		}
	}
	go func() {
		defer close(out)
		defer stop()
		w.watch.Run(ctx, c)
	}()
	return out
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
		fmt.Fprintf(o.errOut, "waiting for the API server: %s\n", printable.Line(err.Error()))
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
