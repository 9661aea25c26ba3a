// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestNeedsDrainNamesEachCause(t *testing.T) {
	cpu := func(assigned cpuset.CPUSet) func(*Input) {
		return func(in *Input) {
			online := cpuset.New(0, 1, 2, 3)
			in.Machine.OnlineCPUs = online
			in.CPUState = &CPUState{Policy: "static", Default: online.Difference(assigned), Assigned: map[types.UID]map[string]cpuset.CPUSet{}}
			if !assigned.IsEmpty() {
				in.CPUState.Assigned["uid-a"] = map[string]cpuset.CPUSet{"c": assigned}
			}
		}
	}
	strictly := func(free string) func(*Input) {
		return func(in *Input) {
			cpu(cpuset.New())(in)
			in.CPUState.Default, _ = ParseCPUSet(free)
		}
	}
	memory := func(in *Input) {
		in.MemoryState = &MemoryState{Policy: "Static", NUMA: map[int]NUMANode{0: {map[corev1.ResourceName]MemoryTable{"memory": {SystemReserved: 1 << 30}}}}}
	}
	const (
		static    = `"cpuManagerPolicy":"static"`
		strict    = static + `,"cpuManagerPolicyOptions":{"strict-cpu-reservation":"true"}`
		reserved1 = `"memoryManagerPolicy":"Static","reservedMemory":[{"numaNode":0,"limits":{"memory":"1Gi"}}]`
		gib       = `"kubeReserved":{"memory":"1Gi"},"evictionHard":{}`
		reserved2 = `"memoryManagerPolicy":"Static","reservedMemory":[{"numaNode":0,"limits":{"memory":"2Gi"}}]`
	)
	for _, tt := range []struct {
		name          string
		before, after string
		input         func(*Input)
		want          string // part of the only reason; empty: none
	}{
		{"nothing", `{}`, `{"maxPods":5}`, nil, ""},
		{"defaults written out", `{}`, `{"cgroupRoot":"/","cgroupsPerQOS":true,"cgroupDriver":"cgroupfs"}`, nil, ""},
		{"cgroupRoot", `{}`, `{"cgroupRoot":"/x"}`, nil, "cgroupRoot changes from / to /x"},
		{"cgroupsPerQOS", `{}`, `{"cgroupsPerQOS":false}`, nil, "cgroupsPerQOS changes"},
		{"cgroupDriver", `{}`, `{"cgroupDriver":"systemd"}`, nil, "cgroupDriver changes"},
		{"cgroupDriver that the runtime decides", `{}`, `{"cgroupDriver":"systemd"}`, func(in *Input) { in.Machine.CgroupDriver = "systemd" }, ""},
		{"cgroupRoot and no containers", `{}`, `{"cgroupRoot":"/x"}`, func(in *Input) { in.Running = map[types.UID]map[string]bool{} }, ""},
		{"configuration that runs is not known", `null`, `{"cgroupRoot":"/x"}`, nil, ""},
		{"CPU policy", `{` + static + `}`, `{}`, cpu(cpuset.New()), `cpu_manager_state was written by "static"`},
		{"reserved CPUs that are free", `{` + static + `,"reservedSystemCPUs":"0"}`, `{` + static + `,"reservedSystemCPUs":"0-1"}`, cpu(cpuset.New(3)), ""},
		{"reserved CPUs that are assigned", `{` + static + `,"reservedSystemCPUs":"0"}`, `{` + static + `,"reservedSystemCPUs":"0,3"}`, cpu(cpuset.New(3)), "reserved CPUs belong to containers"},
		{"number of reserved CPUs", `{` + static + `,"kubeReserved":{"cpu":"1"}}`, `{` + static + `,"kubeReserved":{"cpu":"1500m"}}`, cpu(cpuset.New(3)), "the reservation of CPUs changes"},
		{"reservation within a CPU", `{` + static + `,"kubeReserved":{"cpu":"600m"}}`, `{` + static + `,"kubeReserved":{"cpu":"900m"}}`, cpu(cpuset.New(3)), ""},
		{"number of reserved CPUs and no entries", `{` + static + `,"kubeReserved":{"cpu":"1"}}`, `{` + static + `,"kubeReserved":{"cpu":"2"}}`, cpu(cpuset.New()), ""},
		{"strict reservation", `{` + static + `,"reservedSystemCPUs":"0"}`, `{` + strict + `,"reservedSystemCPUs":"0"}`, cpu(cpuset.New()), "strict-cpu-reservation excludes them"},
		{"options with unknown reserved CPUs", `{` + static + `,"kubeReserved":{"cpu":"1"}}`, `{` + static + `,"kubeReserved":{"cpu":"1"},"cpuManagerPolicyOptions":{"distribute-cpus-across-cores":"true"}}`, cpu(cpuset.New(3)), "the reservation of CPUs changes"},
		{"options with known reserved CPUs", `{` + static + `,"reservedSystemCPUs":"0"}`, `{` + static + `,"reservedSystemCPUs":"0","cpuManagerPolicyOptions":{"distribute-cpus-across-cores":"true"}}`, cpu(cpuset.New(3)), ""},
		{"reserved CPUs that become known", `{` + static + `,"kubeReserved":{"cpu":"1"}}`, `{` + static + `,"reservedSystemCPUs":"0"}`, cpu(cpuset.New(3)), ""},
		{"reserved CPUs that become unknown", `{` + static + `,"reservedSystemCPUs":"0"}`, `{` + static + `,"kubeReserved":{"cpu":"1"}}`, cpu(cpuset.New(3)), "the reservation of CPUs changes"},
		{"smaller strict reservation", `{` + strict + `,"reservedSystemCPUs":"0-1"}`, `{` + strict + `,"reservedSystemCPUs":"0"}`, strictly("2-3"), "the machine's available CPUs"},
		{"smaller strict reservation of an unknown machine", `{` + strict + `,"reservedSystemCPUs":"0-1"}`, `{` + strict + `,"reservedSystemCPUs":"0"}`, func(in *Input) {
			strictly("2-3")(in)
			in.Machine.OnlineCPUs = cpuset.New()
		}, "changes with strict-cpu-reservation"},
		{"strict reservation that stays", `{` + strict + `,"reservedSystemCPUs":"0-1"}`, `{` + strict + `,"reservedSystemCPUs":"0-1"}`, strictly("2-3"), ""},
		{"strict reservation of unknown CPUs that stays", `{` + strict + `,"kubeReserved":{"cpu":"1"}}`, `{` + strict + `,"kubeReserved":{"cpu":"1"}}`, strictly("2-3"), ""},
		{"no strict reservation any more", `{` + strict + `,"reservedSystemCPUs":"0-1"}`, `{` + static + `,"reservedSystemCPUs":"0-1"}`, strictly("2-3"), "belong to containers, or do not exist"},
		{"overlapping CPUs", `{` + static + `,"reservedSystemCPUs":"0"}`, `{` + static + `,"reservedSystemCPUs":"0"}`, func(in *Input) {
			cpu(cpuset.New(3))(in)
			in.CPUState.Default = cpuset.New(0, 1, 2, 3)
		}, "also in the default set"},
		{"assignments without default set", `{` + static + `,"reservedSystemCPUs":"0"}`, `{` + static + `,"reservedSystemCPUs":"0"}`, func(in *Input) {
			cpu(cpuset.New(3))(in)
			in.CPUState.Default = cpuset.New()
		}, "default set of CPUs is empty"},
		{"new state", `{` + static + `,"reservedSystemCPUs":"0"}`, `{` + static + `,"reservedSystemCPUs":"1"}`, func(in *Input) { in.CPUState = &CPUState{Policy: "static"} }, ""},
		{"state of policy none", `{}`, `{"kubeReserved":{"cpu":"1"}}`, func(in *Input) {
			cpu(cpuset.New(3))(in)
			in.CPUState.Policy = "none"
		}, ""},
		{"strict reservation that begins", `{` + static + `,"kubeReserved":{"cpu":"1"}}`, `{` + strict + `,"kubeReserved":{"cpu":"1"}}`, cpu(cpuset.New()), "the reservation of CPUs changes"},
		{"strict reservation that ends", `{` + strict + `,"kubeReserved":{"cpu":"1"}}`, `{` + static + `,"kubeReserved":{"cpu":"1"}}`, strictly("1-3"), "the reservation of CPUs changes"},
		{"CPU that went offline", `{` + static + `,"reservedSystemCPUs":"0"}`, `{` + static + `,"reservedSystemCPUs":"0"}`, func(in *Input) {
			cpu(cpuset.New())(in)
			in.Machine.OnlineCPUs = cpuset.New(0, 1)
		}, "the machine's available CPUs"},
		{"memory policy", `{}`, `{}`, memory, `memory_manager_state was written by "Static"`},
		{"reservedMemory", `{` + reserved1 + `}`, `{` + reserved2 + `}`, memory, "reservedMemory of memory on NUMA node 0"},
		{"reservedMemory of another NUMA node", `{` + reserved1 + `}`, `{"memoryManagerPolicy":"Static","reservedMemory":[{"numaNode":1,"limits":{"memory":"1Gi"}}]}`, memory, "reservedMemory of memory on NUMA node 0"},
		{"reservation without reservedMemory", `{` + reserved1 + `,` + gib + `}`, `{` + reserved1 + `,` + gib + `,"systemReserved":{"memory":"1Mi"}}`, memory, "they no longer add up"},
		{"threshold without reservedMemory", `{` + reserved1 + `,` + gib + `}`, `{` + reserved1 + `,"kubeReserved":{"memory":"1Gi"},"evictionHard":{"memory.available":"1Mi"}}`, memory, "they no longer add up"},
		{"threshold of the kubelet that ignores it", `{` + reserved1 + `,` + gib + `}`, `{` + reserved1 + `,"kubeReserved":{"memory":"1Gi"},"evictionHard":{"memory.available":"1Mi"}}`, func(in *Input) { memory(in); in.Machine.IgnoreEviction = true }, ""},
		{"memory state of policy None", `{}`, `{"kubeReserved":{"memory":"1Gi"}}`, func(in *Input) { memory(in); in.MemoryState.Policy = "None" }, ""},
		{"reservedMemory that stays", `{` + reserved1 + `}`, `{` + reserved1 + `,"maxPods":5}`, memory, ""},
		{"user namespaces", `{}`, `{"userNamespaces":{"idsPerPod":131072}}`, func(in *Input) { in.Pods[0].Spec.HostUsers = new(false) }, "idsPerPod changes"},
		{"user namespaces that stay", `{}`, `{"userNamespaces":{"idsPerPod":65536}}`, func(in *Input) { in.Pods[0].Spec.HostUsers = new(false) }, ""},
		{"user namespaces and no pod with one", `{}`, `{"userNamespaces":{"idsPerPod":131072}}`, nil, ""},
	} {
		in := Input{Minor: 36, Before: config(t, tt.before), After: config(t, tt.after), Node: aNode(), Pods: []*corev1.Pod{aPod("a", nil)}}
		if tt.input != nil {
			tt.input(&in)
		}

		reasons := NeedsDrain(in)
		assert.That(t, (len(reasons) == 0) == (tt.want == "") && len(reasons) <= 1 && strings.Contains(strings.Join(reasons, ""), tt.want),
			"%s: got %q, want %q", tt.name, reasons, tt.want)
	}
}

