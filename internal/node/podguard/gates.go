// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import "github.com/evenkeel/evenkeel/internal/component"

// The minor versions whose kubelets are known: the supported ones, and a preview of the next. An older kubelet counts as the
// oldest, a newer one as the newest.
const (
	oldestMinor = component.OldestMinor
	newestMinor = 38
)

// stage is a feature gate's stage and default in one minor version.
type stage int

const (
	absent     stage = iota // the kubelet does not know the gate; the feature does not exist
	alpha                   // off
	beta                    // on
	betaOff                 // off
	deprecated              // off, also with AllAlpha and AllBeta
	locked                  // on, and configuration cannot change it
)

// gateStages has the gates that admission depends on, for 1.33, 1.34, 1.35, 1.36, 1.37 and 1.38 (beta.0). The source is
// defaultVersionedKubernetesFeatureGates in pkg/features/kube_features.go of each version. A gate that was removed counts as
// what the kubelet does without it.
var gateStages = map[string][newestMinor - oldestMinor + 1]stage{
	// 1.33 and 1.34: without a gate
	"ChangeContainerStatusOnKubeletRestart":   {locked, locked, deprecated, deprecated, deprecated, deprecated},
	"DRAExtendedResource":                     {absent, alpha, alpha, beta, locked, locked},
	"DRANodeAllocatableResources":             {absent, absent, absent, alpha, alpha, alpha},
	"HugepageAwareEviction":                   {absent, absent, absent, absent, beta, beta},
	"InPlacePodLevelResourcesVerticalScaling": {absent, absent, alpha, beta, beta, beta},
	"InPlacePodVerticalScaling":               {beta, beta, locked, locked, locked, locked}, // 1.38: without a gate
	"KubeletCgroupDriverFromCRI":              {beta, locked, locked, locked, locked, locked},
	"NodeDeclaredFeatures":                    {absent, absent, alpha, beta, locked, locked},
	"PodCertificateMLDSA":                     {absent, absent, absent, absent, absent, betaOff},
	"PodLevelResourceManagers":                {absent, absent, absent, alpha, betaOff, betaOff},
	"PodLevelResources":                       {alpha, beta, beta, beta, beta, beta},
	"RestartAllContainersOnContainerExits":    {absent, absent, alpha, beta, beta, beta},
	"SecurityProfileOCI":                      {absent, absent, absent, absent, absent, alpha},
	"TaintTolerationComparisonOperators":      {absent, absent, alpha, alpha, alpha, alpha},
	"UserNamespacesHostNetworkSupport":        {absent, absent, alpha, alpha, alpha, alpha},
	"VolumeBindMountOptions":                  {absent, absent, absent, absent, alpha, alpha},
}

// gates are the feature gates of one kubelet with one configuration.
type gates struct {
	minor int
	set   map[string]any // the configuration's featureGates
}

func gatesOf(config component.Effective, minor int) gates {
	set, _ := config.Field("featureGates")
	g := gates{minor: min(max(minor, oldestMinor), newestMinor)}
	g.set, _ = set.(map[string]any)
	return g
}

// on reports whether the kubelet has the feature enabled. The name of an unknown gate is an error of the program.
func (g gates) on(name string) bool {
	stage := gateStages[name][g.minor-oldestMinor]
	switch stage {
	case absent:
		return false
	case locked:
		return true
	}
	if on, ok := g.set[name].(bool); ok {
		return on
	}
	if stage == deprecated {
		return false
	}
	all := "AllBeta"
	if stage == alpha {
		all = "AllAlpha"
	}
	if on, ok := g.set[all].(bool); ok {
		return on
	}
	return stage == beta
}

// ResetsReadiness reports whether a starting kubelet sets every running container with a readiness or startup probe not ready
// until the probe succeeds again, which can take the probe's period. Other kubelets keep what the pod's status in the API says,
// so that only static pods, whose manifests have no status, lose Ready; and pods that are younger than 10 s.
func ResetsReadiness(config component.Effective, minor int) bool {
	return gatesOf(config, minor).on("ChangeContainerStatusOnKubeletRestart")
}
