// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"fmt"
	"io"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// watchRollout watches a rollout; see command.Watched.
func watchRollout(ctx context.Context, c client.WithWatch, name string) <-chan command.Update[*v1alpha1.NodeConfigRollout] {
	return command.Watched[*v1alpha1.NodeConfigRollout]{
		List: &v1alpha1.NodeConfigRolloutList{}, Name: name, What: fmt.Sprintf("rollout %q", name), Deleted: "its nodes keep their configuration",
	}.Follow(ctx, c)
}

// follower prints a rollout while a command waits for it.
type follower struct {
	out, errOut io.Writer
	format      printing.Format
	last        string // the line that was printed last
	troubled    bool
	live        *live // on a terminal; nil: lines
}

func (a *app) follower(ctx context.Context, c client.Client, f printing.Format) *follower {
	o := &follower{out: a.Out, errOut: a.ErrOut, format: f}
	if _, _, ok := a.Screen(); ok && (f == "" || f == printing.Wide) {
		o.live = newLive(ctx, c, a.Terminal, a.Screen, f == printing.Wide)
	}
	return o
}

// line returns a version of the rollout as it is printed.
func (o *follower) line(r *v1alpha1.NodeConfigRollout) (string, error) {
	switch o.format {
	case printing.JSON:
		r = r.DeepCopy()
		r.ManagedFields = nil
		return printing.Line(r)
	case printing.YAML:
		return printing.Document(r)
	case printing.Name:
		return "nodeconfigrollout." + v1alpha1.GroupName + "/" + r.Name, nil
	}
	return plainLine(r), nil
}

// show prints a newer version of the rollout.
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

// trouble prints, once, that the API server does not answer.
func (o *follower) trouble(err error) {
	if o.live != nil {
		o.live.trouble = describe.Brief(err)
		o.live.redraw()
	} else if !o.troubled {
		fmt.Fprintf(o.errOut, "waiting for the API server: %s\n", printable.Line(describe.Brief(err)))
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
