// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// devices applies the device manager's allocation
// (pkg/kubelet/cm/devicemanager/manager.go, devicesToAllocate). After a start
// no plugin has registered yet: only a container that runs, with as many
// devices as its limit, keeps them. The kubelet asks for completed init
// containers too.
func (n *node) devices(p *pod) *cause {
	if len(n.in.Devices.Resources) == 0 {
		return nil
	}

	for c := range allContainers(p.Pod) {
		limits := c.Resources.Limits
		if replaced, ok := p.allocated.Containers[c.Name]; ok && len(replaced.Limits) > 0 {
			limits = replaced.Limits
		}

		for _, name := range sorted(limits) {
			if !n.in.Devices.Resources[name] || n.fromClaim(p, c.Name, name) {
				continue
			}

			limit, count := limits[name], n.in.Devices.Allocated[DeviceUser{p.uid, c.Name, name}]
			if count > 0 && limit.CmpInt64(int64(count)) != 0 {
				return because("UnexpectedAdmissionError", "container %s has %d devices of %s and a limit of %s", c.Name, count, name, limit.String())
			}

			if !n.in.Running[p.uid][c.Name] {
				return because("UnexpectedAdmissionError", "container %s needs %s and does not run; the device plugin registers only after the start",
					c.Name, name)
			}

			if count == 0 && limit.Sign() > 0 {
				return because("OutOf"+string(name), "container %s needs %s and has no devices in the kubelet's checkpoint", c.Name, name)
			}

			if n.gates.minor < 35 && restarted(p, c.Name) {
				return because("UnexpectedAdmissionError", "container %s needs %s and was restarted; the kubelet may look at its exited predecessor",
					c.Name, name)
			}
		}
	}

	return nil
}

// usesDevices reports whether a container has a limit of a plugin's resource.
func (n *node) usesDevices(p *pod) bool {
	return len(n.in.Devices.Resources) > 0 && hasAny(allContainers(p.Pod), func(c *corev1.Container) bool {
		for name := range c.Resources.Limits {
			if n.in.Devices.Resources[name] {
				return true
			}
		}

		return false
	})
}

// fromClaim reports whether a resource claim provides the extended resource;
// then the device manager skips it.
func (n *node) fromClaim(p *pod, container string, name corev1.ResourceName) bool {
	if p.Status.ExtendedResourceClaimStatus == nil || n.gates.minor < 35 || !n.gates.on("DRAExtendedResource") {
		return false
	}

	return slices.ContainsFunc(p.Status.ExtendedResourceClaimStatus.RequestMappings, func(m corev1.ContainerExtendedResourceRequest) bool {
		return m.ContainerName == container && m.ResourceName == string(name)
	})
}

func restarted(p *pod, container string) bool {
	return hasAny(allStatuses(p.Pod), func(s *corev1.ContainerStatus) bool { return s.Name == container && s.RestartCount > 0 })
}
