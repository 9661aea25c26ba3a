// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// keep leaves everything to the user until they end it.
func (s *show) keep(ctx context.Context, failure bool) (err error) {
	defer must.Catch(&err)

	path := must.Get(bed.Path())
	kubeconfig, remove, err := readableCopy(s.Cluster.AdminKubeconfig())
	defer remove()
	if err != nil {
		return err
	}

	fmt.Print("\nEverything keeps running until you press ctrl-C. In another shell:\n\n")
	// These lines are not wrapped: they are there to be copied.
	fmt.Printf("   export KUBECONFIG=%s\n   export PATH=%s:$PATH\n", printable.Shell(kubeconfig), path)
	commands := []string{"kubectl get nodeconfigs", "kubectl evenkeel nodes", "kubectl evenkeel node " + s.Node.Name()}
	if s.pushed {
		commands = append(commands, "kubectl evenkeel rollout status "+rollout)
	}

	for _, command := range append(commands, "kubectl evenkeel dashboard") {
		fmt.Println("   " + command)
	}

	if failure {
		fmt.Print("\nThe logs:\n\n")
		for _, what := range []string{agentLog, controllerLog, hollowLog, apiServerLog, etcdLog} {
			if _, err := os.Stat(s.logFile(what)); err == nil {
				fmt.Printf("   %-20s %s\n", what, s.logFile(what))
			}
		}
	}

	<-ctx.Done()

	return nil
}

// readableCopy returns the path of a file for the user who started the demo
// with sudo, and a function that removes it. Without sudo, it is the file
// itself.
func readableCopy(file string) (path string, remove func(), err error) {
	defer must.Catch(&err)

	remove = func() {}
	uid, err := strconv.Atoi(os.Getenv("SUDO_UID"))
	if err != nil || uid == os.Geteuid() {
		return file, remove, nil
	}

	raw := must.Get(os.ReadFile(file))
	copied := must.Get(os.CreateTemp("", "evenkeel-demo-*.conf"))
	_, err = copied.Write(raw)
	err = errors.Join(err, copied.Chown(uid, -1), copied.Close())

	return copied.Name(), func() { _ = os.Remove(copied.Name()) }, err
}

// tailLines is how much of a log is printed.
const tailLines = 20

// The logs that a failure may need.
const (
	apiServerLog  = "kube-apiserver"
	etcdLog       = "etcd"
	controllerLog = "evenkeel-controller"
	hollowLog     = "hollow-nodes"
	agentLog      = "agent and kubelet"
)

// logFile returns the path of a log.
func (s *show) logFile(name string) string {
	if name == agentLog && s.agent != nil {
		return s.agent.Log
	}

	return filepath.Join(s.Cluster.Dir(), "log", name+".log")
}

// explain prints what can explain the failure of a step: the nodes with
// problems, and the end of the logs, the most likely first.
func (s *show) explain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	logs := []string{agentLog, controllerLog}
	if !s.simple {
		logs = []string{controllerLog, hollowLog, agentLog}
	}

	var out bytes.Buffer
	if code, err := s.Evenkeel(ctx, &out, "nodes", "--problems"); err != nil || code != 0 {
		fmt.Fprintf(&out, "kubectl evenkeel nodes --problems: exit code %d, %v\n", code, err)
		logs = append([]string{apiServerLog, etcdLog}, logs...)
	}

	fmt.Println("\nNodes with problems:")
	for line := range strings.Lines(out.String()) {
		say("%s", strings.TrimRight(line, "\n"))
	}

	for _, what := range logs {
		printTail(what, s.logFile(what))
	}
}

// printTail prints the end of a log.
func printTail(what, path string) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return // it was not started
	}

	if err != nil {
		say("The log of %s cannot be read: %v", what, err)
		return
	}

	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	fmt.Printf("\nThe end of the log of %s (%s):\n", what, filepath.Base(path))
	for _, line := range lines[max(0, len(lines)-tailLines):] {
		say("%s", line)
	}
}
