// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

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

func (m *meters) pending(r Receiver, n int) { m.queued.WithLabelValues(r.Name).Set(float64(n)) }
