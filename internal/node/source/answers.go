// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// Answer is the intended configuration, as far as it is known.
type Answer struct {
	// Intent is what the node is to do about it. Its Cause names the object,
	// the problem and the remedy. Its Config has no Checkpoint.
	trial.Intent
	// Silent, if Unanswered, means that the API server did not answer, is
	// overloaded, or failed. Otherwise it refused.
	Silent bool
	// ConfigMap is the whole object as JSON; set if Assigned and the node has
	// no checkpoint of it yet.
	ConfigMap []byte
	// Payload is set if Assigned, unless PayloadErr, a *payload.Error, says why
	// it cannot be decoded: the source is then still correct, and the agent
	// must reject the configuration.
	Payload    payload.Payload
	PayloadErr error
	// Generation and NodeConfigUID are those of the NodeConfig; zero if it does
	// not exist or is not known.
	Generation    int64
	NodeConfigUID types.UID
	// Revoked is nil if it is not known.
	Revoked *[]types.UID

	noneSoon bool // a better answer is not expected within seconds
	mayPass  bool // the object cannot be read: after its start an API server refuses for a moment what it accepts later
}

// answers holds the newest answer of a source for its readers.
type answers struct {
	wake    chan struct{} // there may be a new answer
	changed chan struct{}

	mu      sync.Mutex
	refresh bool // Refresh was called
	answer  Answer
	ready   chan struct{} // closed at the first answer that First returns
}

// newAnswers starts with the answer of a source that has not read its object
// yet.
func newAnswers(object string) answers {
	return answers{
		wake:    make(chan struct{}, 1),
		changed: make(chan struct{}, 1),
		ready:   make(chan struct{}),
		answer:  Answer{Intent: trial.Intent{Cause: object + " cannot be read: no answer from the API server yet"}, Silent: true},
	}
}

// Current returns the newest answer.
func (a *answers) Current() Answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answer
}

// Changed returns a channel for one reader, which receives when Current has a
// new answer. Several changes may arrive as one.
func (a *answers) Changed() <-chan struct{} { return a.changed }

// First waits for the first answer, until ctx ends. It returns what is known if
// ctx ends, or if no answer is expected soon: the connection is refused, the
// kubeconfig is missing, or there is no NodeConfig.
func (a *answers) First(ctx context.Context) Answer {
	select {
	case <-a.ready:
	case <-ctx.Done():
	}

	return a.Current()
}

// Refresh resolves the assignment again, and downloads its object: the
// checkpoint was valid when the source read it, but cannot be used.
func (a *answers) Refresh() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refresh = true
	signal(a.wake)
}

// publish sets the answer, and signals if it is a new one. Only one goroutine
// calls it.
func (a *answers) publish(answer Answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if same(answer, a.answer) {
		return
	}

	a.answer = answer
	if answer.Kind != trial.Unanswered && !answer.mayPass || answer.noneSoon {
		select {
		case <-a.ready:
		default:
			close(a.ready)
		}
	}

	signal(a.changed)
}

// same reports whether two answers are equal to a reader.
func same(a, b Answer) bool {
	errors := fmt.Sprint(a.PayloadErr) == fmt.Sprint(b.PayloadErr)
	digests := a.Payload.SHA256 == b.Payload.SHA256 && (a.ConfigMap == nil) == (b.ConfigMap == nil)
	a.PayloadErr, a.Payload, a.ConfigMap = nil, payload.Payload{}, nil
	b.PayloadErr, b.Payload, b.ConfigMap = nil, payload.Payload{}, nil

	return errors && digests && reflect.DeepEqual(a, b)
}

// view is the last known state of an object.
type view[T any] struct {
	synced bool // the object is known, or known not to exist
	object *T
	err    error // why the object cannot be read now
}

// update stores an object, nil if it does not exist. An err keeps the last
// known object.
func (v *view[T]) update(object *T, err error) {
	if err != nil {
		v.err = err
		return
	}

	*v = view[T]{synced: true, object: object}
}

// signal wakes the reader of c. Several signals may arrive as one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
