package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/lockfile"
)

// holder is the process that has a lock.
type holder struct {
	pid  int    // 0: none, or one that this host does not tell of
	name string // empty: there is no such process any more
}

// holderOf finds out who has the lock on a file, without opening it.
func holderOf(path string) holder {
	h := holder{pid: lockfile.WhoHolds(path)}
	if h.pid == 0 {
		return h
	}
	if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", h.pid)); err == nil {
		h.name = strings.TrimSpace(string(comm))
	}
	return h
}

func (h holder) String() string {
	switch {
	case h.pid == 0:
		return "another process"
	case h.name == "":
		return fmt.Sprintf("process %d, which has ended: another one has the file from it", h.pid)
	}
	return fmt.Sprintf("process %d (%s)", h.pid, h.name)
}

// foreign tells that it is neither a kubelet nor an agent, whatever their version is called: it will not run this node.
func (h holder) foreign() bool {
	return h.pid != 0 && !strings.HasPrefix(h.name, kubelet) && !strings.HasPrefix(h.name, "evenkeel-agent")
}

// queue is where an agent waits for the node's lock.
type queue struct {
	path   string
	teller teller
	log    *slog.Logger
	said   bool // who is waited for
}

// look says who has the lock now.
func (q *queue) look() {
	h := holderOf(q.path)
	if h.pid == 0 && q.said {
		return // it has just been given back
	}
	q.said = true
	q.teller.waiting(fmt.Sprintf("waiting for the lock %s, held by %s", q.path, h))
	q.log.Info("waiting for the node's lock", "file", q.path, "holder", h.String())
	if h.name != "" { // else it has just ended
		q.complain(h)
	}
}

// complainEvery is how often a node whose lock is in the wrong hands says so.
const complainEvery = time.Minute

// watch complains, as long as the wait goes on, of a holder that will not run the node.
func (q *queue) watch(ctx context.Context) {
	tick := time.NewTicker(complainEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			q.complain(holderOf(q.path))
		}
	}
}

func (q *queue) complain(h holder) {
	if h.foreign() {
		q.log.Error("the node's lock is held by what is neither a kubelet nor an evenkeel-agent, so that this node may have no kubelet: "+
			"end that process, or give kubelets and agents another --lock-file", "file", q.path, "holder", h.String())
	}
}
