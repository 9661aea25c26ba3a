package source

import (
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

const (
	// echoDelay is how long a status may differ from what was written last: a watch shows older states first.
	echoDelay = 30 * time.Second
	// repairInterval is the least time between two repairs, so that two writers do not fight.
	repairInterval = 5 * time.Minute
)

// echo compares the status that the API server returned for the last write with the one that it has now. They differ if somebody else has
// written: a request that was delayed on its way, a restored backup of etcd, or a person. What was returned is compared, not what was
// sent: an older CRD drops fields.
type echo struct {
	delay  time.Duration // echoDelay, except in tests
	repair func()        // writes the last report again, to the NodeConfig and the Node

	mu       sync.Mutex
	uid      types.UID
	returned *v1alpha1.NodeConfigStatus
	shown    *v1alpha1.NodeConfigStatus // nil: the same as returned
	waiting  bool
	repaired time.Time
}

// wrote notes what the API server returned.
func (e *echo) wrote(uid types.UID, returned v1alpha1.NodeConfigStatus) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.uid, e.returned = uid, &returned
	if e.shown != nil && reflect.DeepEqual(*e.shown, returned) {
		e.shown = nil
	}
}

// see notes what a watch shows.
func (e *echo) see(uid types.UID, shown v1alpha1.NodeConfigStatus) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shown = nil
	if e.returned == nil || uid != e.uid || reflect.DeepEqual(shown, *e.returned) {
		return
	}
	e.shown = &shown
	if !e.waiting {
		e.waiting = true
		time.AfterFunc(max(e.delay, repairInterval-time.Since(e.repaired)), e.check)
	}
}

func (e *echo) check() {
	e.mu.Lock()
	e.waiting = false
	differs := e.shown != nil
	if differs {
		e.repaired = time.Now()
	}
	e.mu.Unlock()
	if differs {
		e.repair()
	}
}
