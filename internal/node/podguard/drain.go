// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// NeedsDrain returns why the kubelet must not be restarted with the new
// configuration unless the node is drained; empty: it may be. The cgroups of
// running pods would change, or the kubelet would refuse one of its state files
// and stop.
func NeedsDrain(in Input) []string {
	var reasons []string
	if in.Before != nil && containersRun(in) {
		reasons = append(reasons, cgroupChanges(in)...)
		reasons = append(reasons, userNamespaceChange(in)...)
	}

	for _, c := range StateConflicts(in) {
		reasons = append(reasons, c.Reason)
	}

	return reasons
}

// The state files of the CPU and memory managers, in the kubelet's root
// directory.
const (
	CPUStateFile    = "cpu_manager_state"
	MemoryStateFile = "memory_manager_state"
)

// StateConflict is a state file with which the kubelet would refuse to start.
type StateConflict struct {
	File   string // CPUStateFile or MemoryStateFile
	Reason string
}

// StateConflicts returns the state files that the kubelet refuses with the new
// configuration. It uses Before, After, Minor, CPUState, MemoryState and
// Machine.OnlineCPUs.
func StateConflicts(in Input) []StateConflict {
	var conflicts []StateConflict
	if reason := cpuStateRefused(in); reason != "" {
		conflicts = append(conflicts, StateConflict{CPUStateFile, reason})
	}
	if reason := memoryStateRefused(in); reason != "" {
		conflicts = append(conflicts, StateConflict{MemoryStateFile, reason})
	}

	return conflicts
}

// containersRun reports whether a container of a pod may run.
func containersRun(in Input) bool {
	if in.Running == nil {
		return len(activePods(in, gatesOf(in.After, in.Minor))) > 0
	}

	return len(in.Running) > 0
}

// cgroupChanges compares what names the cgroups of pods. The kubelet kills a
// running pod whose cgroup does not exist.
func cgroupChanges(in Input) (reasons []string) {
	differs := func(field string, before, after any) {
		if before != after {
			reasons = append(reasons, fmt.Sprintf("%s changes from %v to %v: running pods are in the old cgroups", field, before, after))
		}
	}
	differs("cgroupRoot", textOr(in.Before, "cgroupRoot", "/"), textOr(in.After, "cgroupRoot", "/"))
	differs("cgroupsPerQOS", isOn(in.Before, "cgroupsPerQOS"), isOn(in.After, "cgroupsPerQOS"))
	differs("cgroupDriver", cgroupDriver(in, in.Before), cgroupDriver(in, in.After))

	return reasons
}

// cgroupDriver returns the driver that the kubelet uses: the container
// runtime's if that reports one.
func cgroupDriver(in Input, config component.Effective) string {
	if in.Machine.CgroupDriver != "" && gatesOf(config, in.Minor).on("KubeletCgroupDriverFromCRI") {
		return in.Machine.CgroupDriver
	}

	return textOr(config, "cgroupDriver", "cgroupfs")
}

// userNamespaceChange compares the length of user namespaces with which the
// kubelet recorded those of running pods.
func userNamespaceChange(in Input) []string {
	const field, length = "userNamespaces.idsPerPod", 65536
	before, after := intOr(in.Before, field, length), intOr(in.After, field, length)
	if before == after || !slices.ContainsFunc(in.Pods,
		func(p *corev1.Pod) bool { return p != nil && p.Spec.HostUsers != nil && !*p.Spec.HostUsers }) {
		return nil
	}

	return []string{fmt.Sprintf("%s changes from %d to %d: the kubelet does not start with the user namespaces of present pods", field, before,
		after)}
}

const strictReservation = "strict-cpu-reservation"

// cpuOptions returns the options of the static CPU policy. Which CPUs a number
// of reserved CPUs stands for depends on them.
func cpuOptions(config component.Effective) map[string]string {
	return texts(config, "cpuManagerPolicyOptions")
}

func isStrict(config component.Effective) bool {
	return cpuOptions(config)[strictReservation] == "true"
}

// cpuStateRefused returns why the kubelet would refuse cpu_manager_state;
// empty: it accepts the file (pkg/kubelet/cm/cpumanager/policy_static.go,
// validateState).
func cpuStateRefused(in Input) string {
	state := in.CPUState
	if state == nil {
		return ""
	}
	if policy := textOr(in.After, "cpuManagerPolicy", "none"); policy != state.Policy {
		return fmt.Sprintf("cpuManagerPolicy is %q but %s was written by %q", policy, CPUStateFile, state.Policy)
	}
	if state.Policy != "static" {
		return ""
	}
	if reason := staticStateRefused(in, state); reason != "" {
		return "the kubelet would not start with " + CPUStateFile + ": " + reason
	}

	return ""
}

