// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/must"
)

const (
	tailLines     = 20      // how much of a log is printed
	tailBytes     = 1 << 20 // where its last lines are searched
	longestEntry  = 3 * width
	troubledNodes = 10 // how many nodes are described
)

// The programs whose logs a failure may need.
const (
	apiServerLog  = "kube-apiserver"
	etcdLog       = "etcd"
	controllerLog = "evenkeel-controller"
	agentLog      = "agent and kubelet"
	hollowLog     = "hollow nodes"
)

// circumstances are what is known when a step has failed.
type circumstances struct {
	apiDown, controllerEnded, agentEnded bool
	hollow                               bool // the step involves the simulated fleet
	real                                 bool // the step involves the real node's kubelet, or the real node has a problem
}

// logs returns which logs explain the failure, the most likely first. A program that ended explains it alone.
func (c circumstances) logs() []string {
	var logs []string
	if c.apiDown {
		logs = append(logs, apiServerLog, etcdLog)
	}
	if c.controllerEnded {
		logs = append(logs, controllerLog)
	}
	if c.agentEnded {
		logs = append(logs, agentLog)
	}
	if len(logs) > 0 {
		return logs
	}
	if c.hollow {
		logs = append(logs, controllerLog, hollowLog)
	}
	if c.real {
		logs = append(logs, agentLog)
	}
	return logs
}

// explain prints what explains the failure of a step: the nodes with problems, and the logs of the programs that took part.
func (s *show) explain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	c := circumstances{
		controllerEnded: s.controller == nil || isClosed(s.controller.Done), // without one, its start has failed
		agentEnded:      s.agent != nil && s.agent.Done() != nil && isClosed(s.agent.Done()),
		hollow:          !s.simple, real: s.simple,
	}
	problems, err := s.problems(ctx)
	if c.apiDown = err != nil; c.apiDown {
		fmt.Println()
		say("The API server does not answer: %v", err)
	}
	if len(problems) > 0 {
		fmt.Println("\nNodes with problems:")
		for _, line := range problems {
			say("%s", line)
		}
	}
	if ready, err := s.ready(ctx); err == nil && !ready {
		c.real = true
	}
	paths := s.logs()
	for _, what := range c.logs() {
		printTail(what, paths[what])
	}
}

// problems describes the nodes that explain a failure. The error says that the API server does not answer.
func (s *show) problems(ctx context.Context) (_ []string, err error) {
	defer must.Catch(&err)

	nodes := must.Get(s.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{}))
	configs := must.Get(s.ListNodeConfigs(ctx))
	return troubled(nodes.Items, configs, troubledNodes), nil
}

// logs returns the path of each log.
func (s *show) logs() map[string]string {
	paths := map[string]string{
		apiServerLog: s.logFile("kube-apiserver"), etcdLog: s.logFile("etcd"), controllerLog: s.logFile("evenkeel-controller"),
		hollowLog: s.logFile("hollow-nodes"),
	}
	if s.agent != nil {
		paths[agentLog] = s.agent.Log
	}
	return paths
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
	raw = raw[max(0, len(raw)-tailBytes):]
	fmt.Printf("\nThe end of the log of %s (%s):\n", what, filepath.Base(path))
	for _, line := range newest(string(raw), tailLines) {
		say("%s", printable.Columns(printable.Line(line), longestEntry))
	}
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
