// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostns moves an agent that was started in a container of a pod into
// the namespaces of the host, and copies its programs to the host.
//
// It must not know what the programs do.
package hostns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// First is the node's first process, where its process IDs are seen.
const First = 1

// ErrRefused means that a process cannot move to the host.
var ErrRefused = errors.New("cannot move to the host")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrRefused, fmt.Errorf(format, args...))
}

// What a pod needs so that its processes can move to the host.
const (
	needsPIDs       = "the pod needs hostPID: true"
	needsPrivileges = "the container needs securityContext.privileged: true"
)

// CheckPIDs checks that the process First is the first process of the node, and
// not of a container. Otherwise, or if that is unknown, it returns ErrRefused.
// inPod says that Kubernetes started this process, or its parent, in a pod.
//
// Outside of containers the result is nil.
func CheckPIDs(inPod bool) error {
	self, err := os.Readlink("/proc/self")
	switch pid := os.Getpid(); {
	case err != nil:
		return refuse("/proc cannot be read: %w", err)
	case self != strconv.Itoa(pid):
		return refuse("/proc shows another PID namespace, in which this process (%d) has the ID %s; %s", pid, self, needsPIDs)
	case pid == First:
		return refuse("this process (%d) is the first of a container, not of the node; %s", pid, needsPIDs)
	}

	top, err := ancestor(os.Getppid())
	for range 3 { // a container runtime may end during the check
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			top, err = ancestor(os.Getppid())
		}
	}

	switch {
	case err != nil:
		return refuse("/proc hides other processes: %w", err)
	case top != First: // a process without First as its ancestor was put into this namespace from outside
		return refuse("process %d is the first of the pod, not of the node; %s", First, needsPIDs)
	}

	if !inPod {
		return nil
	}

	switch same, err := sameNamespace("mnt", First); {
	case err != nil:
		return err
	case same: // a container in a pod never has the mount namespace of the host
		return refuse("process %d is the container's, not the node's; %s", First, needsPIDs)
	}

	return nil
}

// ancestor returns the topmost ancestor of a process in this PID namespace.
func ancestor(pid int) (int, error) {
	for last := 0; ; {
		if pid == 0 {
			return last, nil
		}

		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}

		// "4711 (any) name) S 4710 ...": what follows the last parenthesis is
		// the state, and the parent.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 2 {
			return 0, fmt.Errorf("/proc/%d/stat: %q", pid, stat)
		}
		if last = pid; last == First {
			return last, nil
		}
		if pid, err = strconv.Atoi(fields[1]); err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", last, err)
		}
	}
}

// The namespaces to enter, in this order: after the mount namespace, /proc and
// the other paths are those of the host.
var namespaceTypes = []namespace{
	{name: "cgroup", flag: unix.CLONE_NEWCGROUP},
	{name: "ipc", flag: unix.CLONE_NEWIPC},
	{name: "uts", flag: unix.CLONE_NEWUTS},
	{name: "net", flag: unix.CLONE_NEWNET},
	{name: "mnt", flag: unix.CLONE_NEWNS},
}

// Host holds the open namespaces and root directory of a process of the host.
type Host struct {
	namespaces []namespace
	root       *os.File
}

type namespace struct {
	name string
	flag int
	file *os.File // of the process of the host; nil in namespaceTypes
}

// Open opens the namespaces and root directory of a process that differ from
// those of the calling process, so that Enter can enter them. The error is
// ErrRefused, and says what the pod needs; then nothing has changed.
func Open(pid int) (*Host, error) {
	// A process cannot change its PID namespace.
	switch same, err := sameNamespace("pid", pid); {
	case err != nil:
		return nil, err
	case !same:
		return nil, refuse("process %d is in another PID namespace; %s", pid, needsPIDs)
	}

	h := &Host{}
	if err := h.open(pid); err != nil {
		return nil, errors.Join(err, h.Close())
	}

	return h, nil
}

