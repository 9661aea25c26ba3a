package source

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// NodeState is how the API server sees a node.
type NodeState struct {
	// Reachable says that the API server answers requests with this node's credentials. While it does not, the rest is
	// as it was last seen, and Cause says why.
	Reachable bool
	Cause     string
	// Complete says that the node, its Lease and its pods have all been looked at.
	Complete bool

	Exists        bool // the Node is registered
	Ready         bool
	Unschedulable bool
	Pressure      []string // the pressure conditions that are True, sorted
	// AllocatablePods is how many pods the Node says that its kubelet takes; 0 if it does not say.
	AllocatablePods int64
	// LeaseRenewed is the renewTime of the node's Lease, empty if there is none. It is that machine's clock: compare it
	// with what it was, not with a time.
	LeaseRenewed string
	Pods         []Pod // sorted by UID
}

// Pod is a pod that is bound to the node.
type Pod struct {
	UID             types.UID
	Namespace, Name string
	Phase           string
	Reason, Message string // of the status
	OwnerKind       string // of the controller, empty if there is none
	Static          bool   // the mirror of a pod that the kubelet has from elsewhere
	Deleting        bool
	RestartsAlways  bool // it has no end of its own
}

// NodeWatch watches a node, its Lease and its pods, while it is on.
type NodeWatch struct {
	client  *Client
	node    string
	changed chan struct{}

	control sync.Mutex // of Start and Stop
	stop    context.CancelFunc
	done    chan struct{}
	renewal chan struct{} // a new Lease is expected

	mu     sync.Mutex
	state  NodeState
	pods   map[types.UID]Pod
	looked map[string]bool
}

// NewNodeWatch returns a watch that is off.
func NewNodeWatch(client *Client, node string) *NodeWatch {
	return &NodeWatch{client: client, node: node, changed: make(chan struct{}, 1), renewal: make(chan struct{}, 1)}
}

// Changed returns the channel that is sent to, once for any number of changes, when Current has changed. It has one
// reader.
func (w *NodeWatch) Changed() <-chan struct{} { return w.changed }

// Current returns what was seen last. It is zero while the watch is off.
func (w *NodeWatch) Current() NodeState {
	w.mu.Lock()
	defer w.mu.Unlock()
	state := w.state
	state.Pressure = slices.Clone(state.Pressure)
	for _, p := range w.pods {
		state.Pods = append(state.Pods, p)
	}
	sortPods(state.Pods)
	return state
}

// Start turns the watch on, until ctx ends or Stop. Call it whenever the kubelet has been started, also while it is on:
// the Lease is then looked at often until it has been renewed.
func (w *NodeWatch) Start(ctx context.Context) {
	w.control.Lock()
	defer w.control.Unlock()
	signal(w.renewal)
	if w.stop != nil {
		select {
		case <-w.done: // its context has ended
		default:
			return
		}
	}
	w.mu.Lock()
	w.state, w.pods, w.looked = NodeState{}, map[types.UID]Pod{}, map[string]bool{}
	w.mu.Unlock()
	ctx, w.stop = context.WithCancel(ctx)
	done := make(chan struct{})
	w.done = done
	go func() {
		defer close(done)
		w.run(ctx)
	}()
}

// Stop turns the watch off, and returns when it is.
func (w *NodeWatch) Stop() {
	w.control.Lock()
	defer w.control.Unlock()
	if w.stop == nil {
		return
	}
	w.stop()
	<-w.done
	w.stop = nil
	w.mu.Lock()
	w.state, w.pods, w.looked = NodeState{}, nil, nil
	w.mu.Unlock()
}

