// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package hostns

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// doVar makes this test binary carry out a command instead of the tests.
const doVar = "HOSTNS_TEST"

func TestMain(m *testing.M) {
	if do := os.Getenv(doVar); do != "" {
		fmt.Println("refused:", carryOut(do, os.Args[1:]))
		os.Exit(1)
	}

	os.Exit(m.Run())
}

// carryOut acts as the first process of a container: check; or drop, and print
// the status of each thread; or enter PID; or exec PID, with the arguments DIR
// PROGRAM ARG...
func carryOut(do string, args []string) (err error) {
	defer must.Catch(&err)

	switch do {
	case "check":
		return CheckPIDs(false)
	case "check in a pod":
		return CheckPIDs(true)
	case "drop again":
		must.OK(Drop())
		return Drop()
	case "drop":
		must.OK(Drop())
		for _, task := range must.Get(filepath.Glob("/proc/self/task/*/status")) { // each thread
			fmt.Print(string(must.Get(os.ReadFile(task))))
		}

		return nil
	}

	do, pid, _ := strings.Cut(do, " ")
	host := must.Get(Open(must.Get(strconv.Atoi(pid))))
	if do == "enter" {
		return host.Enter()
	}

	p := must.Get(OpenProgram(args[1]))
	must.OK(host.Enter())
	bin := must.Get(OpenBin(args[0]))
	path := must.Get(bin.Put(p))

	return syscall.Exec(path, append([]string{path}, args[2:]...), Environ(os.Environ()))
}

// again returns a command that starts this test binary with doVar.
func again(t *testing.T, do string, before ...string) *exec.Cmd {
	t.Helper()
	exe := assert.Value(os.Executable())(t)
	argv := append(before, exe)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), doVar+"="+do)

	return cmd
}

// process runs until the test ends.
type process struct {
	*exec.Cmd
	said *bufio.Reader
}

func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	needRoot(t)
	out := assert.Value(cmd.StdoutPipe())(t)
	cmd.Stderr = os.Stderr
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}

	cmd.SysProcAttr.Setpgid = true
	assert.NoError(t, cmd.Start())
	kill := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // with what it has started
	t.Cleanup(func() {
		kill()
		_ = cmd.Wait()
	})
	stop := time.AfterFunc(30*time.Second, kill) // so that no test hangs on what it says
	t.Cleanup(func() { stop.Stop() })

	return &process{cmd, bufio.NewReader(out)}
}

func needRoot(t *testing.T) {
	t.Helper()
	localcluster.SkipShort(t)
	if os.Getuid() != 0 {
		t.Skip("only root can make namespaces and mounts")
	}
}

// line returns the next line of output.
func (p *process) line(t *testing.T) string {
	t.Helper()
	line, err := p.said.ReadString('\n')
	assert.Must(t, err == nil || errors.Is(err, io.EOF), "%v", err)

	return strings.TrimSpace(line)
}

// write creates an executable.
func write(t *testing.T, path, content string) string {
	t.Helper()
	assert.NoError(t, os.WriteFile(path, []byte(content), 0o755))
	return path
}

// shell starts a script in new namespaces, and waits until it prints "ready".
func shell(t *testing.T, flags uintptr, script string) *process {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-ec", "mount --make-rprivate /\n"+script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags | syscall.CLONE_NEWNS}
	p := start(t, cmd)
	got := p.line(t)
	assert.Must(t, got == "ready", "the script printed %q", got)

	return p
}

// wantRefused requires ErrRefused with these words.
func wantRefused(t *testing.T, err error, words ...string) {
	t.Helper()
	assert.Must(t, errors.Is(err, ErrRefused), "error %v, want one that is ErrRefused", err)
	says(t, err.Error(), words...)
}

func says(t *testing.T, got string, words ...string) {
	t.Helper()
	for _, w := range words {
		assert.That(t, strings.Contains(got, w), "%q does not say %q", got, w)
	}
}
