// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// amounts are quantities of resources: CPU in thousandths, memory and storage
// in bytes. All are between 0 and maxAmount.
type amounts map[corev1.ResourceName]int64

// maxAmount is where amounts saturate. Sums of a node's requests stay far below
// it, and two of it do not overflow.
const maxAmount = math.MaxInt64 / 4

// amount returns the quantity in the unit of the resource, rounded up like the
// kubelet does. A negative quantity is 0.
func amount(name corev1.ResourceName, q resource.Quantity) int64 {
	if q.Sign() <= 0 {
		return 0
	}

	limit := int64(maxAmount)
	if name == corev1.ResourceCPU {
		limit /= 1000
	}
	if q.CmpInt64(limit) >= 0 {
		return maxAmount
	}
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}

	return q.Value()
}

func add(a, b int64) int64 { return min(a+b, maxAmount) }

func amountsOf(list corev1.ResourceList) amounts {
	a := make(amounts, len(list))
	for name, q := range list {
		a[name] = amount(name, q)
	}

	return a
}

// isExtended reports whether the resource is an extended one; the kubelet
// ignores requests of those that the Node does not have
// (pkg/apis/core/v1/helper, IsExtendedResourceName).
func isExtended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
}

// isFitted reports whether admission compares requests of the resource with the
// allocatable.
func isFitted(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	}

	return isHugePages(name) || strings.Contains(string(name), "/") || strings.HasPrefix(string(name), corev1.ResourceAttachableVolumesPrefix)
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// capacity returns what the starting kubelet will measure: the smaller of the
// Node's and the machine's.
func capacity(in Input) amounts {
	c := amounts{}
	if in.Node != nil {
		c = amountsOf(in.Node.Status.Capacity)
	}

	for name, q := range in.Machine.Capacity {
		measured := amount(name, q)
		if known, ok := c[name]; !ok || measured < known {
			c[name] = measured
		}
	}

	return c
}

// reserved returns the CPUs or bytes that kubeReserved and systemReserved hold
// back. A reservation that is no quantity holds back everything; the kubelet
// would not start with it.
func reserved(config component.Effective, name corev1.ResourceName) int64 {
	sum := int64(0)
	if cpus, _ := ParseCPUSet(config.String("reservedSystemCPUs")); name == corev1.ResourceCPU && !cpus.IsEmpty() {
		// The kubelet replaces both reservations (cmd/kubelet/app/server.go).
		return int64(cpus.Size()) * 1000
	}

	for _, field := range []string{"kubeReserved", "systemReserved"} {
		text, ok := texts(config, field)[string(name)]
		if !ok {
			continue
		}

		q, err := payload.ParseQuantity(text)
		if err != nil {
			return maxAmount
		}

		sum = add(sum, amount(name, q))
	}

	return sum
}

// evictionSignals are the signals whose hard thresholds are not allocatable.
var evictionSignals = map[string]corev1.ResourceName{"memory.available": corev1.ResourceMemory,
	"nodefs.available": corev1.ResourceEphemeralStorage}

// allocatable returns the allocatable that a kubelet with the configuration
// computes from the capacity, without the resources of device plugins
// (pkg/kubelet/nodestatus/setters.go, MachineInfo).
func allocatable(config component.Effective, capacity amounts, ignoreEviction bool) amounts {
	a := make(amounts, len(capacity)+1)
	for name, total := range capacity {
		a[name] = total
		if !isExtended(name) {
			a[name] = max(0, total-reserved(config, name))
		}
	}

	hard := evictionHard(config)
	for signal, name := range evictionSignals {
		value, set := hard[signal]
		if _, ok := a[name]; ok && set && !ignoreEviction {
			a[name] = max(0, a[name]-threshold(value, capacity[name]))
		}
	}

	for name, total := range capacity {
		if isHugePages(name) {
			if memory, ok := a[corev1.ResourceMemory]; ok {
				a[corev1.ResourceMemory] = max(0, memory-total)
			}
		}
	}

	a[corev1.ResourcePods] = max(0, intOr(config, "maxPods", 110))
	if perCore := intOr(config, "podsPerCore", 0); perCore > 0 {
		cores := min(capacity[corev1.ResourceCPU]/1000, math.MaxInt32)
		a[corev1.ResourcePods] = min(a[corev1.ResourcePods], cores*min(perCore, math.MaxInt32))
	}

	return a
}
