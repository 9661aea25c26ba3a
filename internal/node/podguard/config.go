// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// textOr returns a field of text; the kubelet's default if it is empty or
// missing.
func textOr(config component.Effective, path, missing string) string {
	return cmp.Or(config.String(path), missing)
}

// isOn reports whether a field is on that is on by default.
func isOn(config component.Effective, path string) bool {
	v, _ := config.Field(path)
	return v != false
}

func intOr(config component.Effective, path string, missing int64) int64 {
	if i, ok := config.Int(path); ok {
		return i
	}

	return missing
}

// texts returns the entries of a map of text; nil if it is not set. A number
// counts as its text.
func texts(config component.Effective, path string) map[string]string {
	v, _ := config.Field(path)
	return textsOf(v)
}

func textsOf(v any) map[string]string {
	fields, ok := v.(map[string]any)
	if !ok {
		return nil
	}

	entries := make(map[string]string, len(fields))
	for name, value := range fields {
		switch value.(type) {
		case string, json.Number, bool:
			entries[name] = fmt.Sprint(value)
		}
	}

	return entries
}

func list(config component.Effective, path string) []any {
	v, _ := config.Field(path)
	entries, _ := v.([]any)
	return entries
}

// defaultEvictionHard is the kubelet's on Linux
// (pkg/kubelet/eviction/defaults_linux.go).
var defaultEvictionHard = map[string]string{
	"memory.available":   "100Mi",
	"nodefs.available":   "10%",
	"nodefs.inodesFree":  "5%",
	"imagefs.available":  "15%",
	"imagefs.inodesFree": "5%",
}

// evictionHard returns the hard thresholds. An effective configuration prints
// its defaults; without the field the defaults count.
func evictionHard(config component.Effective) map[string]string {
	if set := texts(config, "evictionHard"); set != nil {
		return set
	}

	return defaultEvictionHard
}

// threshold returns an eviction threshold of a capacity; zero: the kubelet
// ignores it. An unreadable one is the whole capacity. The computation has the
// kubelet's rounding: it holds percentages as float32.
func threshold(value string, capacity int64) int64 {
	if value == "0%" || value == "100%" {
		return 0
	}

	if strings.HasSuffix(value, "%") {
		percent, err := strconv.ParseFloat(strings.TrimRight(value, "%"), 32)
		if err != nil || math.IsNaN(percent) || percent < 0 || percent > 100 {
			return capacity
		}

		return int64(float64(capacity) * float64(float32(percent)/100))
	}

	q, err := payload.ParseQuantity(value)
	if err != nil {
		return capacity
	}

	return amount("", q)
}

// The minor versions whose kubelets are known: the supported ones, and a
// preview of the next. An older kubelet counts as the oldest, a newer one as
// the newest.
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

// gateStages has the gates that admission depends on, for 1.33, 1.34, 1.35,
// 1.36, 1.37 and 1.38 (beta.0). The source is
// defaultVersionedKubernetesFeatureGates in pkg/features/kube_features.go of
// each version. A gate that was removed counts as what the kubelet does without
// it.
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

// on reports whether the kubelet has the feature enabled. The name of an
// unknown gate is an error of the program.
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

// ResetsReadiness reports whether a starting kubelet sets every running
// container with a readiness or startup probe not ready until the probe
// succeeds again, which can take the probe's period. Other kubelets keep what
// the pod's status in the API says, so that only static pods, whose manifests
// have no status, lose Ready; and pods that are younger than 10 s.
func ResetsReadiness(config component.Effective, minor int) bool {
	return gatesOf(config, minor).on("ChangeContainerStatusOnKubeletRestart")
}
