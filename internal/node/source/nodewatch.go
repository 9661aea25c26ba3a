// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// NodeState is the state of a node in the API.
type NodeState struct {
	// Reachable means that the API server answers requests with the credentials
	// of this node. If it does not, Cause says why, and the other fields keep
	// their last values.
	Reachable bool
	Cause     string
	// Complete means that the Node, its Lease and its pods have all been read.
	Complete bool

	Exists        bool // the Node object exists
	Ready         bool
	Unschedulable bool
	Pressure      []string // pressure conditions with status True, sorted
	// Labels and Taints matter to the admission of pods: a change of them leads
	// to another decision about a refused restart.
	Labels map[string]string
	Taints []corev1.Taint
	// LeaseRenewed is the renewTime of the Lease of the node, empty if there is
	// none. It comes from the clock of that machine: compare it only with an
	// earlier value.
	LeaseRenewed string
	Pods         []Pod // sorted by UID
}

// Pod is a pod that is bound to the node.
type Pod struct {
	UID             types.UID
	Namespace, Name string
	Phase           string
	Reason, Message string // of the status
	// Disruption and DisruptionMessage are those of the condition
	// DisruptionTarget, empty if it is not True. The kubelet keeps them when
	// the final states of the containers replace Reason and Message.
	Disruption, DisruptionMessage string
	OwnerKind                     string // of the controlling owner, empty if there is none
	Static                        bool   // a mirror pod
	Deleting                      bool
	RestartsAlways                bool // restartPolicy: Always, and no containers with other policies let the pod end by itself
	LimitsStorage                 bool // an emptyDir or a container has a limit of local storage: the kubelet evicts the pod that exceeds it
	Ready                         bool
	Probed                        bool      // a container or a sidecar has a readiness or startup probe
	StartProbe                    bool      // evenkeel created it to see whether the node can start pods
	Owner                         types.UID // of the controlling owner, empty if there is none or it is the Node
	// Started is when a container of the pod started last, as the runtime said;
	// empty: none has started. Compare it with an earlier value only. Waiting
	// means that a container has not started, or has to be started again.
	Started string
	Waiting bool
}

// NodeWatch watches a node, its Lease and its pods, between Start and Stop,
// which one goroutine calls.
type NodeWatch struct {
	client  *Client
	node    string
	changed chan struct{}

	stop    context.CancelFunc // nil: it is stopped
	running sync.WaitGroup
	renewal chan struct{} // Start was called: expect a renewal of the Lease

	mu     sync.Mutex
	state  NodeState
	pods   map[types.UID]Pod
	synced map[string]bool
}

// NewNodeWatch returns a stopped watch.
func NewNodeWatch(client *Client, node string) *NodeWatch {
	return &NodeWatch{client: client, node: node, changed: make(chan struct{}, 1), renewal: make(chan struct{}, 1)}
}

// Changed returns a channel for one reader, which receives when Current has
// changed. Several changes may arrive as one.
func (w *NodeWatch) Changed() <-chan struct{} { return w.changed }

// Current returns the last known state. It is zero while the watch is stopped.
func (w *NodeWatch) Current() NodeState {
	w.mu.Lock()
	defer w.mu.Unlock()
	state := w.state
	for _, p := range w.pods {
		state.Pods = append(state.Pods, p)
	}

	sortPods(state.Pods)

	return state
}

// Start starts the watch, until ctx ends or Stop. Call it after each start of
// the kubelet, even if the watch runs: it then reads the Lease often until the
// kubelet has renewed it.
func (w *NodeWatch) Start(ctx context.Context) {
	signal(w.renewal)
	if w.stop != nil {
		return
	}

	w.mu.Lock()
	w.state, w.pods, w.synced = NodeState{}, map[types.UID]Pod{}, map[string]bool{}
	w.mu.Unlock()
	ctx, w.stop = context.WithCancel(ctx)
	w.running.Go(func() { w.run(ctx) })
}

