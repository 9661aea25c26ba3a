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
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/operator/steer"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// preflightWithin limits how long the command waits for the answer to a
// preflight.
const preflightWithin = time.Minute

// ask asks the node's agent whether it would adopt the configuration, and
// prints the answer. Without an answer it prints why, and returns nil: the
// assignment does not depend on it. The error says that the command was
// interrupted.
func (a *app) ask(ctx context.Context, c client.WithWatch, o assignOptions, it *assignment) (*v1alpha1.PreflightGroup, error) {
	if o.local {
		return nil, nil
	}

	answer, why := a.preflight(ctx, c, o, it)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("interrupted: nothing was assigned")
	case why != "":
		fmt.Fprintln(a.ErrOut, printable.Line(fmt.Sprintf("note: it is not known whether node %s would accept this: %s", o.node, why)))
		return nil, nil
	case answer == nil || answer.Verdict == v1alpha1.PreflightAccepted:
		words := fmt.Sprintf("Preflight: node %s accepts this configuration", o.node)
		if answer != nil {
			words += ": it " + answer.Message
		}

		fmt.Fprintln(a.Out, printable.Line(words))
		answer = nil
	case answer.Verdict == v1alpha1.PreflightRefused:
		fmt.Fprintln(a.Out, printable.Line(fmt.Sprintf("Preflight: node %s refuses this configuration (%s)", o.node,
			describe.JoinWords(answer.Reason, answer.Message))))
	default:
		fmt.Fprintln(a.Out, printable.Line(fmt.Sprintf("Preflight: node %s cannot tell whether it would accept this configuration (%s)", o.node,
			describe.JoinWords(answer.Reason, answer.Message))))
	}

	return answer, nil
}

// preflight creates a NodeConfigPreflight for one node, waits for the answer,
// and deletes the object. It returns nil if the node accepts the configuration
// and says nothing about it. why says why there is no answer; it is empty if
// there is one.
func (a *app) preflight(ctx context.Context, c client.WithWatch, o assignOptions, it *assignment) (answer *v1alpha1.PreflightGroup,
	why string) {
	p, err := steer.NodePreflight(ctx, c, it.node.Pair(), it.content, it.trial)
	if err != nil {
		return nil, err.Error()
	}

	rollouts, err := query.Rollouts(ctx, c)
	if err != nil {
		return nil, fmt.Sprintf("list rollouts: %v", err)
	}

	settings := fleet.SettingsIn(rollouts.Items)
	if silent := describe.ControllerSilent(query.ControllerRenewal(ctx, c, settings.Namespace), settings.Namespace, time.Now()); silent != "" {
		return nil, silent
	}
	if err := steer.CreatePreflight(ctx, c, p); err != nil {
		return nil, err.Error()
	}

	defer func() { // others wait for it; if this fails, the controller deletes it soon after the answer
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), query.ObserveTimeout)
		defer cancel()
		_ = c.Delete(ctx, p)
	}()
	within := min(preflightWithin, o.agentTimeout)
	follow, stop := context.WithTimeout(ctx, within)
	defer stop()
	updates := command.Watched[*v1alpha1.NodeConfigPreflight]{
		List: &v1alpha1.NodeConfigPreflightList{}, Name: p.Name, What: "NodeConfigPreflight " + p.Name, Deleted: "its answer is lost",
	}.Follow(follow, c)
	late := time.After(query.ObserveTimeout)
	seen := p
	for {
		select {
		case u, open := <-updates:
			switch {
			case !open && seen.Status.Phase == v1alpha1.PreflightWaiting:
				return nil, fmt.Sprintf("the preflight had to wait for another one for %s", describe.Span(within))
			case !open:
				return nil, fmt.Sprintf("its agent has not answered within %s", describe.Span(within))
			case u.Last && follow.Err() == nil:
				return nil, u.Err.Error()
			case u.Err != nil:
				continue
			}

			if seen = u.Object; seen.Status.Ended() != nil {
				return steer.NodeAnswer(seen)
			}
		case <-late:
			if seen.Status.Phase == "" {
				return nil, query.Unobserved
			}
		}
	}
}

// afterRefusal says what to do after a refusal in a preflight.
func (it *assignment) afterRefusal(answer *v1alpha1.PreflightGroup) string {
	if describe.AboutPods(answer.Reason) {
		return fmt.Sprintf("move its pods away first (kubectl drain %s), or use --force: the node then adopts it when its pods allow it",
			it.node.Name)
	}

	return "correct the configuration, or use --force to assign it anyway"
}
