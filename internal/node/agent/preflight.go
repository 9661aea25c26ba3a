// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// Preflights returns requests to judge a configuration. They change nothing.
type Preflights interface {
	// Preflight returns the newest request; nil if there is none.
	Preflight() *source.Preflight
	// PreflightPayload downloads the payload of a request, and saves nothing.
	PreflightPayload(ctx context.Context, ref v1alpha1.ConfigMapReference) (payload.Payload, error)
}

// preflight is the agent's answer to one request at a time.
type preflight struct {
	id     string                    // of the request that answer answers
	answer *v1alpha1.PreflightAnswer // nil: there is none

	asked string                          // the request that task answers
	task  *task[v1alpha1.PreflightAnswer] // nil: none is being answered
}

// stop stops the answer in progress. The next pass begins it again.
func (p *preflight) stop() {
	if p.task != nil {
		p.task.cancel()
		p.task = nil
	}
}

// judgePreflight takes the answer to the request that was judged. It forgets
// that answer if there is another request now, and begins to judge this one,
// unless configurations are being validated.
func (a *Agent) judgePreflight(ctx context.Context) {
	if a.p.Preflights == nil {
		return
	}

	p, id := &a.preflight, ""
	var answered *v1alpha1.PreflightAnswer
	request := a.p.Preflights.Preflight()
	if request != nil {
		id, answered = request.UID, request.Answered // by this agent before it was restarted
	}
	if p.task != nil && p.task.ended() {
		p.id, p.answer, p.task = p.asked, &p.task.result, nil
	}
	if p.id != id {
		p.id, p.answer = id, answered
	}
	if p.asked != id {
		p.stop()
	}
	if id == "" || p.task != nil || p.answer != nil || a.validations.busy() {
		return
	}

	judge := a.preflightJudge(request.PreflightRequest)
	p.asked, p.task = id, begin(ctx, a.tasks, func(ctx context.Context) v1alpha1.PreflightAnswer {
		answer := judge(ctx)
		answer.UID = id
		if answer.Message != "" && answer.Reason != v1alpha1.ReasonSyncFailed && a.isForeign(request.ConfigMapRef.Namespace) {
			answer.Message = withheld
		}

		return answer
	})
}

// preflightJudge returns a function that judges a request. The function may be
// called beside the loop: what it needs of the agent is copied here.
func (a *Agent) preflightJudge(r v1alpha1.PreflightRequest) func(context.Context) v1alpha1.PreflightAnswer {
	ref := r.ConfigMapRef
	c := trial.Config{
		Revision:       string(ref.UID),
		ConfigRevision: v1alpha1.ConfigRevision{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID, SHA256: ref.SHA256},
		Rollout:        v1alpha1.RolloutReference{Attempt: r.Attempt},
	}
	state, guard, alive := a.state, a.guardInput(), a.kubelet.process != nil // a decision copies what it changes of the state
	running := a.kubelet.verdict.Effective

	return func(ctx context.Context) v1alpha1.PreflightAnswer {
		begin := time.Now()
		p, err := a.p.Preflights.PreflightPayload(ctx, ref)
		if rejected := (*payload.Error)(nil); errors.As(err, &rejected) {
			return refusedAnswer(v1alpha1.ReasonValidationFailed, err.Error())
		} else if err != nil {
			return unknownAnswer(v1alpha1.ReasonSyncFailed, err.Error())
		}

		terms, err := payload.ResolveTrial(p.Trial, r.Trial)
		if err != nil {
			return unknownAnswer(v1alpha1.ReasonSyncFailed, err.Error())
		}

		resolved, err := p.Resolve(a.p.Kubelet.Capacity())
		if payload.NeedsCapacity(err) {
			return unknownAnswer(v1alpha1.ReasonCouldNotValidate, err.Error())
		} else if err != nil {
			return refusedAnswer(v1alpha1.ReasonValidationFailed, err.Error())
		}

		c.SHA256 = p.SHA256
		c = c.WithValues(resolved.Digest)
		// A revoked revision is no reason to refuse: an assignment of it
		// removes it from spec.revoked.
		if bad, final := state.FinalEntry(c); final {
			return refusedAnswer(bad.Failure, bad.String())
		}
		// What does not run is judged although it may be current: its start may
		// be refused now.
		if _, same := state.Continued(c); same && alive {
			return v1alpha1.PreflightAnswer{Verdict: v1alpha1.PreflightAccepted}
		}

		v := a.compareFields(a.p.Kubelet.Check(ctx, resolved))
		out := trialVerdict(v)
		if v.isUndecided() {
			out = blameLocal(out, a.p.Kubelet.CheckLocal(ctx))
		}
		if out.Outcome != trial.Accepted {
			return answerOf(out)
		}

		accepted := acceptedAnswer(v, running, resolved.Values)
		if a.p.Nodes == nil {
			return accepted
		}

		judged := guard.judge(ctx, a.p.Nodes, a.p.Kubelet, c, v, terms.AllowPodLoss)
		for judged.unanswered && time.Since(begin) < a.o.UnansweredLimit { // an overloaded API server answers later
			select {
			case <-ctx.Done():
				return v1alpha1.PreflightAnswer{} // nobody waits for it
			case <-time.After(guardInterval):
			}

			judged = guard.judge(ctx, a.p.Nodes, a.p.Kubelet, c, v, terms.AllowPodLoss)
		}

		if judged.refusal.Outcome != trial.NotValidated {
			return answerOf(judged.refusal)
		}

		return accepted
	}
}

// answerOf returns the answer to a request whose configuration would not be
// adopted.
func answerOf(v trial.Verdict) v1alpha1.PreflightAnswer {
	switch {
	case v.Outcome == trial.Rejected:
		return refusedAnswer(v1alpha1.ReasonValidationFailed, v.Message)
	case v.Guard == v1alpha1.ReasonLocalInvalid: // which says nothing about the configuration
		return unknownAnswer(v.Guard, v.Message)
	case v.Outcome == trial.Refused, v.Outcome == trial.Protected:
		return refusedAnswer(v.Guard, v.Message)
	}

	return unknownAnswer(v1alpha1.ReasonCouldNotValidate, v.Message)
}

// acceptedAnswer says what the configuration would change, and the values of
// its rules.
func acceptedAnswer(v verdict, running component.Effective, values []v1alpha1.ResolvedValue) v1alpha1.PreflightAnswer {
	accepted := v1alpha1.PreflightAnswer{Verdict: v1alpha1.PreflightAccepted}
	if running != nil && v.Effective != nil {
		accepted.Message = payload.Changes(v.Effective, running, v1alpha1.MaxPreflightMessage)
	}

	for _, value := range values {
		if more := "; " + payload.ValueWords(value); len(accepted.Message)+len(more) <= v1alpha1.MaxPreflightMessage {
			accepted.Message = strings.TrimPrefix(accepted.Message+more, "; ")
		}
	}

	return accepted
}

func refusedAnswer(reason, message string) v1alpha1.PreflightAnswer {
	return v1alpha1.PreflightAnswer{Verdict: v1alpha1.PreflightRefused, Reason: reason, Message: message}
}

func unknownAnswer(reason, message string) v1alpha1.PreflightAnswer {
	return v1alpha1.PreflightAnswer{Verdict: v1alpha1.PreflightUnknown, Reason: reason, Message: message}
}
