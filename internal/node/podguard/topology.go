// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resources "k8s.io/component-helpers/resource"
	"k8s.io/utils/cpuset"

	"github.com/evenkeel/evenkeel/internal/component"
)

// exclusive is the state of the static policies of CPU and memory and of
// alignment, as the starting kubelet finds it.
type exclusive struct {
	staticCPU, staticMemory bool
	cpu                     *CPUState    // nil: none that the policy accepts
	memory                  *MemoryState // nil: none that the policy accepts
	fullCores               bool         // option full-pcpus-only
	threadsPerCore          int
	shared                  int64 // CPUs without owner, without the reserved ones
	reservedCPUs            int64
	missingCPUs             int64 // CPUs that containers need which are not in the state
	missingMemory           amounts
	freeMemory              amounts
	oneNUMANode             bool
	aligned                 bool // policy restricted or single-numa-node, on a machine where that matters
	alignmentChanged        bool
	byPod                   bool // pods with pod-level resources get CPUs and memory as a whole
}

func exclusiveOf(n *node, total amounts, pods []*pod) exclusive {
	in := n.in
	e := exclusive{
		staticCPU:      textOr(in.After, "cpuManagerPolicy", "none") == "static",
		staticMemory:   textOr(in.After, "memoryManagerPolicy", "None") == "Static",
		threadsPerCore: in.Machine.ThreadsPerCore,
		oneNUMANode:    in.Machine.NUMANodes == 1,
		missingMemory:  amounts{},
		freeMemory:     amounts{},
	}
	e.alignmentChanged = alignmentOf(in.After) != alignmentOf(n.before) ||
		!maps.Equal(alignmentOptions(in.After), alignmentOptions(n.before)) || !maps.Equal(cpuOptions(in.After), cpuOptions(n.before))
	e.byPod = n.gates.on("PodLevelResourceManagers") && alignmentOf(in.After)[1] == "pod"
	if e.staticCPU {
		e.fullCores = cpuOptions(in.After)["full-pcpus-only"] == "true"
		e.reservedCPUs = reservedCPUs(in.After)
		all := total[corev1.ResourceCPU] / 1000
		if !in.Machine.OnlineCPUs.IsEmpty() {
			all = int64(in.Machine.OnlineCPUs.Size())
		}

		e.shared = all
		if in.CPUState != nil && in.CPUState.Policy == "static" && !in.CPUState.Default.IsEmpty() {
			e.cpu, e.shared = in.CPUState, int64(in.CPUState.Default.Size())
		}
		if e.cpu == nil || !isStrict(in.After) { // with that option the shared CPUs are without the reserved ones
			e.shared = max(0, e.shared-e.reservedCPUs)
		}
	}

	if e.staticMemory && in.MemoryState != nil && in.MemoryState.Policy == "Static" {
		e.memory = in.MemoryState
		e.oneNUMANode = e.oneNUMANode || len(in.MemoryState.NUMA) == 1
		for _, node := range in.MemoryState.NUMA {
			for name, table := range node.Memory {
				e.freeMemory[name] = add(e.freeMemory[name], int64(min(table.Free, maxAmount)))
			}
		}
	}

	e.aligned = !e.oneNUMANode && slices.Contains([]string{"restricted", "single-numa-node"}, alignmentOf(in.After)[0])
	for _, p := range pods {
		e.missingCPUs = add(e.missingCPUs, n.missingCPUs(e, p))
		for name, bytes := range n.missingMemory(e, p) {
			e.missingMemory[name] = add(e.missingMemory[name], bytes)
		}
	}

	return e
}

// reservedCPUs returns the number of CPUs that the static policy leaves to the
// system.
func reservedCPUs(config component.Effective) int64 {
	return (reserved(config, corev1.ResourceCPU) + 999) / 1000
}

func alignmentOf(config component.Effective) [2]string {
	return [2]string{textOr(config, "topologyManagerPolicy", "none"), textOr(config, "topologyManagerScope", "container")}
}

func alignmentOptions(config component.Effective) map[string]string {
	return texts(config, "topologyManagerPolicyOptions")
}

// ownsCPUs returns the number of CPUs that the static policy gives to a
// container of an exclusivePod alone.
func (p *pod) ownsCPUs(c *corev1.Container) int64 {
	milli := amount(corev1.ResourceCPU, p.granted(c)[corev1.ResourceCPU])
	if milli%1000 != 0 {
		return 0
	}

	return milli / 1000
}

// exclusivePod reports whether the static policies apply to the pod.
func (n *node) exclusivePod(p *pod) bool {
	podLevels := n.gates.minor < 34 || n.gates.on("PodLevelResourceManagers")
	return p.mayBe(corev1.PodQOSGuaranteed) && (podLevels || !resources.IsPodLevelResourcesSet(p.Pod))
}

// granted returns the requests with which the kubelet admits the container.
func (p *pod) granted(c *corev1.Container) corev1.ResourceList {
	if replaced, ok := p.allocated.Containers[c.Name]; ok {
		return replaced.Requests
	}

	return c.Resources.Requests
}