func TestGatesFollowTheVersion(t *testing.T) {
	const resets = "ChangeContainerStatusOnKubeletRestart"
	for _, tt := range []struct {
		minor        int
		config, gate string
		want         bool
	}{
		{33, `{}`, "PodLevelResources", false},
		{34, `{}`, "PodLevelResources", true},
		{33, `{"featureGates":{"AllAlpha":true}}`, "PodLevelResources", true},
		{33, `{"featureGates":{"AllAlpha":true,"PodLevelResources":false}}`, "PodLevelResources", false},
		{34, `{"featureGates":{"AllBeta":false}}`, "PodLevelResources", false},
		{35, `{"featureGates":{"AllBeta":false}}`, "InPlacePodVerticalScaling", true}, // locked
		{37, `{"featureGates":{"AllBeta":true}}`, "PodLevelResourceManagers", true},
		{33, `{"featureGates":{"NodeDeclaredFeatures":true}}`, "NodeDeclaredFeatures", false}, // unknown to 1.33
		{32, `{}`, "KubeletCgroupDriverFromCRI", true},
		{34, `{"featureGates":{"KubeletCgroupDriverFromCRI":false}}`, "KubeletCgroupDriverFromCRI", true}, // locked
		{38, `{"featureGates":{"AllBeta":false}}`, "InPlacePodVerticalScaling", true},                     // removed
		{37, `{"featureGates":{"SecurityProfileOCI":true}}`, "SecurityProfileOCI", false},
		{40, `{}`, "NodeDeclaredFeatures", true},
		{30, `{}`, resets, true},
		{34, `{"featureGates":{"ChangeContainerStatusOnKubeletRestart":false}}`, resets, true}, // unknown to 1.34
		{35, `{}`, resets, false},
		{35, `{"featureGates":{"ChangeContainerStatusOnKubeletRestart":true}}`, resets, true},
		{36, `{"featureGates":{"AllAlpha":true,"AllBeta":true}}`, resets, false}, // deprecated
		{39, `{"featureGates":{"ChangeContainerStatusOnKubeletRestart":true}}`, resets, true},
	} {
		effective := config(t, tt.config)
		assert.Equal(t, gatesOf(effective, tt.minor).on(tt.gate), tt.want, tt)
		if tt.gate == resets {
			assert.Equal(t, ResetsReadiness(effective, tt.minor), tt.want, tt)
		}
	}
}

