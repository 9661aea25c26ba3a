// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// Report is the complete state that a node reports.
type Report struct {
	// NodeConfigUID is the NodeConfig to which the status belongs; a new
	// NodeConfig receives the whole status. Empty if it is not known.
	NodeConfigUID types.UID
	// Status is written to the NodeConfig. The Reporter sets the
	// lastTransitionTime of its conditions, which moves when their status
	// changes.
	Status v1alpha1.NodeConfigStatus
	// Condition is ConfigOK of the Node; not written if its status is empty.
	// Its lastTransitionTime moves with any change, as the proposal says.
	Condition metav1.Condition
	// Configured is the condition evenkeel.dev/Configured of the Node, written
	// together with ConfigOK; not written if its status is empty. Its
	// lastTransitionTime moves with its status.
	Configured metav1.Condition
	// KubeletStart is the last start of the kubelet, written as the
	// lastHeartbeatTime of the conditions.
	KubeletStart time.Time
}

// Reporter writes reports and Events to the API, and retries until it succeeds.
// Its methods do not block, except Run and Flush.
type Reporter struct {
	client    *Client
	node      string
	component string
	log       *slog.Logger
	status    statusWriter
	condition conditionWriter
	writers   [2]*writer
	events    chan queuedEvent // not written yet, the oldest first
	serial    atomic.Int64     // of the last event
	hide      func(string) string
}

// NewReporter returns a reporter that writes nothing until Run. component names
// the agent in Events.
func NewReporter(client *Client, node, component string, log *slog.Logger) *Reporter {
	r := &Reporter{client: client, node: node, component: component, log: log, events: make(chan queuedEvent, maxEvents),
		hide: payload.MaskText}
	r.status = statusWriter{client: client, node: node, now: time.Now, echo: echo{delay: echoDelay, interval: repairInterval, repair: r.again}}
	r.condition = conditionWriter{client: client, node: node, now: time.Now}
	r.writers[0] = newWriter(client, log.With("what", "the status of the NodeConfig"), r.status.write, r.status.forget)
	r.writers[1] = newWriter(client, log.With("what", "the condition of the Node"), r.condition.write, r.condition.forget)

	return r
}

// again writes the last report again.
func (r *Reporter) again() {
	for _, w := range r.writers {
		w.again()
	}
}

// SetClock sets another clock for the times of conditions, as on a simulated
// node whose clock is wrong. Call it before Run.
func (r *Reporter) SetClock(now func() time.Time) { r.status.now, r.condition.now = now, now }

// Hide sets a function that removes secrets from every text that is reported:
// texts quote errors of the kubelet and of the payload. Call it before Run.
// Until then it is payload.MaskText.
func (r *Reporter) Hide(hide func(string) string) { r.hide = hide }

// Report sets the state to write. Only the newest report counts. It is written
// if it differs from the last one in more than the progress of a trial, or if
// the trial has reached another tenth of its duration, and retried until it is
// written or replaced.
func (r *Reporter) Report(report Report) {
	bounded := report
	bounded.Status = boundStatus(report.Status, r.hide)
	for _, text := range []*string{&bounded.Condition.Reason, &bounded.Condition.Message, &bounded.Configured.Message} {
		*text = shorten(r.hide(*text), maxMessage)
	}

	for _, w := range r.writers {
		w.set(bounded)
	}
}

// Flush waits until the last report has been written, or ctx ends.
func (r *Reporter) Flush(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) {
		return r.writers[0].idle() && r.writers[1].idle(), nil
	})
}

// Run writes until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, w := range r.writers {
		all.Go(func() { w.run(ctx) })
	}

	r.writeEvents(ctx)
}

// writer writes the newest report to one object.
type writer struct {
	client *Client
	log    *slog.Logger
	write  func(context.Context, Report) error
	forget func() // what was written: the next write reads it

	mu      sync.Mutex
	newest  *Report
	pending bool // newest is not written
	stale   bool // the API server has something else than was written
	signal  chan struct{}
}

func newWriter(client *Client, log *slog.Logger, write func(context.Context, Report) error, forget func()) *writer {
	return &writer{client: client, log: log, write: write, forget: forget, signal: make(chan struct{}, 1)}
}

func (w *writer) set(report Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	repeated := w.pending && w.newest.equal(report)
	w.newest, w.pending = &report, true
	if repeated {
		return // a retry is under way, with its own backoff
	}

	signal(w.signal)
}

// again reads the object and, if it differs from the newest report, writes that
// again.
func (w *writer) again() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending, w.stale = w.newest != nil, true
	signal(w.signal)
}

// idle reports whether everything has been written.
func (w *writer) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.pending
}

