// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sweep removes what a dead local cluster left on the machine:
// containerd shims, pods, mounts, cgroups, network bridges. It works from the
// cluster's directory alone, because the process that made it may be dead.
//
// The package must not know how any of it is made.
package sweep

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/procs"
)

const (
	// Done is what the owner of a cluster sends to the guard when it has
	// cleaned up itself.
	Done = "done"
	// CgroupFile in a node's directory contains the name of its root cgroup.
	CgroupFile = "cgroup"
	// BridgeFile in a node's directory contains the name of its bridge and CNI
	// network.
	BridgeFile = "bridge"
	// timeout limits the time until killed processes have ended.
	timeout = 10 * time.Second
)

// Cluster removes everything of the cluster in dir, but not dir itself, and
// does not kill the processes in spared.
func Cluster(dir string, spared []int) error {
	errs := []error{killProcesses(dir, spared)}
	nodes, err := filepath.Glob(filepath.Join(dir, "nodes", "*"))
	errs = append(errs, err)
	for _, node := range nodes {
		errs = append(errs, Node(node))
	}

	return errors.Join(errs...)
}

// Node removes everything of the node in dir, but not dir itself. First it
// kills every process with a path in dir on its command line, also a kubelet or
// an agent of this node, but never the caller and its ancestors.
func Node(dir string) error {
	return errors.Join(
		killProcesses(dir, Ancestors()),
		removeCgroup(dir),
		unmount(dir),
		removeShimSockets(dir),
		removeNetwork(dir),
		removeLogLinks(dir),
	)
}

// Ancestors returns the process IDs of this process and its ancestors.
func Ancestors() []int {
	var pids []int
	for pid := os.Getpid(); pid > 0; pid = procs.Parent(pid) {
		pids = append(pids, pid)
	}

	return pids
}

// Processes returns those with dir, or a path in it, on their command line.
func Processes(dir string) []procs.Process {
	return slices.DeleteFunc(procs.All("/proc"), func(p procs.Process) bool {
		return !slices.ContainsFunc(p.Argv, func(arg string) bool { return strings.Contains(arg, dir+"/") || strings.HasSuffix(arg, dir) })
	})
}

func killProcesses(dir string, spared []int) error {
	return killAll(dir, func() (pids []int) {
		for _, p := range Processes(dir) {
			if !slices.Contains(spared, p.PID) {
				pids = append(pids, p.PID)
			}
		}

		return pids
	})
}

// killAll kills the processes that find returns, until it returns none: a dying
// process may have started another.
func killAll(dir string, find func() []int) error {
	return eventually(func() {
		pids := find()
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // fails only if it has ended
		}

		must.That(len(pids) == 0, "processes of %s did not end: %v", dir, pids)
	})
}

// eventually calls try until it does not end at an error.
func eventually(try func()) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(timeout)
	for {
		err := must.Try(try)
		if err == nil || time.Now().After(deadline) {
			return err
		}

		<-tick.C
	}
}

// removeCgroup kills what runs in the node's cgroup and removes it, in every
// hierarchy.
func removeCgroup(dir string) (err error) {
	defer must.Catch(&err)

	name := must.Get(readSweepFile(dir, CgroupFile))
	if name == "" {
		return nil
	}

	var errs []error
	for _, m := range must.Get(Mounts()) {
		if m.Type != "cgroup" && m.Type != "cgroup2" {
			continue
		}

		root := filepath.Join(m.Path, name)
		errs = append(errs, killAll(dir, func() []int { return cgroupProcesses(root) }), RemoveCgroup(root))
	}

	return errors.Join(errs...)
}

func cgroupProcesses(root string) (pids []int) {
	must.OK(filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil || entry.Name() != "cgroup.procs" {
			return err
		}

		data, err := os.ReadFile(path)
		if err != nil {
			return nil // the cgroup is gone, or is a threaded one
		}

		for field := range strings.FieldsSeq(string(data)) {
			// Zero is a process outside of this PID namespace; kill(0) would
			// kill our own group.
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}

		return nil
	}))

	return pids
}

// RemoveCgroup removes a cgroup and its descendants as soon as their last
// process has ended.
func RemoveCgroup(root string) error {
	return eventually(func() { removeDirs(root) })
}

