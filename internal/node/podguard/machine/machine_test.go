// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"maps"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/podguard"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// newMachine returns a machine with these files. Names that begin with
// "kubelet/" are in the kubelet's root directory.
func newMachine(t *testing.T, files map[string]string) Machine {
	t.Helper()
	dir := t.TempDir()
	m := Machine{Root: dir, KubeletDir: filepath.Join(dir, "kubelet")}
	assert.NoError(t, os.Mkdir(m.KubeletDir, 0o755))
	for name, content := range files {
		path := filepath.Join(dir, name)
		assert.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		assert.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}

	return m
}

// kernel are the kernel's files of a machine with two CPUs and 1 GiB of memory.
func kernel(more map[string]string) map[string]string {
	files := map[string]string{
		"sys/devices/system/cpu/online":                             "0-1\n",
		"sys/devices/system/cpu/cpu0/topology/thread_siblings_list": "0-1\n",
		"sys/devices/system/node/node0/meminfo":                     "",
		"sys/devices/system/node/node1/meminfo":                     "",
		"sys/devices/system/node/has_cpu":                           "",
		"proc/meminfo":                                              "MemTotal:        1048576 kB\nMemFree:          524288 kB\n",
		"proc/sys/kernel/pid_max":                                   "4194304\n",
		"proc/sys/kernel/threads-max":                               "1000\n",
		"proc/loadavg":                                              "0.10 0.20 0.30 2/400 12345\n",
	}
	maps.Copy(files, more)

	return files
}

func TestAnUnknownMachineHasNothingButItsDisk(t *testing.T) {
	var in podguard.Input
	m := newMachine(t, nil)
	assert.NoError(t, m.Describe(t.Context(), &in))
	assert.That(t, in.Allocated == nil && in.CPUState == nil && in.MemoryState == nil && in.Running == nil, "%+v", in)
	assert.That(t, len(in.Devices.Resources) == 0 && in.Machine.OnlineCPUs.IsEmpty(), "%+v", in)
	u, c := in.Usage, in.Machine.Capacity
	assert.That(t, u.Memory.Capacity == 0 && u.PIDs.Capacity == 0 && u.KubepodsWorkingSet == 0, "usage %+v", u)
	assert.That(t, u.NodeFS.Capacity > 0 && u.NodeFS.Available > 0, "usage %+v", u)
	assert.That(t, len(c) == 1 && c.StorageEphemeral().Value() == in.Usage.NodeFS.Capacity, "capacity %v", c)
	assert.Equal(t, m.Total(), payload.Capacity{EphemeralStorage: u.NodeFS.Capacity}, "the machine has")
}