// Stop stops the watch, and returns when it has ended.
func (w *NodeWatch) Stop() {
	if w.stop == nil {
		return
	}

	w.stop()
	w.running.Wait()
	w.stop = nil
	w.mu.Lock()
	w.state, w.pods, w.synced = NodeState{}, nil, nil
	w.mu.Unlock()
}

func (w *NodeWatch) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	nodes := watchObject(watcher{
		client: w.client, gv: coreV1, resource: "nodes", maxDelay: 10 * time.Second,
		fail: func(err error) { w.record("node", err, nil) },
	}, w.node, func(n *node) { w.record("node", nil, func() { w.state.setNode(n) }) })
	pods := watcher{
		client: w.client, gv: coreV1, resource: "pods", maxDelay: 10 * time.Second,
		fields: fields.OneTermEqualSelector("spec.nodeName", w.node).String(),
		replace: func(objects []runtime.Object) {
			w.record("pods", nil, func() {
				clear(w.pods)
				for _, o := range objects {
					if p, ok := o.(*pod); ok {
						w.pods[p.UID] = podOf(p)
					}
				}
			})
		},
		apply: func(change watch.EventType, object runtime.Object) {
			p, ok := object.(*pod)
			if !ok {
				return
			}

			w.record("pods", nil, func() {
				delete(w.pods, p.UID)
				if change != watch.Deleted {
					w.pods[p.UID] = podOf(p)
				}
			})
		},
		fail: func(err error) { w.record("pods", err, nil) },
	}
	all.Go(func() { nodes.run(ctx) })
	all.Go(func() { pods.run(ctx) })
	w.pollLease(ctx)
}

// The intervals between reads of the Lease: a node may get its Lease, but not
// watch it. Kubelets renew it every 10 s, and when they start.
const (
	minLeaseExpectedInterval = 250 * time.Millisecond // grows while the kubelet that starts does not renew it
	maxLeaseExpectedInterval = 2 * time.Second
	leaseInterval            = time.Minute // no decision depends on it
)

func (w *NodeWatch) pollLease(ctx context.Context) {
	var since string
	expected, known := false, false
	soon := maxLeaseExpectedInterval
	for interval := leaseInterval; ; { // Start has signaled a renewal, so the first read is now
		select {
		case <-w.renewal:
			expected, known, soon = true, false, minLeaseExpectedInterval
		case <-time.After(interval):
		case <-ctx.Done():
			return
		}

		renewed, err := w.client.lease(ctx, w.node)
		if ctx.Err() != nil {
			return
		}

		w.record("lease", err, func() { w.state.LeaseRenewed = renewed })
		if err == nil {
			if !known {
				since, known = renewed, true
			}

			expected = expected && renewed == since
		}

		interval = leaseInterval
		if expected || err != nil {
			interval, soon = soon, min(soon*3/2, maxLeaseExpectedInterval)
		}
	}
}

// record stores the result of one of the three reads.
func (w *NodeWatch) record(what string, err error, take func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.state
	w.state.Reachable = err == nil
	w.state.Cause = ""
	if err != nil {
		w.state.Cause = describeError(err, "the state of node "+w.node, "nodes have this right by default; check the authorizers and RBAC")
	} else {
		take()
		w.synced[what] = true
		w.state.Complete = len(w.synced) == 3
	}

	if what != "pods" && reflect.DeepEqual(before, w.state) {
		return
	}

	signal(w.changed)
}

// Snapshot reads the state once, whether or not the watch runs.
func (w *NodeWatch) Snapshot(ctx context.Context) NodeState { return w.client.Snapshot(ctx, w.node) }

