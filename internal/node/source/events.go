// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"
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

type queuedEvent struct {
	serial          int64
	at              time.Time
	severity        Severity
	reason, message string
}

// Event queues an Event on the Node. An Event that cannot be written within 30
// minutes is dropped, and so are the oldest ones beyond 50.
func (r *Reporter) Event(severity Severity, reason, message string) {
	e := queuedEvent{r.serial.Add(1), time.Now(), severity, reason, r.hide(message)}
	for {
		select {
		case r.events <- e:
			return
		default:
		}

		select {
		case <-r.events:
		default:
		}
	}
}

func (r *Reporter) writeEvents(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-r.events:
			r.writeEvent(ctx, e)
		}
	}
}

// writeEvent writes an Event, and retries until the Event is too old or there
// are too many newer ones.
func (r *Reporter) writeEvent(ctx context.Context, e queuedEvent) {
	retry := newRetry(r.client, time.Minute)
	for time.Since(e.at) <= maxEventAge && len(r.events) < maxEvents {
		err := r.client.writeEvent(ctx, r.node, r.component, e)
		if err == nil || ctx.Err() != nil {
			return
		}

		if !worthRetrying(err) {
			r.log.Warn("the API server refused an event", "event", e.reason, "message", e.message, "err", err)
			return
		}

		r.log.Debug("cannot write an event, retrying", "event", e.reason, "err", err)
		if !retry.wait(ctx, err, nil) {
			return
		}
	}
}

// worthRetrying reports whether the same request can succeed later.
func worthRetrying(err error) bool { return silent(err) || apierrors.IsUnauthorized(err) }

// Event writes one Event on a node, without a retry: for callers that exit
// soon.
func (c *Client) Event(ctx context.Context, node, component string, severity Severity, reason, message string) error {
	return c.writeEvent(ctx, node, component, queuedEvent{at: time.Now(), severity: severity, reason: reason, message: message})
}

func (c *Client) writeEvent(ctx context.Context, node, component string, e queuedEvent) error {
	at := metav1.NewTime(e.at)
	_, err := c.do(ctx, request{verb: "POST", gv: coreV1, namespace: metav1.NamespaceDefault, resource: "events", body: corev1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x.%d", node, e.at.UnixNano(), e.serial), Namespace: metav1.NamespaceDefault},
		// kubectl describe finds the events of a Node by its name in the UID,
		// as the kubelet writes them.
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
