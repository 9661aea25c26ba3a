// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/source"
)

// watch waits until the unit runs and the kubelet stays healthy for some time
// without a restart, its node is Ready, and its Lease has been renewed since.
// While the API server does not answer, the health of the kubelet is enough.
func (h *Host) watch(ctx context.Context, c *change, timing Timing) error {
	seen := &health{h: h, change: c}
	if c.Target.Kubeconfig != "" {
		api, err := h.API(c.Target)
		if err != nil {
			return err
		}

		seen.api = api
	}

	deadline := time.NewTimer(timing.Timeout)
	defer deadline.Stop()
	tick := time.NewTicker(timing.Poll)
	defer tick.Stop()
	for {
		seen.check(ctx)
		settled := seen.err == nil && time.Since(seen.since) >= timing.HealthyFor
		if settled && seen.node == nil {
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("interrupted: %w", context.Cause(ctx))
		case <-deadline.C:
			switch why := cmp.Or(seen.err, seen.node); {
			case settled && errors.Is(why, errUnreachable):
				h.printf("%s is healthy; cannot see whether its node is Ready: %v", c.Unit, why)
				return nil
			case why != nil:
				return fmt.Errorf("not healthy within %s: %w", timing.Timeout, why)
			}

			return fmt.Errorf("not healthy for %s without interruption within %s", timing.HealthyFor, timing.Timeout)
		case <-tick.C:
		}
	}
}

// health is the state of a unit over several checks.
type health struct {
	h      *Host
	change *change
	api    API

	unit       Unit
	since      time.Time // healthy since
	err        error     // why the kubelet is not healthy
	node       error     // why the node is not Ready
	leaseKnown bool      // lease was read
	lease      string    // its value when the kubelet was first healthy
	renewed    bool
}

// errUnreachable means that the API server does not answer.
var errUnreachable = errors.New("the API server does not answer")

func (l *health) check(ctx context.Context) {
	u, err := l.h.Manager.Unit(ctx, l.change.Unit)
	if err == nil && !u.Running() {
		err = fmt.Errorf("%s is %s", u.Name, u.state())
	}
	if err == nil {
		err = l.h.healthz(ctx, l.change.Target)
	}
	if err != nil || l.err != nil || l.since.IsZero() || u.Invocation != l.unit.Invocation || u.Restarts != l.unit.Restarts {
		l.since, l.leaseKnown, l.renewed = time.Now(), false, false
	}

	l.unit, l.err, l.node = u, err, nil
	if err == nil && l.api != nil {
		l.node = l.checkNode(l.api.Snapshot(ctx, l.change.Target.Node))
	}
}

// checkNode returns why the node is not healthy. A Lease that changes after the
// kubelet became healthy was renewed by it.
func (l *health) checkNode(s source.NodeState) error {
	if !s.Reachable {
		return fmt.Errorf("%w: %s", errUnreachable, s.Cause)
	}
	if !l.leaseKnown {
		l.leaseKnown, l.lease = true, s.LeaseRenewed
	}

	l.renewed = l.renewed || s.LeaseRenewed != l.lease
	switch {
	case !s.Ready:
		return fmt.Errorf("node %s is not Ready", l.change.Target.Node)
	case !l.renewed:
		return fmt.Errorf("the Lease of node %s is not renewed", l.change.Target.Node)
	}

	return nil
}