func (w *writer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.signal:
		}

		retry, warned := newRetry(w.client, time.Minute), false
		retry.pause = reportPause // what the sources read first may change the report
		for {
			w.mu.Lock()
			report, pending := w.newest, w.pending
			if w.stale {
				w.stale = false
				w.forget()
			}

			w.mu.Unlock()
			if !pending {
				break
			}

			err := w.write(ctx, *report)
			if ctx.Err() != nil {
				return
			}

			if err == nil {
				w.mu.Lock()
				w.pending = w.newest != report || w.stale
				w.mu.Unlock()
				continue
			}

			if !warned {
				w.log.Warn("cannot report, retrying", "err", err)
				warned = true
			}

			if !retry.wait(ctx, err, w.signal) {
				return
			}

			w.mu.Lock()
			if !w.newest.equal(*report) {
				retry.reset()
			}

			w.mu.Unlock()
		}
	}
}

// equal reports whether two reports are equal, except for the progress of a
// trial.
func (r Report) equal(other Report) bool {
	return r.NodeConfigUID == other.NodeConfigUID && r.Condition == other.Condition && r.Configured == other.Configured &&
		r.KubeletStart.Equal(other.KubeletStart) &&
		equalStatus(r.Status, other.Status)
}

// statusWriter writes NodeConfig.status. Only one goroutine uses it.
type statusWriter struct {
	client  *Client
	node    string
	uid     types.UID // of the object that written belongs to; empty: not known
	written v1alpha1.NodeConfigStatus
	// refused is the status that the API server refused, if written is its
	// minimalStatus.
	refused *v1alpha1.NodeConfigStatus
	at      time.Time // of the last write by this process
	now     func() time.Time
	echo    echo
}

var errOtherObject = errors.New("the NodeConfig is not the one that the status belongs to")

func (w *statusWriter) forget() { w.uid = "" }

