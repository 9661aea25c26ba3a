package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Report is what to tell about this node, all of it.
type Report struct {
	// NodeConfigUID is the NodeConfig that is answered; a new one is told everything anew. Empty if it is not known.
	NodeConfigUID types.UID
	// Status is what to write. The lastTransitionTime of its conditions is filled in: it moves when their status does.
	Status v1alpha1.NodeConfigStatus
	// Condition is ConfigOK of the Node, not written if it has no status. Its lastTransitionTime moves when anything in it does, as the proposal has it.
	Condition NodeCondition
	// KubeletStart is when the kubelet was started last: the condition's lastHeartbeatTime. A new one is written.
	KubeletStart time.Time
}

// NodeCondition is the Node's condition ConfigOK.
type NodeCondition struct {
	Status  metav1.ConditionStatus
	Reason  string
	Message string
}

// Reporter writes what it is told to the API, for as long as it takes. Its methods never block.
type Reporter struct {
	client    *Client
	node      string
	component string
	log       *slog.Logger
	status    statusWriter
	condition conditionWriter
	writers   [2]*writer
	events    eventQueue
}

// NewReporter returns a reporter that writes nothing until Run. Component names the agent in the events.
func NewReporter(client *Client, node, component string, log *slog.Logger) *Reporter {
	r := &Reporter{client: client, node: node, component: component, log: log}
	r.status = statusWriter{client: client, node: node, now: time.Now}
	r.condition = conditionWriter{client: client, node: node, now: time.Now}
	r.writers[0] = newWriter(client, log.With("what", "the status of the NodeConfig"), r.status.write)
	r.writers[1] = newWriter(client, log.With("what", "the condition of the Node"), r.condition.write)
	r.events.signal = make(chan struct{}, 1)
	return r
}

// SetClock has the times of conditions come from another clock than the machine's, as on a simulated node whose clock is
// off. It must be called before Run.
func (r *Reporter) SetClock(now func() time.Time) { r.status.now, r.condition.now = now, now }

// Report says how things are. Only the newest report counts; it is written if it says something new, apart from how
// far a trial is, and retried until it is written or there is a newer one.
func (r *Reporter) Report(report Report) {
	bounded := report
	bounded.Status = boundStatus(report.Status)
	bounded.Condition.Reason = shorten(report.Condition.Reason, mostMessage)
	bounded.Condition.Message = shorten(report.Condition.Message, mostMessage)
	for _, w := range r.writers {
		w.want(bounded)
	}
}

// Flush waits until what was reported last has been written, or ctx ends.
func (r *Reporter) Flush(ctx context.Context) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !r.writers[0].idle() || !r.writers[1].idle() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
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

// writer brings the newest report to one place.
type writer struct {
	client *Client
	log    *slog.Logger
	write  func(context.Context, Report) error

	mu     sync.Mutex
	newest *Report // nil: written
	signal chan struct{}
}

func newWriter(client *Client, log *slog.Logger, write func(context.Context, Report) error) *writer {
	return &writer{client: client, log: log, write: write, signal: make(chan struct{}, 1)}
}

func (w *writer) want(report Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	repeated := w.newest != nil && w.newest.saysTheSame(report)
	w.newest = &report
	if repeated {
		return // it is being tried already, at its own pace
	}
	signal(w.signal)
}

// idle says that everything has been written.
func (w *writer) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.newest == nil
}

func (w *writer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.signal:
		}
		retry, warned := retries(time.Minute), false
		for {
			w.mu.Lock()
			report := w.newest
			w.mu.Unlock()
			if report == nil {
				break
			}
			recovered := w.client.recovered()
			err := w.write(ctx, *report)
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				w.mu.Lock()
				if w.newest == report {
					w.newest = nil
				}
				w.mu.Unlock()
				continue
			}
			if !warned {
				w.log.Warn("cannot report yet, trying again", "err", err)
				warned = true
			}
			if !pause(ctx, polite(err, retry.Step()), recovered, w.signal) {
				return
			}
			afresh(&retry, time.Minute, recovered)
			w.mu.Lock()
			if !w.newest.saysTheSame(*report) {
				retry = retries(time.Minute)
			}
			w.mu.Unlock()
		}
	}
}

// saysTheSame compares two reports, leaving out how far a trial is.
func (r Report) saysTheSame(other Report) bool {
	return r.NodeConfigUID == other.NodeConfigUID && r.Condition == other.Condition && r.KubeletStart.Equal(other.KubeletStart) &&
		saysTheSame(r.Status, other.Status)
}

// statusWriter writes NodeConfig.status. It is used by one goroutine.
type statusWriter struct {
	client *Client
	node   string
	uid    types.UID // of the object that has is about; empty: not known
	has    v1alpha1.NodeConfigStatus
	// refused is what the API server did not take, if has is only the essence of it.
	refused *v1alpha1.NodeConfigStatus
	now     func() time.Time
}

