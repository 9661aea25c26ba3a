// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/program"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// onNode runs a script that is the first process of a node with its own
// processes and mounts; $DIR, dir, is a directory with a file system of the
// node's alone, and "$@" is evenkeel-agent on-host. It returns what was said,
// and the exit status.
func onNode(t *testing.T, dir, script string, args ...string) (said string, code int) {
	t.Helper()
	localcluster.SkipShort(t)
	if os.Getuid() != 0 {
		t.Skip("only root can make namespaces and mounts")
	}

	exe := assert.Value(os.Executable())(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", `set -e; mount --make-rprivate /; mount -t proc none /proc
		mount -t tmpfs -o mode=755 none "$DIR"; echo the host >"$DIR/file"; `+script, "sh", exe)
	cmd.Args = append(cmd.Args, args...)
	cmd.Env = append(os.Environ(), mainVar+"=1", "DIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	assert.Must(t, cmd.ProcessState != nil, "%v", err)

	return string(out), cmd.ProcessState.ExitCode()
}

// image is a directory with an agent that says how it was started, and a
// kubelet.
func image(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"agent":   "#!/bin/sh\necho \"agent $0 $* in $(cat \"$DIR/file\"), API ${KUBERNETES_SERVICE_HOST-none}\"; exit 9\n",
		"broken":  "#!/not/there\n",
		"kubelet": "#!/bin/sh\n",
	} {
		assert.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755))
	}

	return dir
}

// A container: with mounts of its own, in which the file says so.
const container = `export KUBERNETES_SERVICE_HOST=10.0.0.1; unshare --mount --uts --ipc --net --cgroup \
	sh -ec 'mount -t tmpfs none "$DIR"; echo the container >"$DIR/file"; exec "$@"' sh "$@"; `

func TestOnHostBecomesTheAgentOnTheHostWithTheCopiedKubelet(t *testing.T) {
	dir := image(t)
	for _, tt := range []struct{ name, script, entered string }{
		{"in a pod", container, "the host, API none"},
		{"in a pod that is started again", container + container, "the host, API none"},
		{"on the host already", `"$@"; `, "the host, API none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bin := filepath.Join(t.TempDir(), "bin")
			said, code := onNode(t, t.TempDir(), "set +e; "+tt.script+"exit", "on-host", "--bin-dir="+bin, "--",
				dir+"/agent", "--lock-file=/l", "--", dir+"/kubelet", "--v=2", "--", "more")
			copies, err := filepath.Glob(bin + "/*-*")
			assert.Must(t, err == nil && len(copies) == 2, "copies: %q, %v; it said %s", copies, err, said)
			want := fmt.Sprintf("agent %s --lock-file=/l -- %s --v=2 -- more in %s\n", copies[0], copies[1], tt.entered)
			assert.That(t, strings.Contains(said, want) && code == 9, "exit status %d, and it said\n%swant %s", code, said, want)
			want = fmt.Sprintf("level=INFO msg=\"moved to the host\" agent=%s kubelet=%s\n", copies[0], copies[1])
			assert.That(t, strings.Contains(said, want), "it does not say %s", want)
		})
	}
}

func TestOnHostCarriesOutACommandOfTheAgentWithTheAgentAlone(t *testing.T) {
	dir, bin := image(t), filepath.Join(t.TempDir(), "bin")
	said, code := onNode(t, t.TempDir(), "set +e; "+container+"exit", "on-host", "--bin-dir="+bin, "--",
		dir+"/agent", "install", "--stay", "--", "--listen=:1", "--", dir+"/kubelet")
	copies, err := filepath.Glob(bin + "/*-*")
	assert.Must(t, err == nil && len(copies) == 1, "copies: %q, %v; it said %s", copies, err, said)
	want := fmt.Sprintf("agent %s install --stay -- --listen=:1 -- %s/kubelet in the host, API none\n", copies[0], dir)
	assert.That(t, strings.Contains(said, want) && code == 9, "exit status %d, and it said\n%swant %s", code, said, want)
	want = fmt.Sprintf("level=INFO msg=\"moved to the host\" agent=%s command=install\n", copies[0])
	assert.That(t, strings.Contains(said, want), "it does not say %s", want)
}

func TestOnHostKeepsTheAgentsThatAUnitOrAChangeMayStartNext(t *testing.T) {
	dir, host := image(t), t.TempDir()
	bin := t.TempDir()
	var names []string
	for i, use := range []string{"a drop-in", "a unit", "a record", "nothing"} {
		path := fmt.Sprintf("%s/agent-%012x", bin, i)
		when := time.Now().Add(-time.Duration(i+1) * time.Hour)
		assert.NoError(t, errors.Join(os.WriteFile(path, []byte(use), 0o755), os.Chtimes(path, when, when)))
		names = append(names, path)
	}

	said, code := onNode(t, host, `mount -t tmpfs none /etc/systemd; mount -t tmpfs none /var/lib
		mkdir -p /etc/systemd/system/kubelet.service.d /etc/systemd/system/other.service.d /var/lib/evenkeel-install
		ln -s /nowhere /etc/systemd/system/gone.service
		echo "ExecStart=`+names[0]+` -- /usr/bin/kubelet" >/etc/systemd/system/kubelet.service.d/90-evenkeel.conf
		echo "ExecStart=-`+names[1]+`" >/etc/systemd/system/mine.service
		echo '{"from": "ExecStart=`+names[2]+` -- /usr/bin/kubelet"}' >/var/lib/evenkeel-install/kubelet.service.json
		set +e; `+container+`exit`, "on-host", "--bin-dir="+bin, "--keep=1", "--", dir+"/agent", "install")
	assert.Must(t, code == 9, "exit status %d: %s", code, said)
	for i, path := range names {
		_, err := os.Stat(path)
		assert.That(t, (err == nil) == (i < 3), "%d: %v; it said %s", i, err, said)
	}
}

func TestOnHostSaysWhatThePodLacksWithAnExitCodeOfItsOwn(t *testing.T) {
	dir := image(t)
	for _, tt := range []struct{ name, script, agent, words string }{
		{"no hostPID", `export KUBERNETES_SERVICE_HOST=10.0.0.1; exec "$@"`, "agent",
			"evenkeel-agent: cannot move to the host: this process (1) is the first of a container, not of the node; the pod needs hostPID: true\n"},
		{"not privileged", `unshare --mount setpriv --bounding-set=-sys_admin "$@"; exit`, "agent",
			"evenkeel-agent: cannot move to the host: enter the mnt namespace; the container needs securityContext.privileged: true: operation not permitted\n"},
		{"without any capability", `unshare --mount setpriv --bounding-set=-all "$@"; exit`, "agent",
			"evenkeel-agent: cannot move to the host: process 1 cannot be inspected; the container needs securityContext.privileged: true: "},
		{"noexec", `mount -o remount,noexec "$DIR"; unshare --mount "$@"; exit`, "agent", "is on a file system of the host that is mounted noexec; use another directory\n"},
		{"full", `mount -o remount,size=4k "$DIR"; unshare --mount "$@"; exit`, "agent", "no space left on device\n"},
		{"a program that needs what the image has", `"$@"; exit`, "broken", "(it must not depend on libraries of the image): no such file or directory\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host := t.TempDir()
			said, code := onNode(t, host, "set +e; "+tt.script, "on-host", "--bin-dir="+host+"/bin", "--", dir+"/"+tt.agent, "--", dir+"/kubelet")
			assert.That(t, strings.Contains(said, tt.words) && code == exitNotOnHost,
				"exit status %d, and it said %q, want %d and %q", code, said, exitNotOnHost, tt.words)
		})
	}
}

func TestOnHostTakesTwoCommandLinesOfProgramsThatAreThere(t *testing.T) {
	dir := image(t)
	agent, kubelet := dir+"/agent", dir+"/kubelet"
	const shape = "on-host takes the agent's and the kubelet's command line: "
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, shape},
		{[]string{"--", agent}, shape},
		{[]string{"--", agent, "--"}, shape},
		{[]string{"--", "--", kubelet}, shape},
		{[]string{"--", agent, ""}, shape},
		{[]string{agent, "install"}, shape},
		{[]string{"--", agent, "--stay"}, shape},
		{[]string{agent, "--", kubelet, "--", kubelet}, shape},
		{[]string{"--bin-dir=bin", "--", agent, "--", kubelet}, `--bin-dir must be an absolute path, not "bin"`},
		{[]string{"--keep=0", "--", agent, "--", kubelet}, "--keep must be 1 or more, not 0"},
		{[]string{"--", "agent", "--", kubelet}, `program "agent": not an absolute path`},
		{[]string{"--", agent, "--", dir + "/none"}, "program: open " + dir + "/none: no such file or directory"},
		{[]string{"--pid=1", "--", agent, "--", kubelet}, "unknown flag: --pid; see evenkeel-agent on-host --help"},
	} {
		_, err := runs(t, append([]string{"on-host"}, c.args...)...)
		wantUsage(t, err, c.want)
	}
}

func TestOnHostThatIsToldToStopBeforeItIsThereStops(t *testing.T) {
	dir := image(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := command()
	c.SetArgs([]string{"on-host", "--", dir + "/agent", "--", dir + "/kubelet"})
	assert.OK(t, c.ExecuteContext(ctx))
}

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