// removeDirs removes a tree of directories without removing files: the files of
// a cgroup disappear with it.
func removeDirs(root string) {
	entries, err := os.ReadDir(root)
	must.That(err == nil || errors.Is(err, os.ErrNotExist), "%w", err)
	for _, entry := range entries {
		if entry.IsDir() {
			removeDirs(filepath.Join(root, entry.Name()))
		}
	}

	err = unix.Rmdir(root)
	must.That(err == nil || errors.Is(err, unix.ENOENT), "remove cgroup %s: %w", root, err)
}

// Mount is one line of /proc/self/mounts.
type Mount struct{ Path, Type string }

// Mounts returns the mounts that this process sees, in the order in which they
// were made.
func Mounts() ([]Mount, error) {
	data, err := os.ReadFile("/proc/self/mounts")
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var mounts []Mount
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line) // device, path, type and so on
		mounts = append(mounts, Mount{Path: unescape.Replace(fields[1]), Type: fields[2]})
	}

	return mounts, err
}

func unmount(dir string) error {
	return eventually(func() {
		var errs []error
		for _, m := range slices.Backward(must.Get(Mounts())) {
			if !strings.HasPrefix(m.Path, dir+"/") {
				continue
			}
			if err := unix.Unmount(m.Path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
				errs = append(errs, fmt.Errorf("unmount %s: %w", m.Path, err))
			}
		}

		must.OK(errors.Join(errs...))
	})
}

// removeShimSockets removes the sockets of killed shims. They are in a
// directory that all containerd instances share; a file beside each container
// has the socket's path.
func removeShimSockets(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "containerd", "state", "io.containerd.runtime.v2.task", "*", "*", "address"))
	errs := []error{err}
	for _, file := range files {
		address, err := os.ReadFile(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}

		errs = append(errs, removeFile(strings.TrimPrefix(strings.TrimSpace(string(address)), "unix://")))
	}

	return errors.Join(errs...)
}

// removeNetwork removes the node's bridge, and CNI's stored results for the
// node's pods.
func removeNetwork(dir string) (err error) {
	defer must.Catch(&err)

	name := must.Get(readSweepFile(dir, BridgeFile))
	if name == "" {
		return nil
	}

	results, err := filepath.Glob(filepath.Join("/var/lib/cni/results", name+"-*"))
	errs := []error{RemoveBridge(name), err}
	for _, result := range results {
		// Every sandbox has a second result, for its loopback interface, under
		// a name that all nodes share.
		sandbox := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(result), name+"-"), "-eth0")
		loopback := filepath.Join(filepath.Dir(result), "cni-loopback-"+sandbox+"-lo")
		errs = append(errs, removeFile(result), removeFile(loopback))
	}

	return errors.Join(errs...)
}

// removeLogLinks removes the kubelet's links to this node's logs; their
// directory is fixed in the kubelet.
func removeLogLinks(dir string) error {
	links, err := filepath.Glob("/var/log/containers/*")
	errs := []error{err}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, dir+"/") {
			errs = append(errs, removeFile(link))
		}
	}

	return errors.Join(errs...)
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}

	return nil
}

// readSweepFile reads a file that a node writes before it creates what the file
// names; "" means that there is nothing to remove.
func readSweepFile(dir, name string) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}

	return strings.TrimSpace(string(data)), err
}

// AddBridge creates a network bridge. The error is unix.EEXIST if an interface
// of that name exists.
func AddBridge(name string) error {
	return withSocket(name, func(socket int) error { return bridgeCall(socket, unix.SIOCBRADDBR, name) })
}

// RemoveBridge takes a network bridge down and removes it. A missing bridge is
// not an error.
func RemoveBridge(name string) error {
	return withSocket(name, func(socket int) error {
		request, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}

		request.SetUint16(0) // without IFF_UP, because a bridge that is up cannot be removed
		err = unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
		if err == nil {
			err = bridgeCall(socket, unix.SIOCBRDELBR, name)
		}
		if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
			return nil
		}

		return err
	})
}

func withSocket(name string, do func(socket int) error) (err error) {
	defer must.Catch(&err)

	must.About("bridge "+name, func() {
		socket := must.Get(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))
		must.OK(errors.Join(do(socket), unix.Close(socket)))
	})

	return nil
}

// bridgeCall passes a plain name; x/sys has no wrapper for that.
func bridgeCall(socket int, call uint, name string) error {
	bytes, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), uintptr(call), uintptr(unsafe.Pointer(bytes))); errno != 0 {
		return errno
	}

	return nil
}
