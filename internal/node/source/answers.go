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

// Answer is what is known of the intended configuration.
type Answer struct {
	Kind  trial.IntentKind
	Cause string // of Unanswered, Unassigned and Invalid: the object, what is wrong, and what to do
	// Config is what is assigned, without a Checkpoint: of Assigned, and of the others as far as it is known. Of
	// Unassigned: AssignedBy alone.
	Config trial.Config
	// TakenBack is the assignment that a rollout took back, of Unassigned.
	TakenBack trial.RolloutRef
	// Changed says that the cause of Invalid is an object that does not have the payload on record under its UID.
	Changed bool
	// Stale says that the cause of Invalid is who assigned it, or when: the object and its payload are fine.
	Stale bool
	// ConfigMap is the whole object as JSON, of Assigned if it had to be downloaded: the node has no checkpoint yet.
	ConfigMap []byte
	// Payload is what to run, of Assigned; unless PayloadErr, a *payload.Error, says that it cannot even be decoded:
	// the source is correct all the same, and the configuration is to be rejected.
	Payload    payload.Payload
	PayloadErr error
	// Notice is worth saying and changes nothing: the object was edited, deleted or replaced.
	Notice string
	// Generation and NodeConfigUID are those of the NodeConfig, zero if there is none or it is not known.
	Generation    int64
	NodeConfigUID types.UID
	// Revoked is nil if it is not known.
	Revoked *[]string

	hopeless bool // no better answer will come within seconds
}

// answers is what every source has: the newest answer, for whoever asks, and what makes it look for another.
type answers struct {
	wake    chan struct{} // something was seen or found: there may be a new answer
	changed chan struct{}

	mu     sync.Mutex
	again  bool // what is assigned is to be resolved anew
	answer Answer
	spoken bool          // answer was published
	firm   chan struct{} // closed at the first answer that is worth waiting for
}

// newAnswers is those of a source that looks at object, which it has not done yet.
func newAnswers(object string) answers {
	return answers{
		wake:    make(chan struct{}, 1),
		changed: make(chan struct{}, 1),
		firm:    make(chan struct{}),
		answer:  Answer{Kind: trial.Unanswered, Cause: object + " cannot be read: no answer from the API server yet"},
	}
}

// Current returns the newest answer.
func (a *answers) Current() Answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answer
}

// Changed returns the channel that is sent to, once for any number of changes, when Current has a new answer. It has
// one reader.
func (a *answers) Changed() <-chan struct{} { return a.changed }

// First waits for the first answer, until ctx ends: then, or when it is clear that none is to be had soon, because
// the connection is refused, there is no kubeconfig or no NodeConfig to assign anything, the answer is Unanswered.
func (a *answers) First(ctx context.Context) Answer {
	select {
	case <-a.firm:
	case <-ctx.Done():
	}
	return a.Current()
}

// Again has what is assigned resolved anew: its checkpoint, which was good when it was looked at, cannot be used.
func (a *answers) Again() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.again = true
	signal(a.wake)
}

// publish makes an answer known, if it is a new one. It is called by one goroutine.
func (a *answers) publish(answer Answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.spoken && same(answer, a.answer) {
		return
	}
	a.answer, a.spoken = answer, true
	if answer.Kind != trial.Unanswered || answer.hopeless {
		select {
		case <-a.firm:
		default:
			close(a.firm)
		}
	}
	signal(a.changed)
}

// same tells whether two answers say the same.
func same(a, b Answer) bool {
	errors := fmt.Sprint(a.PayloadErr) == fmt.Sprint(b.PayloadErr)
	digests := a.Payload.SHA256 == b.Payload.SHA256 && (a.ConfigMap == nil) == (b.ConfigMap == nil)
	a.PayloadErr, a.Payload, a.ConfigMap = nil, payload.Payload{}, nil
	b.PayloadErr, b.Payload, b.ConfigMap = nil, payload.Payload{}, nil
	return errors && digests && reflect.DeepEqual(a, b)
}

// view is an object as it was last seen.
type view[T any] struct {
	synced bool // it is known, or known not to be there
	object *T
	err    error // why nothing was seen since
}

// take takes down an object, nil if there is none, or why it cannot be seen: that leaves what was seen before.
func (v *view[T]) take(object *T, err error) {
	if err != nil {
		v.err = err
		return
	}
	*v = view[T]{synced: true, object: object}
}

// signal wakes whoever waits for c, once for any number of calls.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
