package agent

import (
	"context"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/source"
)

// node is what is known about the Node and its pods.
type node struct {
	view         view
	workloadPods *int64 // when they were counted last; nil: never
	watching     bool
}

// view is the node as it was seen last: by the watch, or where that is off or
// has not seen everything yet, by a single look.
type view struct {
	mu   sync.Mutex
	once source.NodeState
	at   time.Time // of the look
}

// lookLasts is how long a single look tells how the node is. After that it is not known: a trial that begins then, because
// a kubelet exited, is not to be blamed for what happened to pods in the hours before.
const snapshotLifetime = 2 * time.Minute

func (v *view) set(s source.NodeState) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.once, v.at = s, time.Now()
}

func (v *view) now(nodes Nodes) source.NodeState {
	s := nodes.Current()
	if s.Complete || s.Cause != "" {
		return s
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if time.Since(v.at) > snapshotLifetime {
		return source.NodeState{Cause: "they were not counted lately"}
	}
	return v.once
}

// countTimeout is how long an API that hangs can keep a verdict waiting; the
// sync timeout if that is longer.
const countTimeout = 2 * time.Second

// countPods asks how the node is while it is being validated: the guards need
// to know, and so does the baseline of a trial.
func (a *Agent) countPods(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	if a.p.Nodes == nil {
		close(done)
		return done
	}
	a.node.view.set(source.NodeState{Cause: "they are being counted"}) // what was seen hours ago counts for nothing
	ctx, cancel := context.WithTimeout(ctx, max(a.o.SyncTimeout, countTimeout))
	go func() {
		defer close(done)
		defer cancel()
		a.node.view.set(a.p.Nodes.Snapshot(ctx))
	}()
	return done
}

// leaseGrace is after how long the Lease is taken as it is then, if the API
// could not be asked at the start.
const leaseGrace = 5 * time.Second

// leaseBase is the node's Lease as it was when a kubelet was started. What was
// renewed since was renewed by that kubelet; clocks are not compared.
type leaseObserver struct {
	since     time.Time // of the start
	rewatched bool      // the watch was told to look closely once more

	mu   sync.Mutex
	seen bool
	time string
}

func (l *leaseObserver) readBase(ctx context.Context, nodes Nodes) {
	if s := nodes.Snapshot(ctx); s.Reachable {
		l.set(s.LeaseRenewed)
	}
}

func (l *leaseObserver) set(renewed string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.seen {
		l.seen, l.time = true, renewed
	}
}

// overtaken tells, once, that the Lease is overdue: it may have been renewed before what it was could be seen, so that
// only the next renewal counts.
func (l *leaseObserver) overdue() bool {
	if l.rewatched || time.Since(l.since) <= leaseGrace {
		return false
	}
	l.rewatched = true
	return true
}

// update takes the Lease as it is, if it could not be read at the start.
func (l *leaseObserver) update(s source.NodeState) {
	if s.Reachable && time.Since(l.since) > leaseGrace {
		l.set(s.LeaseRenewed)
	}
}

// renewed reports whether the Lease was renewed since the start.
func (l *leaseObserver) renewed(s source.NodeState) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen && s.Reachable && s.LeaseRenewed != l.time
}
