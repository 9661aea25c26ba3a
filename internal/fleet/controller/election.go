package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// errDeposed is that another controller leads, or may have led meanwhile.
var errDeposed = errors.New("this controller does not lead any more")

// election is the lease, as client-go's elector uses it. It knows in which term this controller leads, and ends that at
// once when the lease says that it is over: the elector itself goes on until it could not renew for its whole deadline.
type election struct {
	resourcelock.Interface
	lease *resourcelock.LeaseLock // the same
	lasts time.Duration           // the lease

	mu      sync.Mutex
	holder  string // as it was read last
	term    int64  // 0: it does not lead
	renewed time.Time
	over    chan struct{} // closed when it was deposed
	cause   error
}

// newElection makes no request yet.
func newElection(config *rest.Config, namespace, version string, lasts, renew time.Duration) (*election, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("find this machine's name: %w", err)
	}
	config = rest.AddUserAgent(config, "leader-election")
	config.Timeout = max(renew/2, time.Second) // one request that hangs must not lose the lease
	client, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for the lease: %w", err)
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.ControllerLease}, Client: client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}, Labels: leaseLabels(version),
	}
	return &election{Interface: lock, lease: lock, lasts: lasts, over: make(chan struct{})}, nil
}

// Get implements resourcelock.Interface.
func (e *election) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, raw, err := e.Interface.Get(ctx)
	if err == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.holder = r.HolderIdentity
		if e.term != 0 && e.holder != e.Identity() {
			e.end(fmt.Errorf("%w: the lease names %q", errDeposed, e.holder))
		}
	}
	return r, raw, err
}

// Create implements resourcelock.Interface.
func (e *election) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return e.write(r, func() error { return e.Interface.Create(ctx, r) })
}

// Update implements resourcelock.Interface.
func (e *election) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	e.mu.Lock()
	others := r.HolderIdentity == "" && e.holder != "" && e.holder != e.Identity()
	e.mu.Unlock()
	if others { // the elector would give up what another one has
		return errDeposed
	}
	return e.write(r, func() error { return e.Interface.Update(ctx, r) })
}

func (e *election) write(r resourcelock.LeaderElectionRecord, do func() error) error {
	began := time.Now() // from when the lease lasts
	if err := do(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.holder = r.HolderIdentity
	switch term := int64(r.LeaderTransitions) + 1; {
	case r.HolderIdentity == "":
		e.term = 0
	case e.term != 0 && e.term != term: // the lease was deleted, or had another holder
		e.end(fmt.Errorf("%w: the lease was somebody else's meanwhile", errDeposed))
	default:
		e.term, e.renewed = term, began
	}
	return nil
}

// end ends leading. The caller holds mu.
func (e *election) end(cause error) {
	if e.cause == nil {
		e.cause = cause
		close(e.over)
	}
}

// depose ends leading because of what was found elsewhere than in the lease.
func (e *election) depose(why string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.end(fmt.Errorf("%w: %s", errDeposed, why))
	return e.cause
}

// leads returns the term in which this controller leads. The error says that it does not, or that it could not renew the
// lease for as long as that lasts: that this process was frozen shows so, unless its machine was.
func (e *election) leads() (int64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.cause != nil:
		return 0, e.cause
	case e.term == 0:
		return 0, errDeposed
	case time.Since(e.renewed) > e.lasts:
		return 0, fmt.Errorf("%w: it has not renewed the lease for %s", errDeposed, time.Since(e.renewed).Round(time.Second))
	}
	return e.term, nil
}

// show keeps the lease renewed while it is free, for a controller that does not wait for it: so others wait, and people see
// that there is a controller. It returns when ctx ends.
func (e *election) show(ctx context.Context, config leaderelection.LeaderElectionConfig) error {
	config.Lock, config.Name, config.ReleaseOnCancel = e.Interface, v1alpha1.ControllerLease, true
	config.Callbacks = leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}}
	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(config)
		if err != nil {
			return fmt.Errorf("show that there is a controller: %w", err)
		}
		elector.Run(ctx)
	}
	return nil
}
