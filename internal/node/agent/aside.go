package agent

import "context"

// aside answers one request at a time beside the loop. A request enters neither trial.State nor the records on disk, and a decision
// never waits for it.
type aside[T any] struct {
	id     string // of the request that answer answers
	answer *T     // nil: there is none

	asked   string // the request that is being answered; empty: none
	cancel  context.CancelFunc
	answers chan asideAnswer[T]
}

type asideAnswer[T any] struct {
	id     string
	answer T
}

func newAside[T any]() aside[T] { return aside[T]{answers: make(chan asideAnswer[T], 1)} }

// serve takes the answer to the request that was being answered. If id names another request, it forgets that answer and begins to
// answer the new one, when no dry run of an assignment is in progress. answered is an earlier answer to the new request, or nil. An
// empty id means that there is no request.
func (s *aside[T]) serve(ctx context.Context, id string, answered *T, validations *checks, begin func() func(context.Context) T) {
	select {
	case got := <-s.answers:
		if got.id == s.asked {
			s.id, s.answer, s.asked = got.id, &got.answer, ""
		}
	default:
	}
	if s.id != id {
		s.id, s.answer = id, answered
	}
	if s.asked != id {
		s.stop()
	}
	if id == "" || s.asked == id || s.answer != nil || validations.busy() {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	s.asked, s.cancel = id, cancel
	answer, answers := begin(), s.answers
	go func() {
		defer cancel()
		got := asideAnswer[T]{id, answer(ctx)}
		if ctx.Err() != nil {
			return
		}
		select {
		case <-answers: // of an earlier request
		default:
		}
		answers <- got
		signal(validations.changed)
	}()
}

// stop stops the answer in progress. The next call of serve begins it again.
func (s *aside[T]) stop() {
	if s.asked != "" {
		s.cancel()
		s.asked = ""
	}
}
