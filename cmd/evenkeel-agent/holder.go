package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
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
		h.name = strings.Map(printable, strings.TrimSuffix(string(comm), "\n"))
	}
	return h
}

// printable keeps what a process may call itself from spoiling a log or a terminal.
func printable(r rune) rune {
	if strconv.IsPrint(r) {
		return r
	}
	return '?'
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
}

// look says who has the lock now; held is what the lock says of it.
func (q queue) look(held error) {
	h := holderOf(q.path)
	q.teller.waiting(fmt.Sprintf("waiting for the lock %s, held by %s", q.path, h))
	q.log.Info("waiting for the node's lock", "holder", h.String(), "err", held)
	if h.name != "" { // else it has just ended
		q.complain(h)
	}
}

// complainEvery is how often a node whose lock is in the wrong hands says so.
const complainEvery = time.Minute

// watch complains, as long as the wait goes on, of a holder that will not run the node.
func (q queue) watch(ctx context.Context) {
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

func (q queue) complain(h holder) {
	if h.foreign() {
		q.log.Error("the node's lock is held by what is neither a kubelet nor an evenkeel-agent, "+
			"so that this node may have no kubelet: end that process, or give kubelets and agents another --lock-file", "file", q.path, "holder", h.String())
	}
}