func TestCapacityAndUsageAreMeasuredLikeTheKubelet(t *testing.T) {
	const mib = 1 << 20
	for name, tt := range map[string]struct {
		files      map[string]string
		cgroupRoot string
		memory     int64 // available, in MiB
		kubepods   int64 // working set, in MiB
	}{
		"cgroup v2": {files: map[string]string{
			"sys/fs/cgroup/memory.stat":                   "anon 1\ninactive_file 104857600\n",
			"sys/fs/cgroup/kubepods.slice/memory.current": "314572800\n",
			"sys/fs/cgroup/kubepods.slice/memory.stat":    "anon 1\ninactive_file 104857600\n",
		}, memory: 612, kubepods: 200},
		"systemd, in a cgroup root": {files: map[string]string{
			"sys/fs/cgroup/memory.stat": "inactive_file 104857600\n",
			"sys/fs/cgroup/all_of.slice/all_of-it.slice/all_of-it-kubepods.slice/memory.current": "104857600\n",
			"sys/fs/cgroup/all_of.slice/all_of-it.slice/all_of-it-kubepods.slice/memory.stat":    "inactive_file 0\n",
		}, cgroupRoot: "/all-of/it", memory: 612, kubepods: 100},
		"cgroup v1, in a cgroup root": {files: map[string]string{
			"sys/fs/cgroup/memory/memory.stat":                          "inactive_file 1\ntotal_inactive_file 104857600\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes":                "209715200\n",
			"sys/fs/cgroup/memory/all/kubepods/memory.stat":             "total_inactive_file 0\n",
			"sys/fs/cgroup/memory/all/kubepods/memory.usage_in_bytes":   "52428800\n",
			"sys/fs/cgroup/memory/kubepods.slice/memory.stat":           "total_inactive_file 0\n",
			"sys/fs/cgroup/memory/kubepods.slice/memory.usage_in_bytes": "1\n",
		}, cgroupRoot: "/all", memory: 924, kubepods: 50},
	} {
		t.Run(name, func(t *testing.T) {
			in := podguard.Input{Before: component.Effective{"cgroupRoot": tt.cgroupRoot}}
			m := newMachine(t, kernel(tt.files))
			m.NodeLabels, m.IgnoreEviction = "a=1, b = 2,c,a=3", true
			assert.NoError(t, m.Describe(t.Context(), &in))
			c, u := in.Machine.Capacity, in.Usage
			assert.That(t, c.Cpu().Value() == 2 && c.Memory().Value() == 1024*mib, "capacity %v", c)
			assert.That(t, in.Machine.ThreadsPerCore == 2 && in.Machine.NUMANodes == 2, "machine %+v", in.Machine)
			assert.That(t, in.Machine.NoAppArmor && in.Machine.IgnoreEviction, "machine %+v", in.Machine)
			assert.NoDiff(t, cmp.Diff(map[string]string{"a": "3", "b": "2"}, in.Machine.NodeLabels))
			assert.Equal(t, u.Memory, podguard.Level{Capacity: 1024 * mib, Available: tt.memory * mib}, "memory")
			assert.Equal(t, u.KubepodsWorkingSet, tt.kubepods*mib, "kubepods")
			assert.Equal(t, u.PIDs, podguard.Level{Capacity: 1000, Available: 600}, "PIDs")
			total := payload.Capacity{CPU: 2000, Memory: 1024 * mib, EphemeralStorage: u.NodeFS.Capacity, PIDs: 1000}
			assert.Equal(t, m.Total(), total, "the machine has")
		})
	}
}

func TestKubeletFilesAreDecoded(t *testing.T) {
	in := podguard.Input{After: component.Effective{"cpuManagerPolicy": "none"}}
	m := newMachine(t, kernel(map[string]string{
		"kubelet/cpu_manager_state":              `{"policyName":"static","defaultCpuSet":"0-1","checksum":1}`,
		"kubelet/memory_manager_state":           `{"policyName":"None","machineState":{},"checksum":1}`,
		"kubelet/allocated_pods_state":           `{"data":"{\"entries\":{\"u\":{\"ContainerResources\":{\"c\":{\"requests\":{\"cpu\":\"1\"}}}}}}","checksum":1}`,
		devicesFile:                              `{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"example.com/gpu":["0"]}},"Checksum":1}`,
		"sys/module/apparmor/parameters/enabled": "Y\n",
	}))
	assert.NoError(t, m.Describe(t.Context(), &in))
	assert.That(t, in.CPUState.Policy == "static" && in.MemoryState.Policy == "None" && !in.Machine.NoAppArmor, "%+v", in)
	assert.That(t, len(in.Allocated["u"].Containers) == 1 && len(in.Devices.Resources) == 1, "%+v", in)
	got := podguard.StateConflicts(in)
	assert.That(t, len(got) == 1 && got[0].File == podguard.CPUStateFile, "conflicts %+v", got)
}

func TestAFileThatCannotBeUsedIsNamed(t *testing.T) {
	for _, name := range []string{"kubelet/cpu_manager_state", "kubelet/memory_manager_state", "kubelet/allocated_pods_state", devicesFile} {
		m := newMachine(t, map[string]string{name: "{"})
		err := m.Describe(t.Context(), &podguard.Input{})
		assert.ErrorHas(t, err, filepath.Join(m.Root, filepath.Dir(name)))
		assert.ErrorHas(t, err, filepath.Base(name))
		path := filepath.Join(m.Root, name)
		assert.NoError(t, os.Remove(path))
		assert.NoError(t, syscall.Mkfifo(path, 0o600))
		assert.ErrorHas(t, m.Describe(t.Context(), &podguard.Input{}), "is not a regular file", name, "as a pipe")
	}
}

// runtime answers as a container runtime. Its fields are the errors that it
// returns.
type runtime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	driver                 runtimeapi.CgroupDriver
	config, images, listed error
	lists                  int
}