func (w *statusWriter) write(ctx context.Context, r Report) error {
	if w.uid == "" || r.NodeConfigUID != "" && r.NodeConfigUID != w.uid {
		nc := &v1alpha1.NodeConfig{}
		if _, err := w.client.do(ctx, request{verb: "GET", gv: v1alpha1.GroupVersion, resource: "nodeconfigs", name: w.node}, nc); err != nil {
			return fmt.Errorf("read NodeConfig %s: %w", w.node, err)
		}

		w.uid, w.written, w.refused = nc.UID, nc.Status, nil
		w.echo.wrote(nc.UID, nc.Status)
		if r.NodeConfigUID != "" && r.NodeConfigUID != w.uid {
			return errOtherObject
		}
	}

	status := *r.Status.DeepCopy()
	keepNoDrift(&status, w.written)
	now := metav1.NewTime(boundTime(w.now()))
	for i := range status.Conditions {
		c := &status.Conditions[i]
		c.LastTransitionTime = now
		if old := meta.FindStatusCondition(w.written.Conditions, c.Type); old != nil && old.Status == c.Status &&
			carries(old.LastTransitionTime) {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}

	unready := status.PodsUnreadyOnRestart
	for _, last := range []*v1alpha1.NodeConfigStatus{&w.written, w.refused} {
		if last != nil && equalStatus(status, *last) && !progressed(status.Trial, last.Trial) &&
			(unready == nil || reflect.DeepEqual(unready, last.PodsUnreadyOnRestart) || now.Sub(w.at) < countInterval) {
			return nil
		}
	}

	full := status
	err := w.patch(ctx, status)
	refused := apierrors.IsInvalid(err)
	if refused { // by validation that this agent does not know: write at least the minimum
		status = minimalStatus(status, err)
		if w.patch(ctx, status) == nil {
			err = nil
		}
	}

	if err != nil {
		w.forget()
		return fmt.Errorf("write the status of NodeConfig %s: %w", w.node, err)
	}

	w.written, w.refused, w.at = status, nil, now.Time
	if refused {
		w.refused = &full
	}

	return nil
}

// keepNoDrift keeps the written answer that nothing has drifted until the agent
// has compared the kubelet that it has started: each start would cost two more
// writes otherwise. Drift that was written is removed, because a start ends it.
func keepNoDrift(status *v1alpha1.NodeConfigStatus, written v1alpha1.NodeConfigStatus) {
	c := meta.FindStatusCondition(written.Conditions, v1alpha1.ConditionDrifted)
	if status.Drift != nil || written.Drift == nil || c == nil || c.Status != metav1.ConditionFalse {
		return
	}

	kept := *c
	kept.ObservedGeneration = status.ObservedGeneration
	status.Drift, status.Conditions = written.Drift.DeepCopy(), append(status.Conditions, kept)
}

func (w *statusWriter) patch(ctx context.Context, status v1alpha1.NodeConfigStatus) error {
	nc := &v1alpha1.NodeConfig{}
	_, err := w.client.do(ctx, request{
		verb: "PATCH", gv: v1alpha1.GroupVersion, resource: "nodeconfigs", name: w.node, subresource: "status",
		contentType: string(types.JSONPatchType), body: []map[string]any{
			{"op": "test", "path": "/metadata/uid", "value": w.uid},
			{"op": "add", "path": "/status", "value": status},
		},
	}, nc)
	if err == nil {
		w.echo.wrote(nc.UID, nc.Status)
	}

	return err
}

// countInterval is the shortest time between two writes of which the second
// only changes status.podsUnreadyOnRestart.
const countInterval = 30 * time.Minute

// equalStatus reports whether two statuses are equal as JSON, except for the
// progress of a trial and the numbers of pods.
func equalStatus(a, b v1alpha1.NodeConfigStatus) bool {
	plain := func(s v1alpha1.NodeConfigStatus) string {
		s.WorkloadPods, s.PodsUnreadyOnRestart = nil, nil
		if s.Trial != nil {
			t := *s.Trial
			t.HealthySeconds, t.Restarts = 0, 0
			s.Trial = &t
		}

		raw, err := json.Marshal(s)
		if err != nil {
			return err.Error() // a status can always be encoded
		}

		return string(raw)
	}
	return reflect.DeepEqual(a, b) || plain(a) == plain(b)
}

// progressed reports whether the kubelet was healthy in a trial for the first
// time, or the trial has reached another tenth of its duration, since it was
// written. The controller removes the startup taint when the kubelet is
// healthy.
func progressed(now, written *v1alpha1.Trial) bool {
	return now != nil && written != nil && now.DurationSeconds > 0 &&
		(now.HealthySeconds > 0 && written.HealthySeconds == 0 ||
			now.HealthySeconds*10/now.DurationSeconds > written.HealthySeconds*10/now.DurationSeconds)
}

// carries reports whether a time that was read can be written again.
func carries(t metav1.Time) bool { return !t.IsZero() && boundTime(t.Time) == t.Time }

// conditionWriter writes the conditions of the Node. Only one goroutine uses
// it.
type conditionWriter struct {
	client  *Client
	node    string
	written map[string]nodeCondition // by type; nil: not known
	now     func() time.Time
}

func (w *conditionWriter) forget() { w.written = nil }

func (w *conditionWriter) write(ctx context.Context, r Report) error {
	if r.Condition.Status == "" {
		return nil
	}

	heartbeat, now := metav1.NewTime(boundTime(r.KubeletStart.Truncate(time.Second))), metav1.NewTime(boundTime(w.now()))
	if w.written == nil {
		n := &node{}
		if _, err := w.client.do(ctx, request{verb: "GET", gv: coreV1, resource: "nodes", name: w.node}, n); err != nil {
			return fmt.Errorf("read Node %s: %w", w.node, err)
		}

		w.written = map[string]nodeCondition{}
		for _, c := range n.Status.Conditions {
			w.written[c.Type] = c
		}
	}

	ok, okChanged := w.next(v1alpha1.ConditionConfigOK, r.Condition, heartbeat)
	if okChanged {
		ok.LastTransitionTime = now
	}

	conditions, changed := []nodeCondition{ok}, okChanged || !heartbeat.Equal(new(w.written[ok.Type].LastHeartbeatTime))
	if r.Configured.Status != "" {
		c, differs := w.next(v1alpha1.ConditionNodeConfigured, r.Configured, heartbeat)
		if was := w.written[c.Type]; c.Status != was.Status || !carries(was.LastTransitionTime) {
			c.LastTransitionTime = now
		}

		conditions, changed = append(conditions, c), changed || differs
	}

	if !changed {
		return nil
	}

	patch := map[string]any{"status": map[string]any{"conditions": conditions}}
	_, err := w.client.do(ctx, request{
		verb: "PATCH", gv: coreV1, resource: "nodes", name: w.node, subresource: "status",
		contentType: string(types.StrategicMergePatchType), body: patch,
	}, nil)
	if err != nil {
		w.forget()
		return fmt.Errorf("write the conditions of Node %s: %w", w.node, err)
	}

	for _, c := range conditions {
		w.written[c.Type] = c
	}

	return nil
}

// next returns a condition with its last transition time, and whether it
// differs from what was written, or has a time that the agent cannot write
// again.
func (w *conditionWriter) next(kind string, c metav1.Condition, heartbeat metav1.Time) (next nodeCondition, differs bool) {
	was := w.written[kind]
	next = nodeCondition{
		Type: kind, Status: string(c.Status), Reason: c.Reason, Message: c.Message,
		LastHeartbeatTime: heartbeat, LastTransitionTime: was.LastTransitionTime,
	}

	return next, next.Status != was.Status || next.Reason != was.Reason || next.Message != was.Message || !carries(was.LastTransitionTime)
}
