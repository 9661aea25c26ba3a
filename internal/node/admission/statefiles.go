package admission

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Limits of the kubelet's files. 500 pods with 200 containers each need less than 30 MB of allocated_pods_state.
const (
	maxStateFile  = 32 << 20 // bytes
	maxStateDepth = 20       // levels of objects and lists
	maxAssigned   = 1 << 20  // CPUs of all containers together
)

// decode decodes JSON of limited size and depth. Unknown fields are ignored. Checksums are the kubelet's business: it
// refuses a file with a wrong one itself.
func decode(data []byte, into any) error {
	if len(data) > maxStateFile {
		return fmt.Errorf("%d bytes, more than %d", len(data), maxStateFile)
	}
	if depth := depthOf(data); depth > maxStateDepth {
		return fmt.Errorf("nested %d levels deep, more than %d", depth, maxStateDepth)
	}
	return json.Unmarshal(data, into)
}

// depthOf returns the nesting of JSON.
func depthOf(data []byte) (deepest int) {
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
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

// allocatedResources has the quantities as text, so that their length can be limited.
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
			q, err := parseQuantity(text)
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
	devices := Devices{Registered: sorted(file.Data.RegisteredDevices)}
	for _, entry := range file.Data.PodDeviceEntries {
		ids := map[string]bool{}
		for _, ofNode := range entry.DeviceIDs {
			for _, id := range ofNode {
				ids[id] = true
			}
		}
		devices.Allocated = append(devices.Allocated, DeviceAllocation{Pod: entry.PodUID, Container: entry.ContainerName, Resource: entry.ResourceName, Count: len(ids)})
	}
	return devices, nil
}

// embedded decodes the field data, which kubelets from 1.37 write beside the fields of older ones, and which counts.
func embedded(data string, into any) error {
	if data == "" {
		return nil
	}
	if err := decode([]byte(data), into); err != nil {
		return fmt.Errorf("data: %w", err)
	}
	return nil
}

// DecodeCPUState decodes cpu_manager_state.
func DecodeCPUState(data []byte) (*CPUState, error) {
	var file struct{ Data string }
	var content struct {
		PolicyName    string
		DefaultCPUSet string
		Entries       map[types.UID]map[string]string
	}
	for _, into := range []any{&file, &content} {
		if err := decode(data, into); err != nil {
			return nil, fmt.Errorf("cpu_manager_state: %w", err)
		}
	}
	if file.Data != "" {
		content.Entries = nil
	}
	if err := embedded(file.Data, &content); err != nil {
		return nil, fmt.Errorf("cpu_manager_state: %w", err)
	}
	state := &CPUState{Policy: content.PolicyName, Assigned: make(map[types.UID]map[string]CPUSet, len(content.Entries))}
	var err error
	if state.Default, err = ParseCPUSet(content.DefaultCPUSet); err != nil {
		return nil, fmt.Errorf("cpu_manager_state: %w", err)
	}
	total := 0
	for uid, containers := range content.Entries {
		state.Assigned[uid] = make(map[string]CPUSet, len(containers))
		for name, text := range containers {
			cpus, err := ParseCPUSet(text)
			if err != nil {
				return nil, fmt.Errorf("cpu_manager_state: pod %s, container %s: %w", uid, name, err)
			}
			if total += len(cpus); total > maxAssigned {
				return nil, fmt.Errorf("cpu_manager_state: more than %d CPUs assigned", maxAssigned)
			}
			state.Assigned[uid][name] = cpus
		}
	}
	return state, nil
}

// DecodeMemoryState decodes memory_manager_state.
func DecodeMemoryState(data []byte) (*MemoryState, error) {
	var file struct{ Data string }
	var content struct {
		PolicyName   string
		MachineState map[int]*struct {
			MemoryMap map[corev1.ResourceName]*MemoryTable
		}
		Entries map[types.UID]map[string][]struct{}
	}
	for _, into := range []any{&file, &content} {
		if err := decode(data, into); err != nil {
			return nil, fmt.Errorf("memory_manager_state: %w", err)
		}
	}
	if file.Data != "" {
		content.MachineState, content.Entries = nil, nil
	}
	if err := embedded(file.Data, &content); err != nil {
		return nil, fmt.Errorf("memory_manager_state: %w", err)
	}
	state := &MemoryState{
		Policy:   content.PolicyName,
		NUMA:     make(map[int]map[corev1.ResourceName]MemoryTable, len(content.MachineState)),
		Assigned: make(map[types.UID]map[string]bool, len(content.Entries)),
	}
	for id, machine := range content.MachineState {
		tables := map[corev1.ResourceName]MemoryTable{}
		if machine != nil {
			for name, table := range machine.MemoryMap {
				if table != nil {
					tables[name] = *table
				}
			}
		}
		state.NUMA[id] = tables
	}
	for uid, containers := range content.Entries {
		state.Assigned[uid] = make(map[string]bool, len(containers))
		for name := range containers {
			state.Assigned[uid][name] = true
		}
	}
	return state, nil
}
