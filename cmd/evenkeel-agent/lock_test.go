// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestWhatIsWrongWithTheNodesLockIsAUsageError(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		agent, kubelet []string
		want           string
	}{
		{[]string{"--bootstrap"}, nil, "--bootstrap needs --lock-file: without a lock no process could request the node"},
		{[]string{"--bootstrap", "--lock-file="}, nil, "--bootstrap needs --lock-file"},
		{nil, []string{"--exit-on-lock-contention"}, "the kubelet's --exit-on-lock-contention needs --lock-file"},
		{[]string{"--lock-file=kubelet.lock"}, nil, `--lock-file must be an absolute path, not "kubelet.lock"`},
		{[]string{"--lock-file=/run/a"}, []string{"--lock-file=/run/a"}, "--lock-file is given twice, to the agent and to its kubelet (/run/a): remove one of them"},
		{[]string{"--lock-file=/run/a"}, []string{"--lock-file=/run/b"}, "--lock-file is given twice"},
		{[]string{"--lock-file=" + dir + "/kubelet.lock"}, nil, "--lock-file " + dir + "/kubelet.lock is the agent's own lock file for its kubelet: choose another path"},
		{[]string{"--lock-file=" + dir + "/agent.lock"}, nil, "--lock-file " + dir + "/agent.lock is in --dynamic-config-dir, which only the lock's holder may write to: choose another directory"},
		{[]string{"--lock-file=" + dir + "//current"}, nil, "--lock-file " + dir + "//current is in --dynamic-config-dir"},
		{nil, []string{"--lock-file=" + dir + "/../" + filepath.Base(dir) + "/agent.lock"}, "the kubelet's --lock-file " + dir + "/agent.lock is in --dynamic-config-dir"},
		{[]string{"--probe-socket=probe.sock"}, nil, `--probe-socket must be an absolute path of at most 107 bytes, not "probe.sock"`},
		{[]string{"--probe-socket=/" + strings.Repeat("x", 107)}, nil, `--probe-socket must be an absolute path of at most 107 bytes, not "/xxx`},
	} {
		args := append(append(c.agent, "--dynamic-config-dir="+dir, "--", "/not/there"), c.kubelet...)
		_, err := runs(t, args...)
		wantUsage(t, err, c.want)
	}

	if left, err := filepath.Glob(dir + "/*"); err != nil || len(left) > 0 {
		t.Errorf("in the directory are %q, %v", left, err)
	}
}
