// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// errNotLeader means that another controller leads, or may have led in the
// meantime.
var errNotLeader = errors.New("this controller is no longer the leader")

// election wraps the Lease lock of client-go's elector. It knows the term in
// which this controller leads, and ends it as soon as the Lease names another
// holder: the elector itself continues until its renew deadline.
type election struct {
	resourcelock.Interface
	lease    *resourcelock.LeaseLock // the wrapped lock
	duration time.Duration           // of the Lease

	back func(silent time.Duration) // called when the API server answers again after a silence

	now func() time.Time // of the Lease's renewals: the machines' clocks can differ

	mu       sync.Mutex
	holder   string    // as last read
	former   time.Time // when the Lease was renewed last before this controller had it
	term     int64     // 0: this controller does not lead
	renewed  time.Time
	answered time.Time     // when the API server last answered a request for the Lease, which is sent every few seconds; zero: never
	lost     chan struct{} // closed when this controller stops leading
	cause    error         // why it stopped
}

// newElection returns an election and makes no request yet.
func newElection(config *rest.Config, namespace, version string, duration, renew time.Duration) (*election, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("read the host name: %w", err)
	}

	config = rest.AddUserAgent(config, "leader-election")
	config.Timeout = max(renew/2, time.Second) // one request that hangs must not lose the Lease
	client, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for the Lease: %w", err)
	}

	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.ControllerLease}, Client: client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}, Labels: leaseLabels(version),
	}

	return &election{Interface: lock, lease: lock, duration: duration, lost: make(chan struct{})}, nil
}

// silence is how long the API server may be silent: a watch does not show that
// it hangs. Requests for the Lease are sent at intervals of up to 4.4
// fifteenths of its duration.
func (e *election) silence() time.Duration { return max(5*time.Second, e.duration/3) }

// silent reports whether the API server has answered before, and is silent now.
func (e *election) silent() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.answered.IsZero() && time.Since(e.answered) > e.silence()
}

// formerRenewal returns when another controller renewed the Lease last; zero:
// not known.
func (e *election) formerRenewal() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.former
}

// noteAnswer notes that the API server has answered a request for the Lease,
// unless the error says that it has not.
func (e *election) noteAnswer(err error) {
	if s := apierrors.APIStatus(nil); err != nil && (!errors.As(err, &s) || s.Status().Code >= http.StatusTooManyRequests) {
		return
	}

	e.mu.Lock()
	was := e.answered
	e.answered = time.Now()
	gap := e.answered.Sub(was)
	e.mu.Unlock()
	if !was.IsZero() && gap > e.silence() {
		e.back(gap)
	}
}

// Get implements resourcelock.Interface.
func (e *election) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, raw, err := e.Interface.Get(ctx)
	e.noteAnswer(err)
	if err == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.holder = r.HolderIdentity; e.term == 0 {
			e.former = r.RenewTime.Time
		}
		if e.term != 0 && e.holder != e.Identity() {
			_ = e.end(fmt.Errorf("the Lease names %q", e.holder)) // read by leads
		}
	}

	return r, raw, err
}

// Create implements resourcelock.Interface.
func (e *election) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return e.write(r, func(r resourcelock.LeaderElectionRecord) error { return e.Interface.Create(ctx, r) })
}

// Update implements resourcelock.Interface.
func (e *election) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	e.mu.Lock()
	foreign := r.HolderIdentity == "" && e.holder != "" && e.holder != e.Identity()
	e.mu.Unlock()
	if foreign { // the elector would release the Lease of another holder
		return errNotLeader
	}

	return e.write(r, func(r resourcelock.LeaderElectionRecord) error { return e.Interface.Update(ctx, r) })
}

func (e *election) write(r resourcelock.LeaderElectionRecord, do func(resourcelock.LeaderElectionRecord) error) error {
	began := time.Now() // the Lease is valid from here
	r.RenewTime = metav1.NewTime(e.now())
	err := do(r)
	e.noteAnswer(err)
	if err != nil {
		return err
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	e.holder = r.HolderIdentity
	switch term := int64(r.LeaderTransitions) + 1; {
	case r.HolderIdentity == "":
		e.term = 0
	case e.term != 0 && e.term != term: // the Lease was deleted, or had another holder
		_ = e.end(errors.New("the Lease had another holder in the meantime")) // read by leads
	default:
		e.term, e.renewed = term, began
	}

	return nil
}

// end stops leading, and returns the cause that was first. The caller holds mu.
func (e *election) end(cause error) error {
	if e.cause == nil {
		e.cause = fmt.Errorf("%w: %w", errNotLeader, cause)
		close(e.lost)
	}

	return e.cause
}

// stop stops leading for a cause that was found outside of the Lease.
func (e *election) stop(cause error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.end(cause)
}

// leads returns the term in which this controller leads. It fails if the
// controller does not lead, or has not renewed the Lease for its whole
// duration. The latter detects a process that was suspended, unless its whole
// machine was.
func (e *election) leads() (int64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.cause != nil:
		return 0, e.cause
	case e.term == 0:
		return 0, errNotLeader
	case time.Since(e.renewed) > e.duration:
		return 0, fmt.Errorf("%w: the Lease was not renewed for %s", errNotLeader, time.Since(e.renewed).Round(time.Second))
	}

	return e.term, nil
}

// renewWhileFree holds the Lease while no other controller does, for a
// controller that does not wait for it: other controllers then wait, and users
// see the controller. It returns when ctx ends.
func (e *election) renewWhileFree(ctx context.Context, config leaderelection.LeaderElectionConfig) error {
	config.Lock, config.Name, config.ReleaseOnCancel = e, v1alpha1.ControllerLease, true
	config.Callbacks = leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}}
	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(config)
		if err != nil {
			return fmt.Errorf("make an elector: %w", err)
		}

		elector.Run(ctx)
	}

	return nil
}
