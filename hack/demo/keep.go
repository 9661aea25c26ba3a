// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

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
	for _, command := range commands(s.Node.Name(), s.pushed) {
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

// commands are worth typing in the cluster that the demo leaves.
func commands(node string, pushed bool) []string {
	list := []string{"kubectl get nodeconfigs", "kubectl evenkeel nodes", "kubectl evenkeel node " + node}
	if pushed {
		list = append(list, "kubectl evenkeel rollout status "+rollout)
	}

	return append(list, "kubectl evenkeel dashboard")
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
