package node

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/fleet/report"
)

// answerWithin is how long an agent that runs may take to answer before it is said that it has not.
const answerWithin = 5 * time.Second

// awaitNode follows what a node makes of a source that was written, until the outcome is clear, or time is up. already says
// that it was written by an earlier command.
func (a *app) awaitNode(ctx context.Context, c client.WithWatch, w assign, from *v1alpha1.NodeConfig, source *v1alpha1.NodeConfigSource, already bool) error {
	interrupted := ctx
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.timeout)
		defer cancel()
	}
	follow, stop := context.WithCancel(ctx)
	defer stop()
	silent, late := time.NewTimer(w.agentTimeout), time.NewTimer(answerWithin)
	defer silent.Stop()
	defer late.Stop()

	updates := command.Watched[*v1alpha1.NodeConfig]{
		What: "NodeConfig " + from.Name, Name: from.Name, List: &v1alpha1.NodeConfigList{},
		Read: func(ctx context.Context) (*v1alpha1.NodeConfig, error) {
			nc := &v1alpha1.NodeConfig{}
			return nc, c.Get(ctx, client.ObjectKey{Name: from.Name}, nc)
		},
		Deleted: "the node keeps what it runs",
	}.Follow(follow, c, from.ResourceVersion)
	generation, last, troubled := from.Generation, "", false
	for o := describe.OutcomeOf(from, source, generation); ; {
		if words := "node " + w.node + " " + o.Words; (o.Reason != "" || o.Stage == describe.StageReplaced) && words != last {
			last = words
			if over, err := w.outcome(o); over {
				if err == nil {
					fmt.Fprintln(a.Out, printable.Line(words))
				}
				return err
			}
			fmt.Fprintln(a.Out, printable.Line(words))
		}
		select {
		case u, open := <-updates:
			switch {
			case !open:
				return w.ended(interrupted, o)
			case u.Last && ctx.Err() == nil:
				return u.Err
			case u.Err != nil && !u.Last:
				if !troubled {
					fmt.Fprintf(a.ErrOut, "waiting for the API server: %s\n", report.OneLine(u.Err.Error()))
				}
				troubled = true
			case u.Err == nil:
				if troubled { // while the API server is away no agent can answer
					troubled = false
					silent.Reset(w.agentTimeout)
				}
				o = report.OutcomeOf(u.Object, source, generation)
			}
		case <-late.C:
			if o.Stage == describe.StageUnanswered {
				fmt.Fprintf(a.Out, "node %s: its agent has not answered yet; it is waited for, for %s\n", w.node, describe.Span(w.agentTimeout))
			}
		case <-silent.C:
			if o.Stage == describe.StageUnanswered && !troubled {
				did, back := "is", ""
				if already {
					did = "was"
				}
				if source.ConfigMapRef != nil {
					back = "; to take it back: kubectl evenkeel assign " + w.node + " --local"
				}
				return &command.Exit{Code: command.ExitTimeout, Err: fmt.Errorf("the agent of node %s has not answered for %s: does it run? The configuration %s assigned, and the node takes it up when its agent runs%s",
					w.node, report.Span(w.agentTimeout), did, back)}
			}
		}
	}
}

// outcome reports whether nothing more is waited for, and the error that the command ends with then.
func (w *assign) outcome(o describe.Outcome) (over bool, err error) {
	words := fmt.Sprintf("node %s %s", w.node, o.Words)
	if o.Advice != "" {
		words += "\n" + o.Advice
	}
	switch o.Stage {
	case describe.StageProven:
		return true, nil
	case describe.StageTrial:
		return w.until == untilTrial, nil
	case report.StageRefused, report.StageRolledBack, report.StageStuck:
		return true, &command.Exit{Code: command.ExitHalted, Err: fmt.Errorf("%s\nwhat it is assigned stays so until you assign another one, or --local; kubectl evenkeel node %s says more", words, w.node)}
	case report.StageReplaced:
		return true, fmt.Errorf("%s: kubectl evenkeel node %s says what", words, w.node)
	}
	return false, nil
}

// ended is the error of a wait that ended before its outcome was clear.
func (w *assign) ended(interrupted context.Context, o describe.Outcome) error {
	next := fmt.Sprintf("the assignment stays and the node goes on by itself: kubectl evenkeel node %s", w.node)
	if o.Stage == describe.StageTrial {
		next = "the trial goes on, and if it fails the node goes back by itself: kubectl evenkeel node " + w.node
	}
	if interrupted.Err() != nil {
		return fmt.Errorf("interrupted; %s", next)
	}
	return &command.Exit{Code: command.ExitTimeout, Err: fmt.Errorf("timed out after %s: node %s %s; %s", w.timeout, w.node, o.Words, next)}
}
