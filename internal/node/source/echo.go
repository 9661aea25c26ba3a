// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

const (
	// echoDelay is the least time that a status must differ from what was
	// written last, because a watch shows older states first. The most is five
	// times as long: the agents of a fleet must not all write at the same time.
	echoDelay = 30 * time.Second
	// repairInterval is the least time between two repairs, so that two writers
	// do not fight.
	repairInterval = 5 * time.Minute
)

// echo compares the status that the API server returned for the last write with
// the one that it has now. They differ if somebody else has written: a request
// that was delayed on its way, a restored backup of etcd, or a person. What was
// returned is compared, not what was sent: an older CRD drops fields.
type echo struct {
	delay, interval time.Duration // echoDelay and repairInterval, except in tests
	repair          func()        // writes the last report again, to the NodeConfig and the Node

	mu              sync.Mutex
	returned, shown object
	since           time.Time // of the difference; zero: there is none
	waiting         bool      // for check
	repaired        time.Time
}

// object is the status of a NodeConfig with its UID; nil: not known.
type object struct {
	uid    types.UID
	status *v1alpha1.NodeConfigStatus
}

// wrote notes what the API server returned.
func (e *echo) wrote(uid types.UID, status v1alpha1.NodeConfigStatus) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.returned = object{uid, &status}
	e.compare()
}

// see notes what a watch shows.
func (e *echo) see(uid types.UID, status v1alpha1.NodeConfigStatus) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shown = object{uid, &status}
	e.compare()
}

// compare notes a difference. The caller holds mu.
func (e *echo) compare() {
	if e.returned.status == nil || e.shown.uid != e.returned.uid {
		e.since = time.Time{}
		return
	}

	if reflect.DeepEqual(e.shown.status, e.returned.status) {
		e.shown, e.since = e.returned, time.Time{} // one copy is enough
		return
	}

	if e.since.IsZero() {
		e.since = time.Now()
	}
	if !e.waiting {
		e.checkAfter(max(wait.Jitter(e.delay, 4), e.interval-time.Since(e.repaired)))
	}
}

func (e *echo) checkAfter(d time.Duration) {
	e.waiting = true
	time.AfterFunc(d, e.check)
}

// check repairs a difference that has lasted.
func (e *echo) check() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting = false
	if e.since.IsZero() {
		return
	}

	if left := e.delay - time.Since(e.since); left > 0 {
		e.checkAfter(left)
		return
	}

	e.repaired = time.Now()
	e.repair()
}
