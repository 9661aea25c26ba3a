// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/podguard"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// capacity measures what the starting kubelet would measure.
func (m Machine) capacity(in *podguard.Input) {
	capacity := corev1.ResourceList{}
	set := func(name corev1.ResourceName, value int64, format resource.Format) {
		if value > 0 {
			capacity[name] = *resource.NewQuantity(value, format)
		}
	}
	set(corev1.ResourceCPU, int64(in.Machine.OnlineCPUs.Size()), resource.DecimalSI)
	set(corev1.ResourceMemory, m.meminfo()["MemTotal"], resource.BinarySI)
	disk, _ := filesystem(m.KubeletDir)
	set(corev1.ResourceEphemeralStorage, disk.Capacity, resource.BinarySI)
	in.Machine.Capacity = capacity
	in.Machine.ThreadsPerCore = m.cpus("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list").Size()
	nodes, _ := filepath.Glob(m.Root + "/sys/devices/system/node/node[0-9]*") // the pattern is valid
	in.Machine.NUMANodes = len(nodes)
	in.Machine.NoAppArmor = !strings.HasPrefix(m.text("/sys/module/apparmor/parameters/enabled"), "Y")
}

// Total returns the capacity that the starting kubelet would measure, and the
// number of PIDs. What cannot be measured is 0.
func (m Machine) Total() payload.Capacity {
	var in podguard.Input
	in.Machine.OnlineCPUs = m.cpus(onlineCPUs)
	m.capacity(&in)
	total := payload.CapacityOf(in.Machine.Capacity)
	total.PIDs = m.pids().Capacity

	return total
}

// cpus returns the CPUs in a file of the kernel; empty if it cannot be read.
func (m Machine) cpus(path string) cpuset.CPUSet {
	cpus, _ := podguard.ParseCPUSet(m.text(path)) // after an error it is empty
	return cpus
}

// usage measures the signals of the kubelet's eviction manager, except those of
// the container runtime.
func (m Machine) usage(config component.Effective) podguard.Usage {
	var u podguard.Usage
	u.NodeFS, u.NodeFSInodes = filesystem(m.KubeletDir)
	meminfo := m.meminfo()
	if total := meminfo["MemTotal"]; total > 0 {
		// The kubelet counts the working set of the root cgroup, which is the
		// used memory without the inactive page cache.
		used, inactive := m.cgroupMemory("/")
		used = cmp.Or(used, total-meminfo["MemFree"])
		if inactive > 0 {
			u.Memory = podguard.Level{Capacity: total, Available: max(0, total-max(0, used-inactive))}
		}
	}

	for _, name := range kubepods(config.String("cgroupRoot")) {
		if used, inactive := m.cgroupMemory(name); used > 0 {
			u.KubepodsWorkingSet = max(0, used-inactive)
			break
		}
	}

	u.PIDs = m.pids()

	return u
}

// kubepods returns the names that the cgroup of all pods has with the drivers
// systemd and cgroupfs.
func kubepods(root string) []string {
	parts := append(strings.FieldsFunc(root, func(r rune) bool { return r == '/' }), "kubepods")
	slice, unit := "", ""
	for _, part := range parts {
		unit += strings.ReplaceAll(part, "-", "_")
		slice += "/" + unit + ".slice"
		unit += "-"
	}

	return []string{slice, "/" + strings.Join(parts, "/")}
}

// cgroupMemory returns the memory that a cgroup uses, and how much of it is
// inactive page cache, in bytes; 0: unknown. The root cgroup of version 2 has
// only the second.
func (m Machine) cgroupMemory(name string) (used, inactive int64) {
	for _, version := range []struct{ dir, used, inactive string }{
		{"/sys/fs/cgroup", "memory.current", "inactive_file"},
		{"/sys/fs/cgroup/memory", "memory.usage_in_bytes", "total_inactive_file"},
	} {
		dir := filepath.Join(version.dir, name)
		inactive, ok := m.fields(filepath.Join(dir, "memory.stat"), " ")[version.inactive]
		if ok {
			return number(m.text(filepath.Join(dir, version.used))), inactive
		}
	}

	return 0, 0
}

// pids returns how many process IDs there are, and how many are free.
func (m Machine) pids() podguard.Level {
	most := number(m.text("/proc/sys/kernel/pid_max"))
	if threads := number(m.text("/proc/sys/kernel/threads-max")); threads > 0 {
		most = min(most, threads)
	}

	// The fourth field is the number of running threads and, after the slash,
	// of all threads.
	load := strings.Fields(m.text("/proc/loadavg"))
	if most <= 0 || len(load) < 4 {
		return podguard.Level{}
	}

	_, all, _ := strings.Cut(load[3], "/")

	return podguard.Level{Capacity: most, Available: max(0, most-number(all))}
}

// filesystem returns the bytes and inodes of the filesystem of a path; zero:
// unknown. A filesystem without a fixed number of inodes has no level of
// inodes.
func filesystem(path string) (bytes, inodes podguard.Level) {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil {
		return podguard.Level{}, podguard.Level{}
	}

	clamp := func(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
	size := uint64(cmp.Or(st.Frsize, st.Bsize))

	return podguard.Level{Capacity: clamp(st.Blocks * size), Available: clamp(st.Bavail * size)},
		podguard.Level{Capacity: clamp(st.Files), Available: clamp(st.Ffree)}
}

// meminfo returns the values of /proc/meminfo, in bytes.
func (m Machine) meminfo() map[string]int64 {
	values := m.fields("/proc/meminfo", ":")
	for name := range values {
		values[name] *= 1024
	}

	return values
}

// fields returns the numbers of a file of the form name, separator, number.
func (m Machine) fields(path, separator string) map[string]int64 {
	values := map[string]int64{}
	for line := range strings.Lines(m.text(path)) {
		name, rest, _ := strings.Cut(line, separator)
		if words := strings.Fields(rest); len(words) > 0 {
			values[name] = number(words[0])
		}
	}

	return values
}

// text returns the content of a small file of the kernel, without spaces around
// it; empty if it cannot be read.
func (m Machine) text(path string) string {
	data, _ := os.ReadFile(m.Root + path)
	return strings.TrimSpace(string(data))
}

// number returns a number that is not negative; 0 if the text is none.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}

	return max(0, n)
}
