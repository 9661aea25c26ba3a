// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

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

// queue reports which process holds the node's lock while an agent waits for it.
type queue struct {
	path    string
	service *Service
	log     *slog.Logger

	mu     sync.Mutex
	holder lockfile.Process // of the lock, at the last report
}

// report reports the holder that an attempt to take the lock has found. It does not look the holder up again: the path may
// name another file by now.
func (q *queue) report(err error) {
	held := &lockfile.HeldError{}
	_ = errors.As(err, &held) // it always is one
	q.mu.Lock()
	q.holder = held.By
	q.mu.Unlock()
	q.service.Waiting(fmt.Sprintf("waiting for the lock %s, held by %s", q.path, held.By))
	q.log.Info("waiting for the node's lock", "err", err)
	q.warnOfForeign(held.By)
}

// warnInterval is how often an agent logs that a process that will not run the node holds its lock.
const warnInterval = time.Minute

// watch logs during the wait that the holder will not run the node.
func (q *queue) watch(ctx context.Context) {
	ticker := time.NewTicker(warnInterval)
	defer ticker.Stop()
	var before lockfile.Process
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		q.mu.Lock()
		holder := q.holder
		q.mu.Unlock()
		q.warnOfForeign(holder)
		if hasEnded(holder) && holder == before {
			q.log.Error("a child of an ended process still holds the node's lock; this node may have no kubelet; "+
				"run fuser -v FILE and end that process", "file", q.path, "took", holder.String())
		}
		before = holder
	}
}

func (q *queue) warnOfForeign(holder lockfile.Process) {
	if isForeign(holder) {
		q.log.Error("another program holds the node's lock; this node may have no kubelet; "+
			"end that process, or give kubelets and agents another --lock-file", "file", q.path, "holder", holder.String())
	}
}

// isForeign reports whether a process is neither a kubelet nor an agent of any version, and so will not run this node.
func isForeign(p lockfile.Process) bool {
	return p.Name != "" && !strings.HasPrefix(p.Name, "kubelet") && !strings.HasPrefix(p.Name, "evenkeel-agent")
}

// hasEnded reports whether a process has ended. Usually its lock ended with it, and another process has the lock by now. Only
// a child that inherited the open file can still hold it; children of kubelets and agents do not inherit it.
func hasEnded(p lockfile.Process) bool { return p.PID > 0 && p.Name == "" }
