// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheEffectOfAFieldIsFoundByThePathOfADifference(t *testing.T) {
	for path, want := range map[string]string{
		"maxPods": "", "podPidsLimit": newPods, "registerWithTaints": registration, "registerWithTaints.key": registration,
		"featureGates.NodeSwap": eachGate, "featureGates[NodeSwap]": eachGate, "memorySwap": newContainers, "authentication.anonymous.enabled": "",
		"hairpinMode": notUsed, "cgroupDriver": emptyNode, "maxPod": "", "trial.allowPodLoss": "", "": "",
	} {
		assert.Equal(t, Effect(path), want, path)
	}
}
