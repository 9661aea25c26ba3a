// Package hostns lets a process that was started in a container go on where the node's own processes are: it takes
// programs along to the host and enters the namespaces of the node's first process.
//
// It must not know what the programs are for.
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

// ErrRefused says that a process cannot go on on the host as things are.
var ErrRefused = errors.New("cannot go on on the host")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrRefused, fmt.Errorf(format, args...))
}

// What a pod has to say for a process of it to get on the host.
const (
	needsPIDs       = "the pod needs hostPID: true"
	needsPrivileges = "the container needs securityContext.privileged: true"
)

// CheckPIDs returns nil if the process First is the node's first, and not a container's: ErrRefused else, or if that
// cannot be seen. inPod tells that Kubernetes has started this process, or what started it, in a pod.
//
// Outside of any container it is nil.
func CheckPIDs(inPod bool) error {
	self, err := os.Readlink("/proc/self")
	switch pid := os.Getpid(); {
	case err != nil:
		return refuse("/proc is not to be seen: %w", err)
	case self != strconv.Itoa(pid):
		return refuse("/proc shows the processes of another PID namespace, where this one (%d) is %s; %s", pid, self, needsPIDs)
	case pid == First:
		return refuse("this is process %d, the first of a container, not of the node; %s", pid, needsPIDs)
	}
	top, err := ancestor(os.Getppid())
	for range 3 { // one that starts containers may end while it is looked at
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			top, err = ancestor(os.Getppid())
		}
	}
	switch {
	case err != nil:
		return refuse("/proc hides the processes of others: %w", err)
	case top != First: // one that does not come from the first process was put here from outside
		return refuse("process %d is not the node's first, but one of the pod's; %s", First, needsPIDs)
	}
	if !inPod {
		return nil
	}
	switch same, err := sameNamespace("mnt", First); {
	case err != nil:
		return err
	case same: // a pod's container never has the node's own mounts
		return refuse("process %d is the container's, not the node's; %s", First, needsPIDs)
	}
	return nil
}

// ancestor is the last process on the way up from a process that this PID namespace has.
func ancestor(pid int) (int, error) {
	for last := 0; ; {
		if pid == 0 {
			return last, nil
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		// "4711 (any) name) S 4710 ...": what follows the last parenthesis is the state, and the parent.
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

// The namespaces to enter, in this order: with the mounts goes the view of everything else.
var entered = []struct {
	name string
	flag int
}{
	{"cgroup", unix.CLONE_NEWCGROUP},
	{"ipc", unix.CLONE_NEWIPC},
	{"uts", unix.CLONE_NEWUTS},
	{"net", unix.CLONE_NEWNET},
	{"mnt", unix.CLONE_NEWNS},
}

// Host is the namespaces and the root directory of a process that stands for its node.
type Host struct {
	namespaces []namespace
	root       *os.File
}

type namespace struct {
	name string
	flag int
	file *os.File
}

// Open opens what a process has that the calling one has not, so that it can be entered. The error is ErrRefused, and
// says what the pod needs, if it cannot be: then nothing has changed.
func Open(pid int) (*Host, error) {
	// This one a process has for life.
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
	for _, ns := range entered {
		switch same, err := sameNamespace(ns.name, pid); {
		case err != nil:
			return err
		case same:
			continue
		}
		f, err := os.Open(namespacePath(strconv.Itoa(pid), ns.name))
		if err != nil {
			return unseen(pid, err)
		}
		h.namespaces = append(h.namespaces, namespace{ns.name, ns.flag, f})
	}
	root := fmt.Sprintf("/proc/%d/root", pid)
	theirs, err := os.Stat(root)
	if err != nil {
		return unseen(pid, err)
	}
	ours, err := os.Stat("/")
	if err != nil {
		return refuse("look at the root directory: %w", err)
	}
	if os.SameFile(ours, theirs) && !slices.Contains(h.Enters(), "mnt") {
		return nil
	}
	if h.root, err = os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
		return unseen(pid, err)
	}
	return nil
}

// unseen explains why something of a process cannot be looked at.
func unseen(pid int, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return refuse("process %d may not be looked at; %s: %w", pid, needsPrivileges, err)
	}
	return refuse("process %d is not to be seen in /proc: %w", pid, err)
}

func namespacePath(process, name string) string { return "/proc/" + process + "/ns/" + name }

// sameNamespace tells whether a process is in the namespace of this one. The error is ErrRefused.
func sameNamespace(name string, pid int) (bool, error) {
	ours, err := os.Stat(namespacePath("self", name))
	if err != nil {
		return false, refuse("/proc is not to be seen: %w", err)
	}
	theirs, err := os.Stat(namespacePath(strconv.Itoa(pid), name))
	if err != nil {
		return false, unseen(pid, err)
	}
	return os.SameFile(ours, theirs), nil
}

// Enters are the names of the namespaces that Enter enters; none where this process is on the host already.
func (h *Host) Enters() []string {
	var names []string
	for _, ns := range h.namespaces {
		names = append(names, ns.name)
	}
	return names
}

// Enter takes the calling goroutine to the host, for good, and locks it to its thread: the others stay where they are,
// so it is to end in an exec. After an error, which is ErrRefused, it may be half-way: the process is to end.
func (h *Host) Enter() error {
	runtime.LockOSThread()
	if h.root == nil && len(h.namespaces) == 0 {
		return nil
	}
	// The mount namespace can be changed only by who shares its root and working directory with no other thread.
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
	// The root of the namespace is not always that of its processes.
	if err := unix.Fchdir(int(h.root.Fd())); err != nil {
		return refuse("go to the host's root directory: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return refuse("take the host's root directory; %s: %w", needsPrivileges, err)
	}
	return nil
}

// Close lets go of what Open opened. What was entered stays so.
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

// Path is the PATH of a node's own services.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Environ is a container's environment without what is true in a pod only: where the API's Service is, as what runs on
// the host goes by a kubeconfig; and with the host's PATH.
func Environ(environ []string) []string {
	out := slices.DeleteFunc(slices.Clone(environ), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return name == "PATH" || name == "KUBERNETES_PORT" || strings.HasPrefix(name, "KUBERNETES_PORT_") ||
			strings.HasPrefix(name, "KUBERNETES_SERVICE_")
	})
	return append(out, "PATH="+Path)
}
