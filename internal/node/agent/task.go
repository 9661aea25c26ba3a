// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
)

// tasks are what runs beside the loop. Run returns only when all of them have
// ended.
type tasks struct {
	running *sync.WaitGroup
	changed chan struct{} // receives when one has ended; nil: that makes no decision necessary
}

// task is one thing that runs beside the loop, such as a dry run. A decision
// never waits for it, and its result enters neither trial.State nor the records
// by itself. The loop polls it with ended.
type task[T any] struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when result is set
	result T
}

// begin starts a task. fn must not use the fields of the agent that the loop
// changes, and must end soon after its context.
func begin[T any](ctx context.Context, all tasks, fn func(context.Context) T) *task[T] {
	ctx, cancel := context.WithCancel(ctx)
	t := &task[T]{cancel: cancel, done: make(chan struct{})}
	all.running.Go(func() {
		defer cancel()
		t.result = fn(ctx)
		close(t.done)
		signal(all.changed)
	})

	return t
}

// finished returns a task that has ended with a result.
func finished[T any](result T) *task[T] {
	t := &task[T]{cancel: func() {}, done: make(chan struct{}), result: result}
	close(t.done)
	return t
}

// ended reports whether the result is available.
func (t *task[T]) ended() bool { return isClosed(t.done) }

// wait waits until the task has ended, or ctx ends.
func (t *task[T]) wait(ctx context.Context) {
	select {
	case <-t.done:
	case <-ctx.Done():
	}
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