// Snapshot reads once what NodeWatch watches. If it is not Reachable, the
// result has what was read before the failure.
func (c *Client) Snapshot(ctx context.Context, name string) NodeState {
	state := NodeState{}
	fail := func(err error) NodeState {
		state.Cause = describeError(err, "the state of node "+name, "nodes have this right by default; check the authorizers and RBAC")
		return state
	}
	n := &node{}
	switch _, err := c.do(ctx, request{verb: "GET", gv: coreV1, resource: "nodes", name: name}, n); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fail(err)
	default:
		state.setNode(n)
	}

	var err error
	if state.LeaseRenewed, err = c.lease(ctx, name); err != nil {
		return fail(err)
	}

	query := map[string]string{"fieldSelector": fields.OneTermEqualSelector("spec.nodeName", name).String(), "limit": "50"}
	for more := true; more; {
		pods := &list[pod]{}
		if _, err := c.do(ctx, request{verb: "GET", gv: coreV1, resource: "pods", query: query}, pods); err != nil {
			return fail(err)
		}

		for i := range pods.Items {
			state.Pods = append(state.Pods, podOf(&pods.Items[i]))
		}

		query["continue"] = pods.Continue
		more = pods.Continue != ""
	}

	sortPods(state.Pods)
	state.Reachable, state.Complete = true, true

	return state
}

// NodeAnnotation returns the value of an annotation of a Node, empty if it does
// not exist.
func (c *Client) NodeAnnotation(ctx context.Context, name, key string) (string, error) {
	n := &node{}
	_, err := c.do(ctx, request{verb: "GET", gv: coreV1, resource: "nodes", name: name}, n)
	return n.Annotations[key], err
}

// lease returns the renewTime of the Lease of a node, empty if there is none.
func (c *Client) lease(ctx context.Context, name string) (string, error) {
	l := &lease{}
	_, err := c.do(ctx, request{verb: "GET", gv: leaseV1, namespace: "kube-node-lease", resource: "leases", name: name}, l)
	if apierrors.IsNotFound(err) {
		return "", nil
	}

	return l.Spec.RenewTime, err
}

func (s *NodeState) setNode(n *node) {
	s.Exists, s.Ready, s.Unschedulable, s.Pressure, s.Labels, s.Taints = n != nil, false, false, nil, nil, nil
	if n == nil {
		return
	}

	s.Unschedulable, s.Labels, s.Taints = n.Spec.Unschedulable, n.Labels, n.Spec.Taints
	for _, c := range n.Status.Conditions {
		switch {
		case c.Status != "True":
		case c.Type == "Ready":
			s.Ready = true
		case strings.HasSuffix(c.Type, "Pressure"):
			s.Pressure = append(s.Pressure, c.Type)
		}
	}

	slices.Sort(s.Pressure)
}

func podOf(p *pod) Pod {
	out := Pod{
		UID: p.UID, Namespace: p.Namespace, Name: p.Name,
		Phase: p.Status.Phase, Reason: p.Status.Reason, Message: p.Status.Message,
		Deleting: p.DeletionTimestamp != nil,
	}
	if owner := metav1.GetControllerOfNoCopy(p); owner != nil {
		if out.OwnerKind = owner.Kind; owner.Kind != "Node" { // the owner of all static pods
			out.Owner = owner.UID
		}
	}

	out.StartProbe = p.Namespace == v1alpha1.SystemNamespace && p.Labels[v1alpha1.LabelStartProbe] != ""
	out.Waiting = len(p.Status.ContainerStatuses) == 0
	for _, c := range slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses) {
		out.Waiting = out.Waiting || c.State.Waiting != nil
		for _, s := range []*containerStart{c.State.Running, c.State.Terminated, c.LastState.Terminated} {
			// the runtime also reports a container that it could not start as
			// ended, at the beginning of the epoch
			if s != nil && s.Reason != "StartError" && s.Reason != "ContainerCannotRun" && !strings.HasPrefix(s.StartedAt, "1970-") {
				out.Started = max(out.Started, s.StartedAt)
			}
		}
	}

	_, out.Static = p.Annotations["kubernetes.io/config.mirror"]
	for _, c := range p.Status.Conditions {
		switch {
		case c.Status != "True":
		case c.Type == "Ready":
			out.Ready = true
		case c.Type == string(corev1.DisruptionTarget):
			out.Disruption, out.DisruptionMessage = c.Reason, c.Message
		}
	}

	ends := func(c container) bool { return c.RestartPolicy != "" && c.RestartPolicy != "Always" }
	out.RestartsAlways = p.Spec.RestartPolicy == "Always" && !slices.ContainsFunc(p.Spec.InitContainers, ends) &&
		slices.ContainsFunc(p.Spec.Containers, func(c container) bool { return !ends(c) })
	limited := func(c container) bool { return c.Resources.Limits["ephemeral-storage"] != nil }
	out.LimitsStorage = slices.ContainsFunc(p.Spec.Containers, limited) || slices.ContainsFunc(p.Spec.InitContainers, limited) ||
		slices.ContainsFunc(p.Spec.Volumes, func(v volume) bool { return v.EmptyDir["sizeLimit"] != nil })
	probed := func(c container) bool { return c.ReadinessProbe != nil || c.StartupProbe != nil }
	// only sidecars may have probes
	out.Probed = slices.ContainsFunc(p.Spec.Containers, probed) || slices.ContainsFunc(p.Spec.InitContainers, probed)

	return out
}