// missingCPUs returns the CPUs that the pod's containers need and do not have
// in the state. Completed init containers are among them: the kubelet releases
// their CPUs and asks for them again at each start. Later containers reuse them
// only if these are not in the state either.
func (n *node) missingCPUs(e exclusive, p *pod) int64 {
	if !e.staticCPU || !n.exclusivePod(p) {
		return 0
	}

	var assigned map[string]cpuset.CPUSet
	if e.cpu != nil {
		assigned = e.cpu.Assigned[p.uid]
	}

	var initial, regular int64
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if _, ok := assigned[c.Name]; ok {
			continue
		}

		if cpus := p.ownsCPUs(c); isSidecar(c) {
			regular = add(regular, cpus)
		} else {
			initial = max(initial, cpus)
		}
	}

	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		if _, ok := assigned[c.Name]; !ok {
			regular = add(regular, p.ownsCPUs(c))
		}
	}

	if len(assigned) == 0 && len(p.Spec.InitContainers) > 0 && !hasAny(allContainers(p.Pod), isSidecar) {
		return max(initial, regular)
	}

	return add(initial, regular)
}

// missingMemory returns the memory and huge pages that the pod's containers
// need and do not have in the state.
func (n *node) missingMemory(e exclusive, p *pod) amounts {
	if !e.staticMemory || !n.exclusivePod(p) {
		return nil
	}

	var assigned map[string][]struct{}
	if e.memory != nil {
		assigned = e.memory.Assigned[p.uid]
	}

	missing := amounts{}
	for c := range allContainers(p.Pod) {
		if _, ok := assigned[c.Name]; ok {
			continue
		}

		for name, q := range p.granted(c) {
			if name == corev1.ResourceMemory || isHugePages(name) {
				missing[name] = add(missing[name], amount(name, q))
			}
		}
	}

	return missing
}

// topology applies the managers of CPUs, memory and alignment
// (pkg/kubelet/cm/topologymanager, cpumanager, memorymanager).
func (n *node) topology(p *pod) *cause {
	e := n.exclusive
	missingCPUs, missingMemory := n.missingCPUs(e, p), n.missingMemory(e, p)
	if e.aligned {
		// Containers keep the alignment that the same policy gave them.
		if n.hinted(e, p) && (e.alignmentChanged || missingCPUs > 0 || len(missingMemory) > 0) {
			return because("TopologyAffinityError", "the topology manager may find no alignment for the pod's CPUs, memory or devices")
		}
	}

	if e.byPod && (e.staticCPU || e.staticMemory) && n.exclusivePod(p) && resources.IsPodLevelResourcesSet(p.Pod) {
		return because("UnexpectedAdmissionError", "the kubelet assigns CPUs and memory for pod-level resources again at each start, and may "+
			"find none")
	}

	if e.staticCPU && e.fullCores && n.gates.minor < 37 {
		if c := n.wholeCores(e, p); c != nil {
			return c
		}
	}

	if missingCPUs > 0 && e.missingCPUs > e.shared {
		return because("UnexpectedAdmissionError", "the static CPU policy has to assign %d CPUs and has %d", e.missingCPUs, e.shared)
	}

	for _, name := range sorted(missingMemory) {
		if !e.oneNUMANode || e.memory != nil && e.missingMemory[name] > e.freeMemory[name] {
			return because("UnexpectedAdmissionError", "the static memory policy has to assign %s to the pod and may find none", name)
		}
	}

	return nil
}

// hinted reports whether a manager has a preference for the pod.
func (n *node) hinted(e exclusive, p *pod) bool {
	if n.usesDevices(p) {
		return true
	}

	return n.exclusivePod(p) && (e.staticMemory ||
		e.staticCPU && hasAny(allContainers(p.Pod), func(c *corev1.Container) bool { return p.ownsCPUs(c) > 0 }))
}

// wholeCores applies the option full-pcpus-only of 1.33 to 1.36, which check
// running containers too: the shared pool must be as large as the request,
// although the container has its CPUs.
func (n *node) wholeCores(e exclusive, p *pod) *cause {
	if !n.exclusivePod(p) {
		return nil
	}

	if e.threadsPerCore <= 0 {
		if hasAny(allContainers(p.Pod), func(c *corev1.Container) bool { return p.ownsCPUs(c) > 0 }) {
			return because("SMTAlignmentError", "the number of threads per core is not known")
		}

		return nil
	}

	// The siblings of the reserved CPUs do not count.
	available := e.shared - e.reservedCPUs*int64(e.threadsPerCore-1)
	if hasAny(allContainers(p.Pod), func(c *corev1.Container) bool {
		cpus := p.ownsCPUs(c)
		return cpus > 0 && (cpus%int64(e.threadsPerCore) != 0 || cpus > available)
	}) {
		return because("SMTAlignmentError", "with full-pcpus-only the kubelet also compares running containers with the %d CPUs of the shared "+
			"pool", max(0, available))
	}

	return nil
}
