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
	"strings"
	"time"
)

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
