// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// nodeProcess is one of the node's.
type nodeProcess struct {
	pid, parent int
	argv        []string
	cgroup      string
}

// processesOf are those of the node whose program's name begins with this,
// without the children of such: what a program starts looks like the program
// itself at first.
func (p *pivot) processesOf(name string) []nodeProcess {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var found []nodeProcess
	for _, file := range files {
		raw, err := os.ReadFile(file)
		argv := strings.Split(string(raw), "\x00")
		ours := slices.Contains(argv, "--kubeconfig="+p.Node.Kubeconfig()) // a dry run has none
		if err != nil || !ours || !strings.HasPrefix(filepath.Base(argv[0]), name) {
			continue
		}

		cgroup, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cgroup"))
		stat, statErr := os.ReadFile(filepath.Join(filepath.Dir(file), "stat"))
		q := nodeProcess{argv: argv, cgroup: string(cgroup)}
		_, numErr := fmt.Sscanf(string(stat[strings.LastIndex(string(stat), ")")+1:]), " %1s %d", new(string), &q.parent)
		q.pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if errors.Join(err, statErr, numErr) == nil {
			found = append(found, q)
		}
	}

	return slices.DeleteFunc(slices.Clone(found), func(q nodeProcess) bool {
		return slices.ContainsFunc(found, func(p nodeProcess) bool { return p.pid == q.parent })
	})
}

// of reports whether a process is a pod's; without a UID, whether it is of no
// pod.
func (q nodeProcess) of(uid types.UID) bool {
	if uid == "" {
		return !strings.Contains(q.cgroup, "/pod")
	}

	return strings.Contains(q.cgroup, "/pod"+string(uid))
}

// twoAtOnce looks for two kubelets of the node that run at the same time.
type twoAtOnce struct {
	end  context.CancelFunc
	all  sync.WaitGroup
	seen []string
}

func (p *pivot) watchKubelets() {
	ctx, end := context.WithCancel(context.Background())
	p.two = &twoAtOnce{end: end}
	p.two.all.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			if running := p.processesOf("kubelet"); len(running) > 1 {
				p.two.seen = append(p.two.seen, fmt.Sprintf("%+v", running))
			}

			<-tick.C
		}
	})
}

// neverTwoKubelets requires that there were none.
func (p *pivot) neverTwoKubelets() {
	p.t.Helper()
	p.two.end()
	p.two.all.Wait()
	if len(p.two.seen) > 0 {
		p.t.Errorf("two kubelets at once, %d times; first %s", len(p.two.seen), p.two.seen[0])
	}
}