func (h *Host) open(pid int) error {
	for _, ns := range namespaceTypes {
		switch same, err := sameNamespace(ns.name, pid); {
		case err != nil:
			return err
		case same:
			continue
		}

		var err error
		if ns.file, err = os.Open(namespacePath(strconv.Itoa(pid), ns.name)); err != nil {
			return describeError(pid, err)
		}

		h.namespaces = append(h.namespaces, ns)
	}

	root := fmt.Sprintf("/proc/%d/root", pid)
	theirs, err := os.Stat(root)
	if err != nil {
		return describeError(pid, err)
	}

	ours, err := os.Stat("/")
	if err != nil {
		return refuse("stat the root directory: %w", err)
	}
	if os.SameFile(ours, theirs) && !slices.Contains(h.Enters(), "mnt") {
		return nil
	}
	if h.root, err = os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
		return describeError(pid, err)
	}

	return nil
}

// describeError says why a process cannot be inspected.
func describeError(pid int, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return refuse("process %d cannot be inspected; %s: %w", pid, needsPrivileges, err)
	}

	return refuse("process %d is not visible in /proc: %w", pid, err)
}

func namespacePath(process, name string) string { return "/proc/" + process + "/ns/" + name }

// sameNamespace reports whether a process is in the same namespace as this one.
// The error is ErrRefused.
func sameNamespace(name string, pid int) (bool, error) {
	ours, err := os.Stat(namespacePath("self", name))
	if err != nil {
		return false, refuse("/proc cannot be read: %w", err)
	}

	theirs, err := os.Stat(namespacePath(strconv.Itoa(pid), name))
	if err != nil {
		return false, describeError(pid, err)
	}

	return os.SameFile(ours, theirs), nil
}

// Enters returns the names of the namespaces that Enter enters; none if this
// process is already on the host.
func (h *Host) Enters() []string {
	var names []string
	for _, ns := range h.namespaces {
		names = append(names, ns.name)
	}

	return names
}

// Enter moves the calling goroutine to the host permanently, and locks it to
// its thread. Other threads do not move, so the caller must end in an exec.
// After an error, which is ErrRefused, the thread may be in some of the
// namespaces, and the process must exit.
func (h *Host) Enter() error {
	runtime.LockOSThread()
	if h.root == nil && len(h.namespaces) == 0 {
		return nil
	}
	// setns(2) into a mount namespace requires that no other thread shares the
	// root and working directory.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return refuse("unshare: %w", err)
	}

	for _, ns := range h.namespaces {
		if err := unix.Setns(int(ns.file.Fd()), ns.flag); err != nil {
			return refuse("enter the %s namespace; %s: %w", ns.name, needsPrivileges, err)
		}
	}

	if h.root == nil {
		return nil
	}
	// The root of a mount namespace may differ from the root of its processes.
	if err := unix.Fchdir(int(h.root.Fd())); err != nil {
		return refuse("change to the root directory of the host: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return refuse("chroot to the root directory of the host; %s: %w", needsPrivileges, err)
	}

	return nil
}

// Close closes what Open opened. Namespaces that were entered stay entered.
func (h *Host) Close() error {
	var errs []error
	for _, ns := range h.namespaces {
		errs = append(errs, ns.file.Close())
	}
	if h.root != nil {
		errs = append(errs, h.root.Close())
	}

	h.namespaces, h.root = nil, nil

	return errors.Join(errs...)
}

// Path is the PATH of services of the host.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Environ converts the environment of a container for the host: it removes the
// address of the Kubernetes Service, because programs on the host use a
// kubeconfig, and sets the PATH of the host.
func Environ(environ []string) []string {
	out := slices.DeleteFunc(slices.Clone(environ), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return name == "PATH" || name == "KUBERNETES_PORT" || strings.HasPrefix(name, "KUBERNETES_PORT_") ||
			strings.HasPrefix(name, "KUBERNETES_SERVICE_")
	})
	return append(out, "PATH="+Path)
}
