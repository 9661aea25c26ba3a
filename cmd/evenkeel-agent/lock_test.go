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
		{[]string{"--bootstrap"}, nil, "--bootstrap needs --lock-file: without a lock nobody could ask this kubelet to leave"},
		{[]string{"--bootstrap", "--lock-file="}, nil, "--bootstrap needs --lock-file"},
		{nil, []string{"--exit-on-lock-contention"}, "the kubelet's --exit-on-lock-contention needs a --lock-file, as it does without an agent"},
		{[]string{"--lock-file=kubelet.lock"}, nil, `--lock-file must be an absolute path, not "kubelet.lock"`},
		{[]string{"--lock-file=/run/a"}, []string{"--lock-file=/run/a"}, "--lock-file is given twice: to the agent, and to its kubelet (/run/a), whose lock the agent takes: give one"},
		{[]string{"--lock-file=/run/a"}, []string{"--lock-file=/run/b"}, "--lock-file is given twice"},
		{[]string{"--lock-file=" + dir + "/kubelet.lock"}, nil, "--lock-file " + dir + "/kubelet.lock is the one that the agent gives it: choose another path"},
		{[]string{"--lock-file=" + dir + "/agent.lock"}, nil, "--lock-file " + dir + "/agent.lock is in --dynamic-config-dir, where only who has the lock may write: choose another directory"},
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

func TestANewerKubeletThatHasRunHereIsNamed(t *testing.T) {
	for _, c := range []struct {
		ours     string
		versions []string
		want     string
	}{
		{"v1.36.3", nil, ""},
		{"v1.36.3", []string{"v1.36.3", "v1.35.9"}, ""},
		{"v1.35.9", []string{"v1.36.3", "v1.35.9"}, "v1.36.3"},
		{"v1.9.9", []string{"v1.35.9", "v1.36.3", "v1.10.0"}, "v1.36.3"},
		{"v1.36.0-rc.1", []string{"v1.36.0"}, "v1.36.0"},
		{"v1.36.3", []string{"lost+found"}, ""},
		{"weekly", []string{"v1.36.3"}, ""},
	} {
		if got := newerThan(c.ours, c.versions); got != c.want {
			t.Errorf("newer than %s of %q: %q, want %q", c.ours, c.versions, got, c.want)
		}
	}
}
