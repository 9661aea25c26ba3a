package agent

import (
	"errors"
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// ErrGivesBack says that no kubelet was healthy for too long, and that another agent waits for the node.
var ErrGivesBack = errors.New("no kubelet was healthy")

// GiveBack is when an agent leaves the node to another one: its kubelets pass every dry run and never get healthy, and
// nothing of the cluster reaches a node without a kubelet to mend that.
type GiveBack struct {
	// After is how long no kubelet was healthy; 0: never. It should be longer than a trial's limits, so that a
	// configuration that is to blame has been rolled back before.
	After time.Duration
	// Waited tells whether another agent waits for the node. Without one this agent is all that the node has.
	Waited func() bool
}

// steady is how long a kubelet must be healthy to count: one that crashes again and again is healthy in between.
const steady = 30 * time.Second

// givesBack returns ErrGivesBack when it is time to. A runtime that is away is no excuse: this kubelet may be the only one
// that looks for it in the wrong place.
func (a *Agent) givesBack(now time.Time, healthy bool) error {
	if !healthy {
		a.healthy = time.Time{}
	} else if a.healthy.IsZero() {
		a.healthy = now
	}
	if a.unhealthy.IsZero() || healthy && now.Sub(a.healthy) >= steady {
		a.unhealthy = now
	}
	after := a.o.GiveBack.After
	if healthy || after <= 0 || now.Sub(a.unhealthy) < after {
		return nil
	}
	if !a.o.GiveBack.Waited() {
		a.unhealthy = now // once more
		return nil
	}
	err := fmt.Errorf("%w for %s", ErrGivesBack, after)
	a.tell(a.o.Log, trial.Event{Warning: true, Reason: "KubeletGivenUp", Message: err.Error() + ": the node is left to the agent that waits for its lock"})
	return err
}
