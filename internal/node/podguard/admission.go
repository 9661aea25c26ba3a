// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podguard predicts which pods a starting kubelet would reject or kill:
// the kubelet's admission handlers, its allocatable, eviction thresholds,
// cgroups and state files, for the kubelets 1.33 to 1.38. All of it is pure: it
// reads no file and no clock and asks no API server; the caller gathers the
// Input. A prediction errs to one side: a pod that it does not name survives, a
// pod that it names may survive.
//
// A pod may be named although it would survive
//   - because the order of admission is not known: all pods must fit together, and under the old and the new allocatable;
//   - because it is being resized, or an in-place resize is pending: the larger of spec, allocation and status counts;
//   - because of overhead, which 1.36 and later count twice for some pods;
//   - because a pod with a shortage of resources is one of several, of which the kubelet rejects only some;
//   - because a usage is within a tenth of an eviction threshold, of a filesystem a fiftieth, or the pods use nearly as much as a lower
//
// limit allows;
//   - because a device plugin may register again before admission;
//   - because the topology of the machine is not known in detail: alignment, memory of several NUMA nodes, full-pcpus-only;
//   - because a static pod of 1.33 or 1.34 may be admitted before the kubelet has seen the Node's labels.
package podguard

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/evenkeel/evenkeel/internal/component"
)

// Input is what a prediction depends on. Predict and NeedsDrain do not modify
// it.
type Input struct {
	Minor  int                 // minor version of the kubelet that will start: 33 to 38; a newer one counts as the newest known
	Before component.Effective // configuration of the kubelet that runs now; nil: not known, the same as After
	After  component.Effective // configuration of the kubelet that will start
	Node   *corev1.Node        // as the API server has it now; with nil no pod is safe

	// Pods are all pods bound to the node. Mirror pods stand for the static
	// pods.
	Pods []*corev1.Pod
	// Allocated is the kubelet's allocated_pods_state, by the UID that the
	// kubelet uses; nil: there is none.
	Allocated map[types.UID]Allocation
	// Running names the containers that run now, according to the container
	// runtime, by the UID that the kubelet uses: for a static pod the mirror
	// pod's annotation kubernetes.io/config.mirror. nil: not known; then no
	// container counts as running where that matters, which is for devices.
	Running map[types.UID]map[string]bool
	Devices Devices

	CPUState    *CPUState    // cpu_manager_state; nil: there is none
	MemoryState *MemoryState // memory_manager_state; nil: there is none

	Machine Machine
	Usage   Usage
}

// Allocation is what the kubelet allocated to a pod, from allocated_pods_state.
type Allocation struct {
	Containers map[string]corev1.ResourceRequirements
	Pod        *corev1.ResourceRequirements // pod-level resources; nil: none recorded
}

// Devices is the device manager's checkpoint, kubelet_internal_checkpoint. The
// zero value means no checkpoint.
type Devices struct {
	Resources map[corev1.ResourceName]bool // of registered plugins, and those with allocated devices
	Allocated map[DeviceUser]int           // the number of devices
}

// DeviceUser is a container that got devices of one resource.
type DeviceUser struct {
	Pod       types.UID
	Container string
	Resource  corev1.ResourceName
}

// CPUState is the CPU manager's state file.
type CPUState struct {
	Policy   string        // "none" or "static"
	Default  cpuset.CPUSet // CPUs that no container has exclusively
	Assigned map[types.UID]map[string]cpuset.CPUSet
}

// MemoryState is the memory manager's state file.
type MemoryState struct {
	Policy   string                              `json:"policyName"` // "None" or "Static"
	NUMA     map[int]NUMANode                    `json:"machineState"`
	Assigned map[types.UID]map[string][]struct{} `json:"entries"` // the memory blocks of containers
}

// NUMANode has the resources of a NUMA node: memory and sizes of huge pages.
type NUMANode struct {
	Memory map[corev1.ResourceName]MemoryTable `json:"memoryMap"`
}

// MemoryTable is the bytes of one resource, memory or a size of huge pages, on
// one NUMA node.
type MemoryTable struct {
	SystemReserved, Free uint64
}

// Machine is what the agent reads from the machine. Zero fields are not known.
type Machine struct {
	// Capacity has the resources that the starting kubelet would measure: cpu,
	// memory, ephemeral-storage, hugepages-*. Where the Node's capacity is
	// smaller, that counts.
	Capacity       corev1.ResourceList
	OnlineCPUs     cpuset.CPUSet
	ThreadsPerCore int
	NUMANodes      int
	NoAppArmor     bool // the kernel has AppArmor disabled
	// CgroupDriver is the driver that the container runtime reports: "systemd"
	// or "cgroupfs"; empty: it reports none, and the configuration's field
	// counts.
	CgroupDriver   string
	IgnoreEviction bool // the kubelet's flag --experimental-allocatable-ignore-eviction is set
	// NodeLabels are the labels of the kubelet's flag --node-labels.
	NodeLabels map[string]string
}

// Usage is the present consumption on the machine. Zero fields are not known.
type Usage struct {
	KubepodsWorkingSet int64 // working set of the kubepods cgroup, in bytes
	Memory             Level // bytes; available is the capacity minus the working set of the machine
	NodeFS             Level // bytes of the filesystem of the kubelet's root directory
	NodeFSInodes       Level
	ImageFS            Level // bytes of the filesystem of the images
	ImageFSInodes      Level
	ContainerFS        Level // bytes of the filesystem of the containers' writable layers, where it is another one
	ContainerFSInodes  Level
	PIDs               Level
}

// Level is how much of something there is, and how much is still available. A
// capacity of zero means not known.
type Level struct{ Capacity, Available int64 }

// Loss is a pod that a restart would cost, or may cost.
type Loss struct {
	UID             types.UID
	Namespace, Name string
	Reason          string // the kubelet's: OutOfcpu, NodeAffinity, ...
	Message         string
}