func (w *NodeWatch) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	nodes := single(feed{
		client: w.client, gv: coreV1, resource: "nodes", slowest: 10 * time.Second,
		fail: func(err error) { w.see("node", err, nil) },
	}, w.node, func(n *node) { w.see("node", nil, func() { w.state.takeNode(n) }) })
	pods := feed{
		client: w.client, gv: coreV1, resource: "pods", slowest: 10 * time.Second,
		fields: fields.OneTermEqualSelector("spec.nodeName", w.node).String(),
		replace: func(objects []runtime.Object) {
			w.see("pods", nil, func() {
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
			w.see("pods", nil, func() {
				delete(w.pods, p.UID)
				if change != watch.Deleted {
					w.pods[p.UID] = podOf(p)
				}
			})
		},
		fail: func(err error) { w.see("pods", err, nil) },
	}
	all.Go(func() { nodes.run(ctx) })
	all.Go(func() { pods.run(ctx) })
	w.askForLease(ctx)
}

// How often the Lease is looked at: a node may get its Lease, but not watch it. Kubelets renew it every ten seconds, and
// at once when they start; that one of them has is what matters.
const (
	leaseExpected = 2 * time.Second
	leaseAsUsual  = time.Minute // nothing depends on when
)

func (w *NodeWatch) askForLease(ctx context.Context) {
	var since string
	expected, known := false, false
	for {
		select {
		case <-w.renewal:
			expected, known = true, false
		default:
		}
		renewed, err := w.client.lease(ctx, w.node)
		if ctx.Err() != nil {
			return
		}
		w.see("lease", err, func() { w.state.LeaseRenewed = renewed })
		wait := leaseAsUsual
		if err == nil && !known {
			since, known = renewed, true
		}
		if expected && known && renewed != since && err == nil {
			expected = false
		}
		if expected || err != nil {
			wait = leaseExpected
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-w.renewal:
			expected, known = true, false
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// see takes down the outcome of looking at one of the three.
func (w *NodeWatch) see(what string, err error, take func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.state
	w.state.Reachable = err == nil
	w.state.Cause = ""
	if err != nil {
		w.state.Cause = explain(err, "what the API server knows of node "+w.node, "nodes have that right unless it was taken from them")
	} else {
		take()
		w.looked[what] = true
		w.state.Complete = len(w.looked) == 3
	}
	if what != "pods" && reflect.DeepEqual(before, w.state) {
		return
	}
	signal(w.changed)
}

// Snapshot looks once, whether the watch is on or not.
func (w *NodeWatch) Snapshot(ctx context.Context) NodeState { return w.client.Snapshot(ctx, w.node) }

// Snapshot looks once at what NodeWatch watches. If it is not Reachable, what could be seen before is in it.
func (c *Client) Snapshot(ctx context.Context, name string) NodeState {
	state := NodeState{}
	fail := func(err error) NodeState {
		state.Cause = explain(err, "what the API server knows of node "+name, "nodes have that right unless it was taken from them")
		return state
	}
	n := &node{}
	switch _, err := c.do(ctx, request{verb: "GET", gv: coreV1, resource: "nodes", name: name}, n); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fail(err)
	default:
		state.takeNode(n)
	}
	var err error
	if state.LeaseRenewed, err = c.lease(ctx, name); err != nil {
		return fail(err)
	}
	query := map[string]string{"fieldSelector": fields.OneTermEqualSelector("spec.nodeName", name).String(), "limit": "50"}
	for more := true; more; {
		list := &podList{}
		if _, err := c.do(ctx, request{verb: "GET", gv: coreV1, resource: "pods", query: query}, list); err != nil {
			return fail(err)
		}
		for i := range list.Items {
			state.Pods = append(state.Pods, podOf(&list.Items[i]))
		}
		query["continue"] = list.Continue
		more = list.Continue != ""
	}
	sortPods(state.Pods)
	state.Reachable, state.Complete = true, true
	return state
}

// NodeAnnotation returns the value of an annotation of a Node, empty if it has none of that name.
func (c *Client) NodeAnnotation(ctx context.Context, name, key string) (string, error) {
	n := &node{}
	_, err := c.do(ctx, request{verb: "GET", gv: coreV1, resource: "nodes", name: name}, n)
	return n.Annotations[key], err
}

// lease returns when the node's Lease was renewed, empty if there is none.
func (c *Client) lease(ctx context.Context, name string) (string, error) {
	l := &lease{}
	_, err := c.do(ctx, request{verb: "GET", gv: leaseV1, namespace: "kube-node-lease", resource: "leases", name: name}, l)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	return l.Spec.RenewTime, err
}

func (s *NodeState) takeNode(n *node) {
	s.Exists, s.Ready, s.Unschedulable, s.Pressure, s.AllocatablePods = n != nil, false, false, nil, 0
	if n == nil {
		return
	}
	s.Unschedulable = n.Spec.Unschedulable
	if pods, ok := n.Status.Allocatable["pods"]; ok {
		s.AllocatablePods = pods.Value()
	}
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
		Deleting: p.DeletionTimestamp != nil, RestartsAlways: p.Spec.RestartPolicy == "Always",
	}
	if owner := metav1.GetControllerOfNoCopy(p); owner != nil {
		out.OwnerKind = owner.Kind
	}
	_, out.Static = p.Annotations["kubernetes.io/config.mirror"]
	return out
}

func sortPods(pods []Pod) {
	slices.SortFunc(pods, func(a, b Pod) int { return cmp.Compare(a.UID, b.UID) })
}
