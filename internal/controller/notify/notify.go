// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

const (
	mostQueued   = 100             // events for one receiver that wait
	mostAge      = 24 * time.Hour  // of an event in the queue
	firstBackoff = time.Second     // after a failure; it doubles with each
	mostBackoff  = 5 * time.Minute // between two attempts
	// blockedFor is how long a rollout must be blocked: a blocked node makes
	// place for the next one within seconds.
	blockedFor = time.Minute
	mostSent   = 50 // events of a rollout that are remembered as sent
)

// Notifier sends events to receivers. Its methods may be called concurrently.
type Notifier struct {
	queues  []*queue
	metrics *meters

	mu   sync.Mutex
	sent map[string]*sent // by the name of the rollout
}

// sent are the events of an attempt at a rollout's revision that were queued.
type sent struct {
	uid               types.UID
	revision, attempt int64
	ids               []string
	blockedSince      time.Time // since when this process sees the rollout blocked; zero: it is not
}

// New returns a Notifier for receivers with different names. agent is the
// User-Agent of its requests.
func New(receivers []Receiver, agent string, log *slog.Logger, registry prometheus.Registerer) (*Notifier, error) {
	n := &Notifier{sent: map[string]*sent{}}
	var err error
	if n.metrics, err = newMeters(registry, receivers); err != nil {
		return nil, err
	}

	for _, r := range receivers {
		n.queues = append(n.queues, &queue{
			client: client{receiver: r, agent: agent}, metrics: n.metrics, log: log.With("receiver", r.Name),
			waiting: make(chan queued, mostQueued),
		})
	}

	return n, nil
}

// Rollout queues the events of a rollout's present state that were not queued
// before. It does not wait for receivers. moving reports whether nodes are
// about to be moved. Call it again at the returned time, on the clock of now;
// zero: after the next change.
func (n *Notifier) Rollout(r *v1alpha1.NodeConfigRollout, moving bool, now time.Time) (again time.Time) {
	if len(n.queues) == 0 {
		return time.Time{}
	}

	events := EventsOf(r, moving)
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.sentOf(r)
	if i := slices.IndexFunc(events, func(e Event) bool { return e.Data.Kind == Blocked }); i < 0 {
		s.blockedSince = time.Time{}
	} else if s.blockedSince.IsZero() {
		s.blockedSince = now
	}

	for _, e := range events {
		if e.Data.Kind == Blocked && now.Sub(s.blockedSince) < blockedFor {
			again = s.blockedSince.Add(blockedFor)
			continue
		}

		if slices.Contains(s.ids, e.ID) {
			continue
		}

		s.ids = append(s.ids, e.ID)
		s.ids = s.ids[max(0, len(s.ids)-mostSent):]
		for _, q := range n.queues {
			q.add(e, time.Now())
		}
	}

	return again
}

// sentOf returns what was sent for the attempt of a rollout. The caller holds
// mu.
func (n *Notifier) sentOf(r *v1alpha1.NodeConfigRollout) *sent {
	is := &sent{uid: r.UID, revision: r.Status.Target(), attempt: r.Status.Attempt}
	if s := n.sent[r.Name]; s != nil && s.uid == is.uid && s.revision == is.revision && s.attempt == is.attempt {
		return s
	}

	n.sent[r.Name] = is

	return is
}

// Forget forgets a deleted rollout.
func (n *Notifier) Forget(rollout string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.sent, rollout)
}

// Run sends events until ctx ends. Then it drops those that wait: the next
// leader sends the present states again.
func (n *Notifier) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, q := range n.queues {
		all.Go(func() { q.run(ctx) })
	}

	all.Wait()
}

// queue holds the events for one receiver.
type queue struct {
	client  client
	metrics *meters
	log     *slog.Logger
	waiting chan queued
	failing bool // the last attempt failed
}

type queued struct {
	event Event
	since time.Time
}

// add queues an event. A full queue drops its oldest event.
func (q *queue) add(e Event, now time.Time) {
	q.metrics.pending(q.client.receiver, 1)
	for {
		select {
		case q.waiting <- queued{e, now}:
			return
		default:
		}

		select {
		case oldest := <-q.waiting:
			q.drop(oldest.event, droppedFull)
			q.metrics.pending(q.client.receiver, -1)
		default: // run has taken it
		}
	}
}

