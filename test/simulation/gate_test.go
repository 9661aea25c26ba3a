// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/testkit/simapi"
)

var (
	errDead = errors.New("the process has ended")
	errCut  = errors.New("the connection is dead")
)

// locked returns what read returns while a mutex is locked.
func locked[T any](mu *sync.Mutex, read func() T) T {
	mu.Lock()
	defer mu.Unlock()
	return read()
}

// gate is the way of a process to the network. It can be closed, as in a
// partition, and for ever, when the process ends.
type gate struct {
	mu     sync.Mutex
	closed chan struct{} // nil: open; closed when it opens
	dead   bool
}

// pass waits until the gate is open. It returns an error if ctx ends before,
// the connection has been dead for long, or the process has ended.
func (g *gate) pass(ctx context.Context) error {
	for {
		g.mu.Lock()
		closed, dead := g.closed, g.dead
		g.mu.Unlock()
		if dead {
			return errDead
		}
		if closed == nil {
			return ctx.Err()
		}

		timer := time.NewTimer(simapi.HealthCheck)
		select {
		case <-closed:
			timer.Stop()
		case <-timer.C:
			return errCut
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case open && g.closed != nil:
		close(g.closed)
		g.closed = nil
	case !open && g.closed == nil:
		g.closed = make(chan struct{})
	}
}

// kill closes the gate for ever.
func (g *gate) kill() {
	g.mu.Lock()
	g.dead = true
	g.mu.Unlock()
	g.set(true)
}

func (g *gate) isClosed() bool { return locked(&g.mu, func() bool { return g.closed != nil }) }

func (g *gate) isDead() bool { return locked(&g.mu, func() bool { return g.dead }) }
