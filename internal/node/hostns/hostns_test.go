// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package hostns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// program prints where it runs, and exits with status 7 on SIGTERM.
const program = `#!/bin/sh
trap 'echo told to stop; exit 7' TERM
echo "process $$ $0 $*"
echo "environment $PATH $KUBERNETES_SERVICE_HOST $MINE"
echo "$(cat "$1") in $(pwd) as $(hostname)"
echo ready
while :; do sleep 600 & wait $!; done
`

// onHost starts the program in a container, from which it moves to the host,
// and returns what it printed.
func onHost(t *testing.T, host *process, dir string) (p *process, said []string) {
	t.Helper()
	image := t.TempDir()
	exe := assert.Value(os.Executable())(t)
	script := write(t, filepath.Join(t.TempDir(), "program"), program)
	// The host does not see the files of the image, and the image does not see
	// those of the host.
	cmd := exec.Command("/bin/sh", "-ec", `mount --make-rprivate /
		mount -t tmpfs none "$0"; cp "$1" "$0/program"; hostname container; cd "$0"; shift; exec "$@"`,
		image, script, exe, dir+"/bin", image+"/program", dir+"/file", "argument")
	cmd.Env = append(os.Environ(), doVar+"=exec "+strconv.Itoa(host.Process.Pid), "KUBERNETES_SERVICE_HOST=10.0.0.1", "MINE=kept")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS |
		syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWCGROUP}
	p = start(t, cmd)
	for line := p.line(t); line != "ready"; line = p.line(t) {
		if said = append(said, line); line == "" {
			t.Fatalf("it says %q and ends", said)
		}
	}

	return p, said
}

func TestProcessMovesFromContainerToHost(t *testing.T) {
	dir := t.TempDir()
	host := shell(t, syscall.CLONE_NEWUTS|syscall.CLONE_NEWIPC,
		fmt.Sprintf("mount -t tmpfs -o mode=755 none %[1]s; echo from the host >%[1]s/file; hostname the-host; echo ready; exec sleep 600", dir))
	p, said := onHost(t, host, dir)

	copied, err := filepath.Glob(fmt.Sprintf("/proc/%d/root%s/bin/program-*", host.Process.Pid, dir))
	assert.Must(t, err == nil && len(copied) == 1 && strings.HasPrefix(filepath.Base(copied[0]), "program-"), "copies on the host: %q, %v", copied, err)
	want := []string{
		fmt.Sprintf("process %d %s/bin/%s %s/file argument", p.Process.Pid, dir, filepath.Base(copied[0]), dir),
		"environment " + Path + "  kept",
		"from the host in / as the-host",
	}
	assert.NoDiff(t, cmp.Diff(want, said))
	for _, ns := range namespaceTypes {
		theirs, _ := os.Readlink(namespacePath(strconv.Itoa(host.Process.Pid), ns.name))
		assert.Returns(t, theirs, "it is in, the host in")(os.Readlink(namespacePath(strconv.Itoa(p.Process.Pid), ns.name)))
	}

	assert.NoError(t, p.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, p.line(t), "told to stop", "on SIGTERM it says")
	err = p.Wait()
	assert.That(t, p.ProcessState.ExitCode() == 7, "it ended with %v, want its own exit status 7", err)
}

func TestEnterTakesTheRootDirectoryOfTheHost(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	host := shell(t, 0, fmt.Sprintf(`mkdir %[2]s; mount --bind / %[2]s; mount -t tmpfs -o mode=755 none %[2]s%[1]s
		echo in its root >%[2]s%[1]s/file; mount -t proc none %[2]s/proc; exec chroot %[2]s sh -c 'echo ready; exec sleep 600'`, dir, root))
	_, said := onHost(t, host, dir)
	want := "in its root in / as "
	assert.That(t, len(said) == 3 && strings.HasPrefix(said[2], want), "it says %q, want %q", said, want)
}

func TestEnterDoesNothingOnTheHost(t *testing.T) {
	host := assert.Value(Open(os.Getpid()))(t)
	got := host.Enters()
	assert.That(t, len(got) == 0, "enters %q", got)
	done := make(chan error)
	go func() { done <- host.Enter() }() // its thread ends with it
	assert.NoError(t, <-done, "Enter")
	assert.NoError(t, host.Close(), "Close")
	assert.NoError(t, CheckPIDs(false), "CheckPIDs")
}

