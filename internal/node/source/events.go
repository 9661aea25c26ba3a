package source

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	maxEvents     = 50
	maxEventAge   = 30 * time.Minute
	maxEventWords = 1000 // the API server takes 1024 bytes
)

// Severity is the type of an Event.
type Severity string

// The two severities that Kubernetes knows.
const (
	Normal  Severity = "Normal"
	Warning Severity = "Warning"
)

// eventQueue holds what is still to be told, the oldest first.
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

// Event tells about something that has just happened, as an Event on the Node. What cannot be written within half an
// hour is dropped, and so are the oldest of more than 50.
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

// next returns the oldest event that is worth writing.
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

// done takes an event off the queue, if it is still there.
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
		retry := retries(time.Minute)
		for {
			e, ok := r.events.next()
			if !ok {
				break
			}
			recovered := r.client.recovered()
			err := r.client.writeEvent(ctx, r.node, r.component, e)
			if ctx.Err() != nil {
				return
			}
			if err == nil || !worthRetrying(err) {
				r.events.done(e)
				if err != nil {
					r.log.Warn("an event was refused", "event", e.reason, "message", e.message, "err", err)
				}
				continue
			}
			r.log.Debug("cannot write an event yet", "event", e.reason, "err", err)
			if !pause(ctx, polite(err, retry.Step()), recovered, nil) {
				return
			}
		}
	}
}

// worthRetrying tells whether the same request can have another outcome later.
func worthRetrying(err error) bool {
	code := codeOf(err)
	return code == 0 || code == http.StatusUnauthorized || code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

// Event writes one event on a node now, and once: for who does not stay to try again.
func (c *Client) Event(ctx context.Context, node, component string, severity Severity, reason, message string) error {
	return c.writeEvent(ctx, node, component, queuedEvent{at: time.Now(), severity: severity, reason: reason, message: message})
}

func (c *Client) writeEvent(ctx context.Context, node, component string, e queuedEvent) error {
	at := metav1.NewTime(e.at)
	_, err := c.do(ctx, request{verb: "POST", gv: coreV1, namespace: metav1.NamespaceDefault, resource: "events", body: event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x.%d", node, e.at.UnixNano(), e.serial), Namespace: metav1.NamespaceDefault},
		// The UID of a Node is its name in events: kubectl describe finds the kubelet's own by that.
		InvolvedObject: objectReference{Kind: "Node", Name: node, UID: types.UID(node)},
		Reason:         e.reason,
		Message:        shorten(e.message, maxEventWords),
		Source:         eventSource{Component: component, Host: node},
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
		Type: string(e.severity),
	}}, nil)
	if apierrors.IsAlreadyExists(err) {
		return nil // an earlier attempt was carried out, though its answer was lost
	}
	return err
}