var errOtherObject = errors.New("the NodeConfig is not yet, or not any more, the one that the status answers")

func (w *statusWriter) write(ctx context.Context, r Report) error {
	if w.uid == "" || r.NodeConfigUID != "" && r.NodeConfigUID != w.uid {
		nc := &v1alpha1.NodeConfig{}
		if _, err := w.client.do(ctx, request{verb: "GET", gv: v1alpha1.GroupVersion, resource: "nodeconfigs", name: w.node}, nc); err != nil {
			return fmt.Errorf("read NodeConfig %s: %w", w.node, err)
		}
		w.uid, w.has, w.refused = nc.UID, nc.Status, nil
		if r.NodeConfigUID != "" && r.NodeConfigUID != w.uid {
			return errOtherObject
		}
	}
	status := *r.Status.DeepCopy()
	now := metav1.NewTime(w.now())
	for i := range status.Conditions {
		c := &status.Conditions[i]
		c.LastTransitionTime = now
		if old := meta.FindStatusCondition(w.has.Conditions, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	if saysTheSame(status, w.has) || w.refused != nil && saysTheSame(status, *w.refused) {
		return nil
	}
	full := status
	err := w.patch(ctx, status)
	refused := apierrors.IsInvalid(err)
	if refused { // by rules that this agent does not know: a node that says little is better than a silent one
		status = essence(status, err)
		if w.patch(ctx, status) == nil {
			err = nil
		}
	}
	if err != nil {
		w.uid = "" // look again, whatever it was
		return fmt.Errorf("write the status of NodeConfig %s: %w", w.node, err)
	}
	w.has, w.refused = status, nil
	if refused {
		w.refused = &full
	}
	return nil
}

func (w *statusWriter) patch(ctx context.Context, status v1alpha1.NodeConfigStatus) error {
	_, err := w.client.do(ctx, request{
		verb: "PATCH", gv: v1alpha1.GroupVersion, resource: "nodeconfigs", name: w.node, subresource: "status",
		contentType: string(types.JSONPatchType), body: []map[string]any{
			{"op": "test", "path": "/metadata/uid", "value": w.uid},
			{"op": "add", "path": "/status", "value": status},
		},
	}, nil)
	return err
}

// saysTheSame compares two statuses as they are written, leaving out how far a trial is and how many pods there are.
func saysTheSame(a, b v1alpha1.NodeConfigStatus) bool {
	plain := func(s v1alpha1.NodeConfigStatus) string {
		s.WorkloadPods = nil
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
	return plain(a) == plain(b)
}

// conditionWriter writes the Node's condition. It is used by one goroutine.
type conditionWriter struct {
	client *Client
	node   string
	known  bool
	has    nodeCondition
	now    func() time.Time
}

func (w *conditionWriter) write(ctx context.Context, r Report) error {
	if r.Condition.Status == "" {
		return nil
	}
	beat := metav1.NewTime(r.KubeletStart.Truncate(time.Second))
	if !w.known {
		n := &node{}
		if _, err := w.client.do(ctx, request{verb: "GET", gv: coreV1, resource: "nodes", name: w.node}, n); err != nil {
			return fmt.Errorf("read Node %s: %w", w.node, err)
		}
		w.has = nodeCondition{}
		if i := slices.IndexFunc(n.Status.Conditions, func(c nodeCondition) bool { return c.Type == v1alpha1.ConditionConfigOK }); i >= 0 {
			w.has = n.Status.Conditions[i]
		}
		w.known = true
	}
	c := nodeCondition{
		Type: v1alpha1.ConditionConfigOK, Status: string(r.Condition.Status), Reason: r.Condition.Reason, Message: r.Condition.Message,
		LastHeartbeatTime: beat, LastTransitionTime: w.has.LastTransitionTime,
	}
	if c.Status != w.has.Status || c.Reason != w.has.Reason || c.Message != w.has.Message {
		c.LastTransitionTime = metav1.NewTime(w.now())
	} else if beat.Equal(&w.has.LastHeartbeatTime) {
		return nil
	}
	patch := map[string]any{"status": map[string]any{"conditions": []nodeCondition{c}}}
	_, err := w.client.do(ctx, request{
		verb: "PATCH", gv: coreV1, resource: "nodes", name: w.node, subresource: "status",
		contentType: string(types.StrategicMergePatchType), body: patch,
	}, nil)
	if err != nil {
		w.known = false
		return fmt.Errorf("write condition %s of Node %s: %w", v1alpha1.ConditionConfigOK, w.node, err)
	}
	w.has = c
	return nil
}
