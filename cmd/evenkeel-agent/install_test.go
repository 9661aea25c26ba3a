// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/internal/program"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

func TestTheAgentRemembersUnlessItIsToldWhere(t *testing.T) {
	for _, c := range []struct{ flags, want string }{
		{"", "--dynamic-config-dir=/var/lib/evenkeel"},
		{"--dynamic-config-dir=/d", "--dynamic-config-dir=/d"},
		{"--dynamic-config-dir", "--dynamic-config-dir"},
	} {
		var flags []string
		if c.flags != "" {
			flags = []string{c.flags}
		}

		got := withStateDir(flags)
		assert.That(t, len(got) == 1 && got[0] == c.want, "%q becomes %q, want %q", flags, got, c.want)
	}
}

func TestACommandLineThatTheAgentWouldNotTakeIsNoWrongUsageOfInstall(t *testing.T) {
	kubelet := filepath.Join(t.TempDir(), "kubelet")
	for _, c := range []struct {
		argv []string
		want string
	}{
		{[]string{kubelet, "stray"}, `kubelet command line: the kubelet takes only flags, but "stray" is not a flag`},
		{[]string{kubelet, "--exit-on-lock-contention", "--lock-file=/run/x"}, "install does not support a kubelet with --exit-on-lock-contention: it releases its node to other processes"},
		{[]string{kubelet, "--exit-on-lock-contention"}, "the kubelet's --exit-on-lock-contention needs --lock-file"},
		{[]string{kubelet}, "there is no kubelet at " + kubelet + ": file does not exist"},
	} {
		_, err := checkAgent(t.Context(), []string{"--listen="}, c.argv, false)
		if coded := (*program.Exit)(nil); err == nil || err.Error() != c.want || !errors.As(withChangeCode(err), &coded) || coded.Code != program.ExitError {
			t.Errorf("%q: %v, want %s", c.argv, err, c.want)
		}
	}
}

func TestWhatTheAgentMakesUpForDoesNotCountWithoutIt(t *testing.T) {
	localcluster.SkipShort(t)
	kubelet := assert.Value(filepath.Abs("../../bin/tools/kubelet"))(t)
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\ncontainerRuntimeEndpoint: unix:///nowhere.sock\n"
	dir := t.TempDir()
	own, init := filepath.Join(dir, "own.yaml"), filepath.Join(dir, "init")
	assert.NoError(t, errors.Join(os.WriteFile(own, []byte(head+"maxPods: -5\n"), 0o600), os.Mkdir(init, 0o700),
		os.WriteFile(filepath.Join(init, "kubelet"), []byte(head+"healthzPort: 10333\n"), 0o600)))
	argv := []string{kubelet, "--config=" + own, "--hostname-override=n"}
	want := "its local configuration (" + own + ") is rejected: "
	for _, c := range []struct{ flag, healthz string }{
		{"--init-config-dir=" + init, "http://127.0.0.1:10333/healthz"},
		{"--local-invalid=degrade", "http://127.0.0.1:10248/healthz"},
	} {
		with, err := checkAgent(t.Context(), []string{c.flag}, argv, false)
		assert.That(t, err == nil && with.Target.Healthz == c.healthz, "%s, with the agent: %+v, %v", c.flag, with, err)

		_, err = checkAgent(t.Context(), []string{c.flag}, argv, true)
		assert.That(t, err != nil && strings.HasPrefix(err.Error(), want), "%s, without it: %v, want %s", c.flag, err, want)
	}
}