func sortPods(pods []Pod) {
	slices.SortFunc(pods, func(a, b Pod) int { return cmp.Compare(a.UID, b.UID) })
}

// podsPerPage limits how many whole pods one answer contains, so that their
// encoded form does not take much memory.
const podsPerPage = 250

// Bound reads the Node, nil if it does not exist, and all pods that are bound
// to it, without their managed fields and annotations, except the annotation
// that marks a mirror pod.
func (w *NodeWatch) Bound(ctx context.Context) (*corev1.Node, []*corev1.Pod, error) {
	return w.client.bound(ctx, w.node)
}

func (c *Client) bound(ctx context.Context, name string) (*corev1.Node, []*corev1.Pod, error) {
	explain := func(err error) error {
		return errors.New(describeError(err, "the pods of node "+name, "nodes have this right by default; check the authorizers and RBAC"))
	}
	n := &corev1.Node{}
	read := make(chan error, 1)
	go func() { read <- c.whole(ctx, request{verb: "GET", gv: coreV1, resource: "nodes", name: name}, n) }()
	var pods []*corev1.Pod
	query := map[string]string{"fieldSelector": fields.OneTermEqualSelector("spec.nodeName", name).String(),
		"limit": strconv.Itoa(podsPerPage)}
	for more := true; more; {
		page := &corev1.PodList{}
		if err := c.whole(ctx, request{verb: "GET", gv: coreV1, resource: "pods", query: query}, page); err != nil {
			<-read
			return nil, nil, explain(err)
		}

		for i := range page.Items {
			p := page.Items[i]
			mirror, isMirror := p.Annotations[corev1.MirrorPodAnnotationKey]
			p.ManagedFields, p.Annotations = nil, nil
			if isMirror {
				p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: mirror}
			}

			pods = append(pods, &p)
		}

		query["continue"] = page.Continue
		more = page.Continue != ""
	}

	err := <-read
	if apierrors.IsNotFound(err) {
		return nil, pods, nil
	}
	if err != nil {
		return nil, nil, explain(err)
	}

	return n, pods, nil
}

// whole makes a request for objects with all their fields, in the encoding that
// is cheapest to decode.
func (c *Client) whole(ctx context.Context, r request, into runtime.Object) error {
	r.accept = runtime.ContentTypeProtobuf
	raw, err := c.do(ctx, r, nil)
	if err != nil {
		return err
	}
	if err := runtime.DecodeInto(wholeCodecs.UniversalDeserializer(), raw, into); err != nil {
		return fmt.Errorf("decode the answer: %w", err)
	}

	return nil
}

// wholeCodecs decodes complete objects.
var wholeCodecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(coreV1, &corev1.Node{}, &corev1.Pod{}, &corev1.PodList{})
	return serializer.NewCodecFactory(scheme)
}()
