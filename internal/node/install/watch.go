package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/source"
)

// watch waits until the kubelet is back: the unit up and the kubelet healthy for some time without a restart, its node
// Ready and its Lease renewed since. While the API server does not answer the kubelet's own word has to do.
func (h *Host) watch(ctx context.Context, rec *record, pace Pace) error {
	look := &look{h: h, rec: rec}
	if rec.Target.Kubeconfig != "" {
		api, err := h.API(rec.Target)
		if err != nil {
			return err
		}
		look.api = api
	}
	deadline := time.NewTimer(pace.Timeout)
	defer deadline.Stop()
	tick := time.NewTicker(pace.Poll)
	defer tick.Stop()
	for {
		look.again(ctx)
		settled := look.err == nil && time.Since(look.since) >= pace.Settle
		if settled && look.node == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("interrupted: %w", context.Cause(ctx))
		case <-deadline.C:
			switch why := cmp.Or(look.err, look.node); {
			case settled && errors.Is(why, errUnseen):
				h.say("%s is healthy; whether its node is Ready was not seen: %v", rec.Unit, why)
				return nil
			case why != nil:
				return fmt.Errorf("not well within %s: %w", pace.Timeout, why)
			}
			return fmt.Errorf("not well for %s within %s: it was restarted, or its health comes and goes", pace.Settle, pace.Timeout)
		case <-tick.C:
		}
	}
}

// look is what was seen of a unit, again and again.
type look struct {
	h   *Host
	rec *record
	api API

	unit    Unit
	since   time.Time // it is well
	err     error     // why the kubelet is not well
	node    error     // why the node is not
	leased  bool      // lease is known
	lease   string    // as it was when the kubelet was first healthy
	renewed bool
}

// errUnseen means that the API server does not answer.
var errUnseen = errors.New("the API server does not answer")

func (l *look) again(ctx context.Context) {
	u, err := l.h.Manager.Unit(ctx, l.rec.Unit)
	if err == nil && !u.Running() {
		err = fmt.Errorf("%s is %s", u.Name, u.state())
	}
	if err == nil {
		err = l.h.healthz(ctx, l.rec.Target)
	}
	if err != nil || l.err != nil || l.since.IsZero() || u.Invocation != l.unit.Invocation || u.Restarts != l.unit.Restarts {
		l.since, l.leased, l.renewed = time.Now(), false, false
	}
	l.unit, l.err, l.node = u, err, nil
	if err == nil && l.api != nil {
		l.node = l.judge(l.api.Snapshot(ctx))
	}
}

// judge says why the node is not well. A Lease that changes after the kubelet was found healthy is its doing.
func (l *look) judge(s source.NodeState) error {
	if !s.Reachable {
		return fmt.Errorf("%w: %s", errUnseen, s.Cause)
	}
	if !l.leased {
		l.leased, l.lease = true, s.LeaseRenewed
	}
	l.renewed = l.renewed || s.LeaseRenewed != l.lease
	switch {
	case !s.Ready:
		return fmt.Errorf("node %s is not Ready", l.rec.Target.Node)
	case !l.renewed:
		return fmt.Errorf("the Lease of node %s is not renewed", l.rec.Target.Node)
	}
	return nil
}

// explainReadOnly says what to do where nothing can be written.
func explainReadOnly(err error) error {
	if errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w: on this system write it the way its units are written; --dry-run prints it", err)
	}
	return err
}
