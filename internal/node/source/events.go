package source

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	maxEvents       = 50
	maxEventAge     = 30 * time.Minute
	maxEventMessage = 1000 // the API server takes 1024 bytes
)

// Severity is the type of an Event.
type Severity string

// The types of Events in Kubernetes.
const (
	Normal  Severity = "Normal"
	Warning Severity = "Warning"
)

// eventQueue holds the events that are not written yet, the oldest first.
type eventQueue struct {
	mu     sync.Mutex
	items  []queuedEvent
	serial int
	signal chan struct{}
}

type queuedEvent struct {
	serial          int
	at              time.Time
	severity        Severity
	reason, message string
}

// Event queues an Event on the Node. An Event that cannot be written within 30 minutes is dropped, and so are the oldest
// ones beyond 50.
func (r *Reporter) Event(severity Severity, reason, message string) {
	q := &r.events
	q.mu.Lock()
	defer q.mu.Unlock()
	q.serial++
	q.items = append(q.items, queuedEvent{q.serial, time.Now(), severity, reason, message})
	if dropped := len(q.items) - maxEvents; dropped > 0 {
		q.items = q.items[dropped:]
	}
	signal(q.signal)
}

// next drops events that are too old, and returns the oldest of the others.
func (q *eventQueue) next() (queuedEvent, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) > 0 && time.Since(q.items[0].at) > maxEventAge {
		q.items = q.items[1:]
	}
	if len(q.items) == 0 {
		q.items = nil
		return queuedEvent{}, false
	}
	return q.items[0], true
}

// done removes an event from the queue, if it is still there.
func (q *eventQueue) done(e queuedEvent) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) > 0 && q.items[0].serial == e.serial {
		q.items = q.items[1:]
	}
}

func (r *Reporter) writeEvents(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.events.signal:
		}
		retry := newRetry(r.client, time.Minute)
		for {
			e, ok := r.events.next()
			if !ok {
				break
			}
			err := r.client.writeEvent(ctx, r.node, r.component, e)
			if ctx.Err() != nil {
				return
			}
			if err == nil || !worthRetrying(err) {
				r.events.done(e)
				if err != nil {
					r.log.Warn("the API server refused an event", "event", e.reason, "message", e.message, "err", err)
				}
				continue
			}
			r.log.Debug("cannot write an event, retrying", "event", e.reason, "err", err)
			if !retry.wait(ctx, err, nil) {
				return
			}
		}
	}
}

// worthRetrying reports whether the same request can succeed later.
func worthRetrying(err error) bool {
	code := codeOf(err)
	return code == 0 || code == http.StatusUnauthorized || code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

// Event writes one Event on a node, without a retry: for callers that exit soon.
func (c *Client) Event(ctx context.Context, node, component string, severity Severity, reason, message string) error {
	return c.writeEvent(ctx, node, component, queuedEvent{at: time.Now(), severity: severity, reason: reason, message: message})
}

func (c *Client) writeEvent(ctx context.Context, node, component string, e queuedEvent) error {
	at := metav1.NewTime(e.at)
	_, err := c.do(ctx, request{verb: "POST", gv: coreV1, namespace: metav1.NamespaceDefault, resource: "events", body: corev1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x.%d", node, e.at.UnixNano(), e.serial), Namespace: metav1.NamespaceDefault},
		// kubectl describe finds the events of a Node by its name in the UID, as the kubelet writes them.
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: node, UID: types.UID(node)},
		Reason:         e.reason,
		Message:        shorten(e.message, maxEventMessage),
		Source:         corev1.EventSource{Component: component, Host: node},
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
		Type: string(e.severity),
	}}, nil)
	if apierrors.IsAlreadyExists(err) {
		return nil // an earlier attempt succeeded, but its answer was lost
	}
	return err
}