// drop logs and counts an event that is not sent.
func (q *queue) drop(e Event, reason string) {
	q.metrics.drop(q.client.receiver, reason)
	q.log.Warn("notification dropped", "rollout", e.Subject, "type", e.Type, "id", e.ID, "reason", reason)
}

// run sends the events of the queue, one after another, until ctx ends.
func (q *queue) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-q.waiting:
			q.deliver(ctx, e)
		}
	}
}

// deliver sends an event until the receiver has answered, the event is too old,
// or ctx ends.
func (q *queue) deliver(ctx context.Context, e queued) {
	defer q.metrics.pending(q.client.receiver, -1)
	for backoff := firstBackoff; time.Since(e.since) <= mostAge; backoff = min(2*backoff, mostBackoff) {
		if err := q.send(ctx, e.event); err == nil || errors.Is(err, errRejected) {
			return
		}

		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff + rand.N(backoff/4)): // up to a quarter more, so that many controllers do not ask at the same time
		}
	}

	q.drop(e.event, droppedOld)
}

// send makes one attempt to send an event, and reports its outcome.
func (q *queue) send(ctx context.Context, e Event) error {
	body, err := e.encode()
	if err == nil {
		err = q.client.send(ctx, e.ID, body)
	}
	if ctx.Err() != nil {
		return ctx.Err() // no failure of the receiver
	}

	q.metrics.attempt(q.client.receiver, err)
	switch {
	case errors.Is(err, errRejected):
		q.log.Warn("notification rejected", "rollout", e.Subject, "type", e.Type, "id", e.ID, "err", err)
		q.metrics.drop(q.client.receiver, droppedRejected)
	case err != nil && !q.failing: // once, not at every attempt
		q.log.Warn("cannot send notifications; retrying", "rollout", e.Subject, "type", e.Type, "err", err)
	case err == nil && q.failing:
		q.log.Info("notifications are sent again")
	}

	q.failing = err != nil && !errors.Is(err, errRejected)

	return err
}

// Why an event was dropped, as a label.
const (
	droppedFull     = "queue full"
	droppedOld      = "too old"
	droppedRejected = "rejected"
)

// meters are the metrics of a Notifier.
type meters struct {
	attempts, dropped *prometheus.CounterVec
	queued            *prometheus.GaugeVec
}

// newMeters returns the metrics for these receivers, registered.
func newMeters(registry prometheus.Registerer, receivers []Receiver) (*meters, error) {
	m := &meters{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "evenkeel_notification_attempts_total", Help: "Attempts to send a notification, by receiver and result.",
		}, []string{"receiver", "result"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "evenkeel_notifications_dropped_total", Help: "Notifications that were not delivered and are not retried, by receiver and reason.",
		}, []string{"receiver", "reason"}),
		queued: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "evenkeel_notifications_pending", Help: "Notifications that wait to be delivered, by receiver.",
		}, []string{"receiver"}),
	}
	for _, r := range receivers { // begin at 0, so that the first one is an increase
		for _, result := range []string{"ok", "error"} {
			m.attempts.WithLabelValues(r.Name, result)
		}

		for _, reason := range []string{droppedFull, droppedOld, droppedRejected} {
			m.dropped.WithLabelValues(r.Name, reason)
		}

		m.queued.WithLabelValues(r.Name)
	}

	if err := errors.Join(registry.Register(m.attempts), registry.Register(m.dropped), registry.Register(m.queued)); err != nil {
		return nil, fmt.Errorf("register the metrics of notifications: %w", err)
	}

	return m, nil
}

func (m *meters) attempt(r Receiver, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}

	m.attempts.WithLabelValues(r.Name, result).Inc()
}

func (m *meters) drop(r Receiver, reason string) { m.dropped.WithLabelValues(r.Name, reason).Inc() }

func (m *meters) pending(r Receiver, more float64) { m.queued.WithLabelValues(r.Name).Add(more) }
