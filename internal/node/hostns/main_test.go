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

// carryOut acts as the first process of a container: check; or enter PID; or
// exec PID DIR PROGRAM ARG...
func carryOut(do string, args []string) error {
	if do == "check" || do == "check in a pod" {
		return CheckPIDs(do != "check")
	}

	if do == "drop" || do == "drop again" {
		if err := Drop(); err != nil {
			return err
		}
		if do == "drop again" {
			return Drop()
		}

		return printStatus()
	}

	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}

	host, err := Open(pid)
	if err != nil {
		return err
	}
	if do == "enter" {
		return host.Enter()
	}

	p, err := OpenProgram(args[2])
	if err != nil {
		return err
	}
	if err := host.Enter(); err != nil {
		return err
	}

	bin, err := OpenBin(args[1])
	if err != nil {
		return err
	}

	path, err := bin.Put(p)
	if err != nil {
		return err
	}

	return syscall.Exec(path, append([]string{path}, args[3:]...), Environ(os.Environ()))
}

// printStatus prints the kernel's status of every thread of this process.
func printStatus() error {
	tasks, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		return err
	}

	for _, task := range tasks {
		raw, err := os.ReadFile(task)
		if err != nil {
			return err
		}

		fmt.Print(string(raw))
	}

	return nil
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