func (r *runtime) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: r.driver}}, r.config
}

func (r *runtime) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/"}}}}, r.images
}

func (r *runtime) ListContainers(_ context.Context, q *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	r.lists++
	if q.GetFilter().GetState().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil, status.Error(codes.InvalidArgument, "only running containers matter")
	}

	return &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{
		{Labels: map[string]string{podUIDLabel: "u", containerNameLabel: "a"}},
		{Labels: map[string]string{podUIDLabel: "u", containerNameLabel: "b"}},
	}}, r.listed
}

func TestTheContainerRuntimeIsAsked(t *testing.T) {
	dir := assert.Value(os.MkdirTemp("", "ek"))(t) // a socket's path must be short
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	endpoint := "unix://" + filepath.Join(dir, "s")
	listener := assert.Value(net.Listen("unix", filepath.Join(dir, "s")))(t)
	server, r := grpc.NewServer(), &runtime{}
	runtimeapi.RegisterRuntimeServiceServer(server, r)
	runtimeapi.RegisterImageServiceServer(server, r)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	devices := map[string]string{devicesFile: `{"Data":{"RegisteredDevices":{"example.com/gpu":["0"]}}}`}
	describe := func(files map[string]string) (podguard.Input, error) {
		in := podguard.Input{Before: component.Effective{"containerRuntimeEndpoint": endpoint}}
		err := newMachine(t, files).Describe(t.Context(), &in)
		return in, err
	}

	in := assert.Value(describe(nil))(t, "without devices")
	assert.That(t, in.Machine.CgroupDriver == "systemd" && in.Running == nil && r.lists == 0, "without devices: %+v", in)
	assert.That(t, in.Usage.ImageFS.Capacity > 0 && in.Usage.ContainerFS == (podguard.Level{}), "without devices: %+v", in)

	r.driver, r.images = runtimeapi.CgroupDriver_CGROUPFS, status.Error(codes.Unavailable, "not yet")
	in = assert.Value(describe(devices))(t, "with devices")
	assert.That(t, in.Machine.CgroupDriver == "cgroupfs" && in.Usage.ImageFS == (podguard.Level{}), "with devices: %+v", in)
	assert.NoDiff(t, cmp.Diff(map[types.UID]map[string]bool{"u": {"a": true, "b": true}}, in.Running), "with devices")

	r.listed = status.Error(codes.Internal, "it is confused")
	assert.ErrorHas(t, assert.Err(describe(devices)), "the container runtime does not list its containers: it is confused (gRPC code 13)")
	r.config = status.Error(codes.Unimplemented, "an old runtime")
	assert.Equal(t, assert.Value(describe(nil))(t).Machine.CgroupDriver, "")
	r.config = status.Error(codes.Unavailable, "starting")
	assert.ErrorHas(t, assert.Err(describe(nil)), "the container runtime does not report its cgroup driver: starting (gRPC code 14)")

	measured := podguard.Input{Before: component.Effective{"containerRuntimeEndpoint": endpoint}}
	assert.ErrorHas(t, Machine{IgnoreEviction: true}.Measure(t.Context(), &measured), "does not report its cgroup driver: starting")
	assert.That(t, measured.Machine.IgnoreEviction && len(measured.Machine.Capacity) > 1, "measured %+v", measured.Machine)
	in = podguard.Input{After: component.Effective{"containerRuntimeEndpoint": "tcp://127.0.0.1:1"}}
	assert.ErrorHas(t, newMachine(t, nil).Describe(t.Context(), &in), "is not a unix socket")
}

// The real files of this machine must be readable in the form that is expected.
func TestThisMachineIsDescribed(t *testing.T) {
	in := podguard.Input{Node: &corev1.Node{}}
	m := Machine{KubeletDir: t.TempDir()}
	assert.NoError(t, m.StateFiles(&in))
	m.capacity(&in)
	c, u := in.Machine.Capacity, m.usage(nil)
	assert.That(t, !c.Cpu().IsZero() && !c.Memory().IsZero() && in.Machine.ThreadsPerCore != 0 && in.Machine.NUMANodes != 0, "%+v", in.Machine)
	assert.That(t, u.Memory.Available > 0 && u.PIDs.Available > 0 && u.NodeFS.Available > 0, "%+v", u)
}
