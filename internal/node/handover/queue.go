package handover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/lockfile"
)

// queue is where an agent waits for the node's lock.
type queue struct {
	path    string
	service *Service
	log     *slog.Logger

	mu sync.Mutex
	by lockfile.Process // has the lock, as the lock said last
}

// look says who has the lock now, as the lock itself tells: its file is not looked at again.
func (q *queue) look(waits error) {
	held := &lockfile.HeldError{}
	_ = errors.As(waits, &held) // it always is one
	q.mu.Lock()
	q.by = held.By
	q.mu.Unlock()
	q.service.Waiting(fmt.Sprintf("waiting for the lock %s, held by %s", q.path, held.By))
	q.log.Info("waiting for the node's lock", "err", waits)
	q.complain(held.By)
}

// complainEvery is how often a node whose lock is in the wrong hands says so.
const complainEvery = time.Minute

// watch complains, as long as the wait goes on, of a holder that will not run the node.
func (q *queue) watch(ctx context.Context) {
	tick := time.NewTicker(complainEvery)
	defer tick.Stop()
	var before lockfile.Process
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		q.mu.Lock()
		by := q.by
		q.mu.Unlock()
		q.complain(by)
		if hasEnded(by) && by == before {
			q.log.Error("the node's lock was taken by a process that has ended, and another one has the file from it, "+
				"so that this node may have no kubelet: find that one (fuser -v FILE), and end it", "file", q.path, "took", by.String())
		}
		before = by
	}
}

func (q *queue) complain(by lockfile.Process) {
	if isForeign(by) {
		q.log.Error("the node's lock is held by what is neither a kubelet nor an evenkeel-agent, "+
			"so that this node may have no kubelet: end that process, or give kubelets and agents another --lock-file", "file", q.path, "holder", by.String())
	}
}

// isForeign tells that a process is neither a kubelet nor an agent, whatever their version is called: it will not run this
// node.
func isForeign(by lockfile.Process) bool {
	return by.Name != "" && !strings.HasPrefix(by.Name, "kubelet") && !strings.HasPrefix(by.Name, "evenkeel-agent")
}

// hasEnded tells that a process has ended. Mostly the lock has gone with it, and somebody else has it by now; what it started
// can have it too, but not from a kubelet or an agent.
func hasEnded(by lockfile.Process) bool { return by.PID > 0 && by.Name == "" }