func TestProcessThatCannotMoveToTheHostIsRefused(t *testing.T) {
	host := strconv.Itoa(shell(t, 0, "echo ready; exec sleep 600").Process.Pid)
	// A pod that shares its processes.
	pod := strconv.Itoa(shell(t, syscall.CLONE_NEWPID, "mount -t proc none /proc; echo ready; exec sleep 600").Process.Pid)
	const own = `mount --make-rprivate /; mount -t proc none /proc; `
	const cannot = "refused: cannot move to the host: "
	script := func(text string) []string { return []string{"/bin/sh", "-ec", text} }
	for _, tt := range []struct {
		name, do string
		before   []string
		flags    uintptr
		words    []string
	}{
		{"the container's first process", "check", script(own + `exec "$0"`), syscall.CLONE_NEWPID,
			[]string{"this process (1) is the first of a container", "hostPID: true"}},
		{"below a container's shell", "check in a pod", script(own + `"$0"; exit`), syscall.CLONE_NEWPID,
			[]string{"process 1 is the container's, not the node's", "hostPID: true"}},
		{"below a node's first process that is itself in a container", "check", script(own + `"$0"; exit`), syscall.CLONE_NEWPID,
			[]string{"refused: <nil>"}},
		{"a pod that shares its processes", "check", []string{"nsenter", "--target=" + pod, "--pid", "--mount"}, 0,
			[]string{"process 1 is the first of the pod, not of the node", "hostPID: true"}},
		{"the host's /proc without its processes", "check", script(`exec "$0"`), syscall.CLONE_NEWPID,
			[]string{"/proc shows another PID namespace, in which this process (1) has the ID ", "hostPID: true"}},
		{"no /proc", "check", script(`mount --make-rprivate /; mount -t tmpfs none /proc; exec "$0"`), 0,
			[]string{"/proc cannot be read", "no such file"}},
		{"a /proc that hides others", "check", script(`mount --make-rprivate /; mount -t proc -o hidepid=2 none /proc; exec setpriv --reuid=65534 --regid=65534 --clear-groups "$0"`), 0,
			[]string{"/proc hides other processes", "no such file"}},

		{"no capabilities", "enter " + host, []string{"setpriv", "--bounding-set=-sys_admin"}, 0,
			[]string{cannot, "enter the mnt namespace", "privileged: true", "operation not permitted"}},
		{"another user", "enter " + host, []string{"setpriv", "--reuid=65534", "--clear-groups"}, 0,
			[]string{cannot + "process " + host + " cannot be inspected", "privileged: true", "permission denied"}},
		{"no such process", "enter 999999999", nil, 0, []string{cannot + "process 999999999 is not visible in /proc", "no such file"}},
		{"another PID namespace", "enter " + pod, nil, 0, []string{cannot, "is in another PID namespace", "hostPID: true"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := again(t, tt.do, tt.before...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: tt.flags | syscall.CLONE_NEWNS}
			says(t, start(t, cmd).line(t), append(tt.words, "refused: ")...)
		})
	}
}

func TestEnvironRemovesVariablesOfThePod(t *testing.T) {
	got := Environ([]string{"A=1", "PATH=/bin", "KUBERNETES_SERVICE_HOST=10.0.0.1", "KUBERNETES_SERVICE_PORT_HTTPS=443", "KUBERNETES_PORT=tcp://10.0.0.1:443",
		"KUBERNETES_PORT_443_TCP=x", "KUBERNETES_PORTAL=mine", "HOME=/", "PATHS=x"})
	want := []string{"A=1", "KUBERNETES_PORTAL=mine", "HOME=/", "PATHS=x", "PATH=" + Path}
	assert.NoDiff(t, cmp.Diff(want, got))
}

func TestHostCanBeClosedTwice(t *testing.T) {
	host := shell(t, 0, "echo ready; exec sleep 600")
	h := assert.Value(Open(host.Process.Pid))(t)
	got := h.Enters()
	assert.That(t, slices.Equal(got, []string{"mnt"}), "enters %q, want the mounts alone", got)
	assert.NoError(t, errors.Join(h.Close(), h.Close()))
}

// noCgo skips a test of a program that uses cgo.
func noCgo(t *testing.T, out []byte) {
	t.Helper()
	if strings.Contains(string(out), syscall.ENOTSUP.Error()) {
		t.Skip("this program uses cgo: set CGO_ENABLED=0")
	}
}

func TestDropLeavesNoThreadWithPrivileges(t *testing.T) {
	needRoot(t)
	out, _ := again(t, "drop").CombinedOutput() // its exit code is always 1
	noCgo(t, out)
	want := map[string]string{
		"Uid": "65534 65534 65534 65534", "Gid": "65534 65534 65534 65534", "Groups": "", "NoNewPrivs": "1",
		"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapAmb": "0000000000000000",
	}
	found := map[string]int{}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(line, ":")
		if want, ok := want[name]; ok {
			found[name]++
			assert.Equal(t, strings.Join(strings.Fields(value), " "), want, name)
		}
	}

	for name := range want {
		if found[name] < 2 || found[name] != found["Uid"] { // Go programs have several threads
			t.Errorf("%s is there %d times:\n%s", name, found[name], out)
		}
	}
}

func TestDropReportsAMissingPrivilege(t *testing.T) {
	needRoot(t)
	out, _ := again(t, "drop again").CombinedOutput() // its exit code is always 1
	noCgo(t, out)
	says(t, string(out), "refused: leave all groups: operation not permitted")
}
