// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import "github.com/evenkeel/evenkeel/internal/component"

// ResetsReadiness reports whether a starting kubelet sets every running container with a readiness or startup probe not ready
// until the probe succeeds again, which can take the probe's period. Other kubelets keep what the pod's status in the API says,
// so that only static pods, whose manifests have no status, lose Ready; and pods that are younger than 10 s.
func ResetsReadiness(config component.Effective, minor int) bool {
	return gatesOf(config, minor).on("ChangeContainerStatusOnKubeletRestart")
}
