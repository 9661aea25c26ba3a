package source

import (
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// echoDelay is how long an object may differ from what was written last: a watch shows older states first.
	echoDelay = 30 * time.Second
	// repairInterval is the least time between two repairs, so that two writers do not fight.
	repairInterval = 5 * time.Minute
)

// echo compares what the API server returned for the last write with what it has now. They differ if somebody else has written: a request
// that was delayed on its way, a backup of etcd that was restored, or a person. What was returned is compared, not what was sent: an
// older CRD drops fields.
type echo[T any] struct {
	delay  time.Duration // echoDelay, except in tests
	repair func()        // writes the last report again

	mu       sync.Mutex
	uid      types.UID
	returned *T
	shown    *T // nil: the same as returned
	waiting  bool
	repaired time.Time
}

// wrote notes what the API server returned.
func (e *echo[T]) wrote(uid types.UID, returned T) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.uid, e.returned = uid, &returned
	if e.shown != nil && reflect.DeepEqual(*e.shown, returned) {
		e.shown = nil
	}
}

// see notes what a watch shows.
func (e *echo[T]) see(uid types.UID, shown T) {
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

func (e *echo[T]) check() {
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