func TestQuantitiesAreAmounts(t *testing.T) {
	for _, tt := range []struct {
		name corev1.ResourceName
		text string
		want int64
	}{
		{"cpu", "1500m", 1500}, {"cpu", "1u", 1}, {"memory", "1500m", 2}, {"memory", "1Gi", 1 << 30}, {"cpu", "-1", 0}, {"memory", "-9E", 0},
		{"memory", "1e30", maxAmount}, {"cpu", "1e30", maxAmount}, {"cpu", "8E", maxAmount}, {"cpu", "2305843009213692", 2305843009213692000},
	} {
		assert.Equal(t, amount(tt.name, resource.MustParse(tt.text)), tt.want, tt.text, "of", tt.name)
	}
}

func TestThresholdsAreTheKubelets(t *testing.T) {
	for value, want := range map[string]int64{"0%": 0, "100%": 0, "50%": 500, "3.3%": 32, "7": 7, "1Ki": 1024, "x": 1000, "-1%": 1000, "NaN%": 1000, "101%": 1000, "": 1000} {
		assert.Equal(t, threshold(value, 1000), want, value)
	}
}

func TestAllocatableIsTheKubelets(t *testing.T) {
	// The kubelet computes with float32 percentages: 10% is 0.10000000149.
	capacity := amounts{"cpu": 2000, "memory": 8 << 30, "ephemeral-storage": 100 << 30, "hugepages-2Mi": 1 << 30}
	a := allocatable(config(t, `{"evictionHard":{"memory.available":"100Mi","nodefs.available":"10%"},"kubeReserved":{"cpu":"100m","memory":"1Gi"},"systemReserved":{"cpu":"200m","ephemeral-storage":"1Gi"},"maxPods":110,"podsPerCore":10}`), capacity, false)
	share := float32(10) / 100
	storage := int64(99)<<30 - int64(float64(int64(100)<<30)*float64(share))
	want := amounts{"cpu": 1700, "memory": 6<<30 - 100<<20, "ephemeral-storage": storage, "hugepages-2Mi": 1 << 30, "pods": 20}
	assert.NoDiff(t, cmp.Diff(want, a))
	assert.That(t, storage != 99<<30-10<<30, "the test does not tell the kubelet's rounding from an exact one")
}
