// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// Limits of the kubelet's files. 500 pods with 200 containers each need less
// than 30 MB of allocated_pods_state, with 800,000 values.
const (
	maxStateFile   = 32 << 20 // bytes
	maxStateValues = 1 << 20  // a decoder needs some hundred bytes for each, however short
	maxAssigned    = 1 << 20  // CPUs of all containers together
)

// decode decodes JSON of limited size into a type that is not recursive, so
// that no nesting needs a deep stack. Unknown fields are ignored. Checksums are
// the kubelet's business: it refuses a file with a wrong one itself.
func decode(data []byte, into any) error {
	if len(data) > maxStateFile {
		return fmt.Errorf("%d bytes, more than %d", len(data), maxStateFile)
	}

	values := 0
	for _, c := range data {
		if c == ',' || c == '{' || c == '[' {
			values++
		}
	}

	if values > maxStateValues {
		return fmt.Errorf("%d values, more than %d", values, maxStateValues)
	}

	return json.Unmarshal(data, into)
}

// DecodeAllocated decodes allocated_pods_state.
func DecodeAllocated(data []byte) (map[types.UID]Allocation, error) {
	var file struct{ Data string }
	if err := decode(data, &file); err != nil {
		return nil, fmt.Errorf("allocated_pods_state: %w", err)
	}

	var content struct {
		Entries map[types.UID]struct {
			ContainerResources map[string]allocatedResources
			PodLevelResources  *allocatedResources
		}
	}
	if err := decode([]byte(file.Data), &content); err != nil {
		return nil, fmt.Errorf("allocated_pods_state: data: %w", err)
	}

	allocated := make(map[types.UID]Allocation, len(content.Entries))
	for uid, entry := range content.Entries {
		a := Allocation{Containers: make(map[string]corev1.ResourceRequirements, len(entry.ContainerResources))}
		for name, written := range entry.ContainerResources {
			r, err := written.parse()
			if err != nil {
				return nil, fmt.Errorf("allocated_pods_state: pod %s, container %s: %w", uid, name, err)
			}

			a.Containers[name] = *r
		}

		if entry.PodLevelResources != nil {
			r, err := entry.PodLevelResources.parse()
			if err != nil {
				return nil, fmt.Errorf("allocated_pods_state: pod %s: %w", uid, err)
			}

			a.Pod = r
		}

		allocated[uid] = a
	}

	return allocated, nil
}

// allocatedResources has the quantities as text, so that their length can be
// limited.
type allocatedResources struct {
	Limits, Requests map[corev1.ResourceName]string
}

func (r allocatedResources) parse() (*corev1.ResourceRequirements, error) {
	parsed := &corev1.ResourceRequirements{}
	for _, part := range []struct {
		written map[corev1.ResourceName]string
		parsed  *corev1.ResourceList
	}{{r.Limits, &parsed.Limits}, {r.Requests, &parsed.Requests}} {
		for name, text := range part.written {
			q, err := payload.ParseQuantity(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if *part.parsed == nil {
				*part.parsed = corev1.ResourceList{}
			}

			(*part.parsed)[name] = q
		}
	}

	return parsed, nil
}

// DecodeDevices decodes the device manager's kubelet_internal_checkpoint.
func DecodeDevices(data []byte) (Devices, error) {
	var file struct {
		Data struct {
			PodDeviceEntries []struct {
				PodUID        types.UID
				ContainerName string
				ResourceName  corev1.ResourceName
				DeviceIDs     map[string][]string
			}
			RegisteredDevices map[corev1.ResourceName][]string
		}
	}
	if err := decode(data, &file); err != nil {
		return Devices{}, fmt.Errorf("kubelet_internal_checkpoint: %w", err)
	}

	devices := Devices{Resources: map[corev1.ResourceName]bool{}, Allocated: map[DeviceUser]int{}}
	for name := range file.Data.RegisteredDevices {
		devices.Resources[name] = true
	}

	for _, entry := range file.Data.PodDeviceEntries {
		ids := map[string]bool{}
		for _, ofNode := range entry.DeviceIDs {
			for _, id := range ofNode {
				ids[id] = true
			}
		}

		devices.Resources[entry.ResourceName] = true
		devices.Allocated[DeviceUser{entry.PodUID, entry.ContainerName, entry.ResourceName}] += len(ids)
	}

	return devices, nil
}

// decodeManagerState decodes the state of the CPU or memory manager. Kubelets
// from 1.37 write all of it into the field data too, and read it from there.
// name is the file's.
func decodeManagerState[T any](name string, data []byte) (*T, error) {
	var file struct{ Data string }
	content := new(T)
	err := decode(data, &file)
	if err == nil && file.Data != "" {
		data, name = []byte(file.Data), name+": data"
	}
	if err == nil {
		err = decode(data, content)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}

	return content, nil
}

// DecodeCPUState decodes cpu_manager_state.
func DecodeCPUState(data []byte) (*CPUState, error) {
	content, err := decodeManagerState[struct {
		PolicyName    string
		DefaultCPUSet string
		Entries       map[types.UID]map[string]string
	}](CPUStateFile, data)
	if err != nil {
		return nil, err
	}

	state := &CPUState{Policy: content.PolicyName, Assigned: make(map[types.UID]map[string]cpuset.CPUSet, len(content.Entries))}
	if state.Default, err = ParseCPUSet(content.DefaultCPUSet); err != nil {
		return nil, fmt.Errorf("cpu_manager_state: %w", err)
	}

	total := 0
	for uid, containers := range content.Entries {
		state.Assigned[uid] = make(map[string]cpuset.CPUSet, len(containers))
		for name, text := range containers {
			cpus, err := ParseCPUSet(text)
			if err != nil {
				return nil, fmt.Errorf("cpu_manager_state: pod %s, container %s: %w", uid, name, err)
			}
			if total += cpus.Size(); total > maxAssigned {
				return nil, fmt.Errorf("cpu_manager_state: more than %d CPUs assigned", maxAssigned)
			}

			state.Assigned[uid][name] = cpus
		}
	}

	return state, nil
}

// DecodeMemoryState decodes memory_manager_state.
func DecodeMemoryState(data []byte) (*MemoryState, error) {
	return decodeManagerState[MemoryState](MemoryStateFile, data)
}

// Limits of a list of CPUs. Linux supports 8192 CPUs.
const (
	maxCPUBits = 13
	maxCPUs    = 1 << maxCPUBits // also of CPUs that a list repeats
)

// ParseCPUSet parses a list of CPUs and ranges, such as "0-3,7". It limits the
// list before the library builds the set, of which "0-4000000000" would need
// hundreds of gigabytes.
func ParseCPUSet(text string) (cpuset.CPUSet, error) {
	if text = strings.TrimSpace(text); text == "" {
		return cpuset.New(), nil
	}

	total := 0
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}

		low, errLow := strconv.ParseUint(first, 10, maxCPUBits)
		high, errHigh := strconv.ParseUint(last, 10, maxCPUBits)
		if errLow != nil || errHigh != nil {
			return cpuset.New(), fmt.Errorf("list of CPUs: %.20q is not a CPU or range below %d", part, maxCPUs)
		}
		if total += 1 + int(high) - int(low); total > maxCPUs {
			return cpuset.New(), fmt.Errorf("list of CPUs: more than %d", maxCPUs)
		}
	}

	return cpuset.Parse(text)
}
