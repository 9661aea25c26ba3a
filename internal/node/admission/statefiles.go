package admission

import "k8s.io/apimachinery/pkg/types"

// DecodeAllocated decodes allocated_pods_state.
func DecodeAllocated(data []byte) (map[types.UID]Allocation, error) { return nil, nil }

// DecodeDevices decodes the device manager's kubelet_internal_checkpoint.
func DecodeDevices(data []byte) (Devices, error) { return Devices{}, nil }

// DecodeCPUState decodes cpu_manager_state.
func DecodeCPUState(data []byte) (*CPUState, error) { return nil, nil }

// DecodeMemoryState decodes memory_manager_state.
func DecodeMemoryState(data []byte) (*MemoryState, error) { return nil, nil }