// staticStateRefused returns why the static policy would refuse the state;
// empty: it accepts it.
func staticStateRefused(in Input, state *CPUState) string {
	var entries []cpuset.CPUSet
	for _, containers := range state.Assigned {
		entries = slices.AppendSeq(entries, maps.Values(containers))
	}

	assigned := cpuset.New().Union(entries...)
	strict := isStrict(in.After)
	switch {
	case state.Default.IsEmpty() && len(state.Assigned) == 0:
		return ""
	case state.Default.IsEmpty():
		return "the default set of CPUs is empty"
	case overlap(assigned, state.Default):
		return "assigned CPUs are also in the default set"
	}

	before := in.Before
	if before == nil {
		before = in.After
	}

	cpus, err := ParseCPUSet(in.After.String("reservedSystemCPUs"))
	switch known := err == nil && !cpus.IsEmpty(); {
	case !known && before.String("reservedSystemCPUs") == "" && in.After.String("reservedSystemCPUs") == "" &&
		reservedCPUs(before) == reservedCPUs(in.After) && maps.Equal(cpuOptions(before), cpuOptions(in.After)):
		return onlineDiffers(in, state, assigned, cpuset.CPUSet{}, strict)
	case !known && len(entries) == 0 && !strict && !isStrict(before):
		return onlineDiffers(in, state, assigned, cpuset.CPUSet{}, false)
	case !known:
		return "the reservation of CPUs changes"
	case strict && overlap(cpus, state.Default):
		return "reserved CPUs are in the default set, and strict-cpu-reservation excludes them"
	case !strict && !cpus.IsSubsetOf(state.Default):
		return "reserved CPUs belong to containers, or do not exist"
	case in.Machine.OnlineCPUs.IsEmpty() && (strict || isStrict(before)) &&
		(strict != isStrict(before) || before.String("reservedSystemCPUs") != in.After.String("reservedSystemCPUs")):
		return "the reservation of CPUs changes with strict-cpu-reservation"
	}

	return onlineDiffers(in, state, assigned, cpus, strict)
}

func overlap(a, b cpuset.CPUSet) bool { return !a.Intersection(b).IsEmpty() }

// onlineDiffers compares the CPUs in the file with those of the machine;
// reserved is empty if they are not known.
func onlineDiffers(in Input, state *CPUState, assigned, reserved cpuset.CPUSet, strict bool) string {
	if in.Machine.OnlineCPUs.IsEmpty() || strict && reserved.IsEmpty() {
		return ""
	}

	expected := in.Machine.OnlineCPUs
	if strict {
		expected = expected.Difference(reserved)
	}
	if !assigned.Union(state.Default).Equals(expected) {
		return "the machine's available CPUs are not those of the file"
	}

	return ""
}

// memoryStateRefused returns why the kubelet would refuse memory_manager_state;
// empty: it accepts the file. Of what the kubelet compares, only the
// reservations depend on the configuration: in total with the node's
// (pkg/kubelet/cm/memorymanager/memory_manager.go, validateReservedMemory), and
// on each NUMA node with those of the file (policy_static.go, validateState).
func memoryStateRefused(in Input) string {
	state := in.MemoryState
	if state == nil {
		return ""
	}
	if policy := textOr(in.After, "memoryManagerPolicy", "None"); policy != state.Policy {
		return fmt.Sprintf("memoryManagerPolicy is %q but %s was written by %q", policy, MemoryStateFile, state.Policy)
	}
	if state.Policy != "Static" {
		return ""
	}

	if in.Before != nil && in.Node != nil && memoryAddsUp(in, in.Before) && !memoryAddsUp(in, in.After) {
		return "the kubelet would not start: reservedMemory must be the sum of kubeReserved, systemReserved and the eviction threshold of " +
			"memory, and they no longer add up"
	}

	expected := reservedMemory(in.After)
	for _, id := range slices.Sorted(maps.Keys(state.NUMA)) {
		for _, name := range sorted(state.NUMA[id].Memory) {
			if was, is := state.NUMA[id].Memory[name].SystemReserved, expected[id][name]; was != uint64(is) {
				return fmt.Sprintf("the kubelet would not start with %s: reservedMemory of %s on NUMA node %d changes from %d to %d bytes",
					MemoryStateFile, name, id, was, is)
			}
		}
	}

	return ""
}

// memoryAddsUp reports whether reservedMemory has exactly the memory that the
// node reserves.
func memoryAddsUp(in Input, config component.Effective) bool {
	total := capacity(in)[corev1.ResourceMemory]
	need := reserved(config, corev1.ResourceMemory)
	if value, ok := evictionHard(config)["memory.available"]; ok && !in.Machine.IgnoreEviction {
		need = add(need, threshold(value, total))
	}

	has := int64(0)
	for _, ofNode := range reservedMemory(config) {
		has = add(has, ofNode[corev1.ResourceMemory])
	}

	return has == need
}

// reservedMemory returns the reservations by NUMA node.
func reservedMemory(config component.Effective) map[int]amounts {
	byNode := map[int]amounts{}
	for _, entry := range list(config, "reservedMemory") {
		fields, _ := entry.(map[string]any)
		number, _ := fields["numaNode"].(json.Number)
		id, _ := number.Int64()
		if byNode[int(id)] == nil {
			byNode[int(id)] = amounts{}
		}

		for name, text := range textsOf(fields["limits"]) {
			if q, err := payload.ParseQuantity(text); err == nil {
				byNode[int(id)][corev1.ResourceName(name)] = amount(corev1.ResourceName(name), q)
			}
		}
	}

	return byNode
}
