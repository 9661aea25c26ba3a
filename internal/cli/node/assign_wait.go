// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// answerWithin is the time after which the command prints that the agent has
// not answered yet.
const answerWithin = 5 * time.Second

// awaitNode follows a node after its source was written, until the outcome is
// known or the time is up. already reports whether an earlier command wrote the
// source.
func (a *app) awaitNode(ctx context.Context, c client.WithWatch, w assignOptions, from *v1alpha1.NodeConfig,
	source *v1alpha1.NodeConfigSource, already bool) error {
	interrupted := ctx
	ctx, stop := command.Limited(ctx, w.timeout)
	defer stop()
	silent, late := time.NewTimer(w.agentTimeout), time.NewTimer(answerWithin)
	defer silent.Stop()
	defer late.Stop()

	updates := command.Watched[*v1alpha1.NodeConfig]{
		List: &v1alpha1.NodeConfigList{}, Name: from.Name, What: "NodeConfig " + from.Name, Deleted: "the node keeps its configuration",
	}.Follow(ctx, c)
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
					fmt.Fprintf(a.ErrOut, "waiting for the API server: %s\n", printable.Line(describe.Brief(u.Err)))
				}

				troubled = true
			case u.Err == nil:
				if troubled { // without the API server no agent can answer
					troubled = false
					silent.Reset(w.agentTimeout)
				}

				o = describe.OutcomeOf(u.Object, source, generation)
			}
		case <-late.C:
			if o.Stage == describe.StageUnanswered {
				fmt.Fprintf(a.Out, "node %s: its agent has not answered yet; waiting for up to %s\n", w.node, describe.Span(w.agentTimeout))
			}
		case <-silent.C:
			if o.Stage == describe.StageUnanswered && !troubled {
				did, back := "is", ""
				if already {
					did = "was"
				}
				if source.ConfigMapRef != nil {
					back = "; to undo the assignment: kubectl evenkeel assign " + w.node + " --local"
				}

				return &command.Exit{Code: command.ExitTimeout,
					Err: fmt.Errorf("the agent of node %s has not answered for %s: is it running? The configuration %s assigned; the node starts it "+
						"when its agent runs%s",
						w.node, describe.Span(w.agentTimeout), did, back)}
			}
		}
	}
}

// outcome reports whether the wait has ended, and the error of the command.
func (w *assignOptions) outcome(o describe.Outcome) (done bool, err error) {
	words := fmt.Sprintf("node %s %s", w.node, o.Words)
	if o.Advice != "" {
		words += "\n" + o.Advice
	}

	switch o.Stage {
	case describe.StageProven:
		return true, nil
	case describe.StageTrial:
		return w.until == untilTrial, nil
	case describe.StageRefused, describe.StageRolledBack, describe.StageStuck:
		return true, &command.Exit{Code: command.ExitHalted,
			Err: fmt.Errorf("%s\nthe assignment stays until you assign another configuration, or --local; for details: kubectl evenkeel node %s",
				words, w.node)}
	case describe.StageReplaced:
		return true, fmt.Errorf("%s; for details: kubectl evenkeel node %s", words, w.node)
	}

	return false, nil
}

// ended returns the error of a wait that ended before the outcome was known.
func (w *assignOptions) ended(interrupted context.Context, o describe.Outcome) error {
	next := fmt.Sprintf("the assignment stays and the node continues by itself: kubectl evenkeel node %s", w.node)
	if o.Stage == describe.StageTrial {
		next = "the trial continues, and if it fails the node rolls back by itself: kubectl evenkeel node " + w.node
	}
	if interrupted.Err() != nil {
		return fmt.Errorf("interrupted; %s", next)
	}

	return &command.Exit{Code: command.ExitTimeout, Err: fmt.Errorf("timed out after %s: node %s %s; %s", w.timeout, w.node, o.Words, next)}
}
