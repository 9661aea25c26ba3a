// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/lockfile"
)

// Lock is the lock file that decides which process runs this node's kubelet
// (proposal "Self-hosted kubelet").
type Lock struct {
	Flag      string // the flag that names the file, for messages
	Path      string // empty: no other process contends for the node
	Bootstrap bool   // release the lock when another process opens the file
	Mode      v1alpha1.RunMode
}

// Flags are the agent's flags about the node's lock.
type Flags struct {
	LockFile  string // --lock-file
	Bootstrap bool   // --bootstrap
	Dir       string // --dynamic-config-dir
}

// Lock returns the node's lock, or an error that names the wrong flag. The
// kubelet's own --lock-file becomes the agent's, and its --exit-on-lock-contention
// means --bootstrap: both are the same feature.
func (f Flags) Lock(k *component.Kubelet) (Lock, error) {
	l := Lock{Flag: "--lock-file", Path: f.LockFile, Bootstrap: f.Bootstrap || k.ExitOnLockContention, Mode: v1alpha1.RunModeHost}
	switch {
	case f.LockFile != "" && k.LockFile != "":
		return l, fmt.Errorf("--lock-file is given twice, to the agent and to its kubelet (%s): remove one of them",
			k.LockFile)
	case f.LockFile != "" && !filepath.IsAbs(f.LockFile):
		return l, fmt.Errorf("--lock-file must be an absolute path, not %q", f.LockFile)
	case f.LockFile != "":
		l.Mode = v1alpha1.RunModeSelfHosted
	case k.LockFile != "":
		path, err := filepath.Abs(k.LockFile)
		if err != nil {
			return l, fmt.Errorf("the kubelet's --lock-file: %w", err)
		}

		l.Flag, l.Path = "the kubelet's --lock-file", path
	case f.Bootstrap:
		return l, errors.New("--bootstrap needs --lock-file: without a lock no process could request the node")
	case k.ExitOnLockContention:
		return l, errors.New("the kubelet's --exit-on-lock-contention needs --lock-file")
	}

	if l.Bootstrap {
		l.Mode = v1alpha1.RunModeBootstrap
	}

	switch path := filepath.Clean(l.Path); {
	case f.Dir == "" || l.Path == "":
	case path == KubeletLock(f.Dir, l):
		return l, fmt.Errorf("%s %s is the agent's own lock file for its kubelet: choose another path", l.Flag, l.Path)
	case filepath.Dir(path) == filepath.Clean(f.Dir):
		return l, fmt.Errorf("%s %s is in --dynamic-config-dir, which only the lock's holder may write to: choose another directory",
			l.Flag, l.Path)
	}

	return l, nil
}

// KubeletLock is the lock file that the agent gives every kubelet of this node,
// so that the kernel keeps two kubelets apart even if an agent was killed: its
// own lock is free before its kubelet has ended. Without a directory and
// without a lock KubeletLock returns "", and the kubelet has no lock.
func KubeletLock(dir string, l Lock) string {
	switch {
	case dir != "":
		return filepath.Join(dir, "kubelet.lock")
	case l.Path != "":
		return filepath.Clean(l.Path) + ".kubelet"
	}

	return ""
}

// queue reports which process holds the node's lock while an agent waits for
// it.
type queue struct {
	path    string
	service *Service
	log     *slog.Logger

	mu     sync.Mutex
	holder lockfile.Process // of the lock, at the last report
}

// report reports the holder that an attempt to take the lock has found. It does
// not look the holder up again: the path may name another file by now.
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

// warnInterval is how often an agent logs that a process that will not run the
// node holds its lock.
const warnInterval = time.Minute

// watch logs during the wait that the holder will not run the node.
func (q *queue) watch(ctx context.Context) {
	tick := time.Tick(warnInterval)
	var before lockfile.Process
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
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

// isForeign reports whether a process is neither a kubelet nor an agent of any
// version, and so will not run this node.
func isForeign(p lockfile.Process) bool {
	return p.Name != "" && !strings.HasPrefix(p.Name, "kubelet") && !strings.HasPrefix(p.Name, "evenkeel-agent")
}

// hasEnded reports whether a process has ended. Usually its lock ended with it,
// and another process has the lock by now. Only a child that inherited the open
// file can still hold it; children of kubelets and agents do not inherit it.
func hasEnded(p lockfile.Process) bool { return p.PID > 0 && p.Name == "" }
