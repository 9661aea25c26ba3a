// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
)

func TestStaticPolicies(t *testing.T) {
	const static, pinned = `"cpuManagerPolicy":"static","systemReserved":{"cpu":"1"}`, `"memoryManagerPolicy":"Static"`
	full := `{"evictionHard":{},` + static + `,"cpuManagerPolicyOptions":{"full-pcpus-only":"true"}}`
	aligned := func(policy string) string {
		return `{"evictionHard":{},` + static + `,` + pinned + `,"topologyManagerPolicy":"` + policy + `"}`
	}
	eight := capacities("cpu", "8")
	cpu := func(free string, assigned map[types.UID]map[string]cpuset.CPUSet) func(*Input) {
		return func(in *Input) {
			in.Machine.ThreadsPerCore, in.Machine.NUMANodes = 2, 2
			set, _ := ParseCPUSet(free)
			in.CPUState = &CPUState{Policy: "static", Default: set, Assigned: assigned}
			in.MemoryState = &MemoryState{Policy: "Static", Assigned: map[types.UID]map[string][]struct{}{"uid-a": {"c": nil}}}
		}
	}
	hasFour := map[types.UID]map[string]cpuset.CPUSet{"uid-a": {"c": cpuset.New(4, 5, 6, 7)}}
	a := aPod("a", nil, guaranteed("4"))
	small := func(name string) *corev1.Pod { return aPod(name, nil, guaranteed("500m")) }
	sidecar := func(p *corev1.Pod) { p.Spec.InitContainers[0].RestartPolicy = new(corev1.ContainerRestartPolicyAlways) }
	inits := func(cpus ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			for i, cpu := range cpus {
				list := quantities("cpu", cpu, "memory", "64Mi")
				p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: fmt.Sprint("i", i), Resources: corev1.ResourceRequirements{Requests: list, Limits: list}})
			}
		}
	}
	second := func(cpu string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			list := quantities("cpu", cpu, "memory", "64Mi")
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "d", Resources: corev1.ResourceRequirements{Requests: list, Limits: list}})
		}
	}
	memory := func(free uint64, numa int, assigned ...types.UID) func(*Input) {
		return func(in *Input) {
			in.MemoryState = &MemoryState{Policy: "Static", NUMA: map[int]NUMANode{}, Assigned: map[types.UID]map[string][]struct{}{}}
			for id := range numa {
				in.MemoryState.NUMA[id] = NUMANode{map[corev1.ResourceName]MemoryTable{"memory": {Free: free}}}
			}

			for _, uid := range assigned {
				in.MemoryState.Assigned[uid] = map[string][]struct{}{"c": nil}
			}
		}
	}
	const wantsMemory = `{"evictionHard":{},` + pinned + `}`
	for _, tt := range []prediction{
		{name: "CPUs that the pod has", after: `{"evictionHard":{},` + static + `}`, node: eight, pods: []*corev1.Pod{a}, input: cpu("0-3", hasFour)},
		{name: "CPUs of another pod", after: `{"evictionHard":{},` + static + `}`, node: eight, pods: []*corev1.Pod{a, aPod("b", nil, guaranteed("3"))}, input: cpu("0-3", hasFour)},
		{name: "CPUs of another pod that are reserved", after: `{"evictionHard":{},"cpuManagerPolicy":"static","systemReserved":{"cpu":"1001m"}}`, node: capacities("cpu", "9"), pods: []*corev1.Pod{a, aPod("b", nil, guaranteed("3"))}, input: cpu("0-3", hasFour),
			want: "b UnexpectedAdmissionError"},
		{name: "shared CPUs without the reserved ones", node: eight, after: `{"evictionHard":{},` + static + `,"cpuManagerPolicyOptions":{"strict-cpu-reservation":"true"}}`, pods: []*corev1.Pod{a, aPod("b", nil, guaranteed("3"))}, input: cpu("1-3", hasFour)},
		{name: "CPUs of a completed init container", after: `{"evictionHard":{},` + static + `}`, node: eight, pods: []*corev1.Pod{aPod("a", nil, guaranteed("4"), inits("4"))}, input: cpu("0-3", hasFour), want: "a UnexpectedAdmissionError"},
		{name: "CPUs that an init container leaves to the container", after: `{"evictionHard":{},` + static + `}`, node: eight, pods: []*corev1.Pod{aPod("b", nil, guaranteed("3"), inits("3"))}, input: cpu("0-3", hasFour)},
		{name: "CPUs of several init containers", after: `{"evictionHard":{},` + static + `}`, node: eight, pods: []*corev1.Pod{aPod("b", nil, guaranteed("1"), inits("3", "3"))}, input: cpu("0-3", hasFour)},
		{name: "CPUs of several containers", after: `{"evictionHard":{},` + static + `}`, node: eight, pods: []*corev1.Pod{aPod("b", nil, guaranteed("2"), second("2"))}, input: cpu("0-3", hasFour), want: "b UnexpectedAdmissionError"},
		{name: "CPUs of several pods", after: `{"evictionHard":{},` + static + `}`, node: eight, pods: []*corev1.Pod{aPod("b", nil, guaranteed("2")), aPod("c", nil, guaranteed("2"))}, input: cpu("0-3", hasFour), want: "b UnexpectedAdmissionError, c UnexpectedAdmissionError"},
		{name: "CPUs that a sidecar has", after: `{"evictionHard":{},` + static + `}`, node: eight, pods: []*corev1.Pod{aPod("a", nil, guaranteed("3"), inits("1"), sidecar)}, input: cpu("0", map[types.UID]map[string]cpuset.CPUSet{"uid-a": {"c": cpuset.New(4, 5, 6), "i0": cpuset.New(7)}})},
		{name: "CPUs of an init container beside a sidecar", after: `{"evictionHard":{},` + static + `}`, node: eight, pods: []*corev1.Pod{aPod("b", nil, guaranteed("1"), inits("1", "2"), sidecar)}, input: cpu("0-3", hasFour), want: "b UnexpectedAdmissionError"},
		{name: "CPUs that are allocated", after: `{"evictionHard":{},` + static + `}`, node: eight, pods: []*corev1.Pod{aPod("b", nil, guaranteed("3"))}, input: func(in *Input) {
			cpu("0-3", hasFour)(in)
			in.Allocated = map[types.UID]Allocation{"uid-b": {Containers: map[string]corev1.ResourceRequirements{"c": {Requests: quantities("cpu", "4")}}}}
		}, want: "b UnexpectedAdmissionError"},
		{name: "part of a CPU", after: `{"evictionHard":{},` + static + `}`, node: eight, pods: []*corev1.Pod{a, aPod("b", nil, guaranteed("3500m"))}, input: cpu("0", hasFour), want: "a OutOfcpu, b OutOfcpu"},
		{name: "burstable", after: `{"evictionHard":{},` + static + `}`, node: eight, pods: []*corev1.Pod{a, aPod("b", quantities("cpu", "2"))}, input: cpu("0", hasFour)},
		{name: "pod-level resources", after: `{"evictionHard":{},` + static + `}`, node: eight, pods: []*corev1.Pod{a, aPod("b", nil, guaranteed("2"), func(p *corev1.Pod) {
			p.Spec.Resources = &p.Spec.Containers[0].Resources
		})}, input: cpu("0", hasFour), in: map[int]string{33: "b UnexpectedAdmissionError"}},
		{name: "class of the status", after: `{"evictionHard":{},` + static + `}`, node: eight, pods: []*corev1.Pod{a, aPod("b", nil, guaranteed("2"), func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSBurstable })}, input: cpu("0", hasFour)},
		{name: "class of pod-level resources", after: `{"evictionHard":{},"cpuManagerPolicy":"static","systemReserved":{"cpu":"1"},"featureGates":{"PodLevelResourceManagers":true}}`, node: eight, pods: []*corev1.Pod{a, aPod("b", nil, guaranteed("2"), func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: quantities("cpu", "2", "memory", "65Mi"), Limits: quantities("cpu", "3", "memory", "65Mi")}
		})}, input: cpu("0", hasFour)},
		{name: "pod-level resources as a whole", node: eight, pods: []*corev1.Pod{aPod("b", nil, guaranteed("2"), func(p *corev1.Pod) {
			p.Spec.Resources = &p.Spec.Containers[0].Resources
		})}, after: `{"evictionHard":{},` + static + `,"topologyManagerScope":"pod","featureGates":{"PodLevelResourceManagers":true}}`, input: cpu("0-7", nil),
			in: map[int]string{36: "b UnexpectedAdmissionError", 37: "b UnexpectedAdmissionError"}},

		{name: "full cores", after: full, node: eight, pods: []*corev1.Pod{a}, input: cpu("0-3", hasFour), want: "a SMTAlignmentError", in: map[int]string{37: ""}},
		{name: "full cores with enough free ones", after: full, node: capacities("cpu", "12"), pods: []*corev1.Pod{a}, input: cpu("0-3,8-11", hasFour)},
		{name: "full cores beside a reserved thread", after: full, node: capacities("cpu", "12"), pods: []*corev1.Pod{a}, input: cpu("0-3,8", hasFour), want: "a SMTAlignmentError", in: map[int]string{37: ""}},
		{name: "half a core", after: full, node: capacities("cpu", "12"), pods: []*corev1.Pod{aPod("a", nil, guaranteed("3"))}, input: cpu("0-3,8-11", map[types.UID]map[string]cpuset.CPUSet{"uid-a": {"c": cpuset.New(4, 5, 6)}}), want: "a SMTAlignmentError", in: map[int]string{37: ""}},
		{name: "full cores of unknown size", after: full, node: capacities("cpu", "12"), pods: []*corev1.Pod{a, small("b")}, input: func(in *Input) { cpu("0-3,8-11", hasFour)(in); in.Machine.ThreadsPerCore = 0 }, want: "a SMTAlignmentError", in: map[int]string{37: ""}},

		{name: "alignment that stays", before: aligned("restricted"), after: aligned("restricted"), node: eight, pods: []*corev1.Pod{a}, input: cpu("0-3", hasFour)},
		{name: "alignment that becomes strict", before: aligned("none"), after: aligned("restricted"), node: eight, pods: []*corev1.Pod{a, aPod("b", quantities("cpu", "1"))}, input: cpu("0-3", hasFour), want: "a TopologyAffinityError"},
		{name: "alignment that becomes best-effort", before: aligned("none"), after: aligned("best-effort"), node: eight, pods: []*corev1.Pod{a}, input: cpu("0-3", hasFour)},
		{name: "alignment on one NUMA node", before: aligned("none"), after: aligned("restricted"), node: eight, pods: []*corev1.Pod{a}, input: func(in *Input) { cpu("0-3", hasFour)(in); in.Machine.NUMANodes = 1 }},
		{name: "alignment by pod", before: aligned("restricted"), after: aligned("restricted")[:len(aligned("restricted"))-1] + `,"topologyManagerScope":"pod"}`, node: eight, pods: []*corev1.Pod{a}, input: cpu("0-3", hasFour), want: "a TopologyAffinityError"},
		{name: "alignment with other options of CPUs", before: aligned("restricted"), after: aligned("restricted")[:len(aligned("restricted"))-1] + `,"cpuManagerPolicyOptions":{"align-by-socket":"true"}}`, node: eight, pods: []*corev1.Pod{a}, input: cpu("0-3", hasFour), want: "a TopologyAffinityError"},
		{name: "alignment with other options", before: aligned("single-numa-node"), after: aligned("single-numa-node")[:len(aligned("single-numa-node"))-1] + `,"topologyManagerPolicyOptions":{"prefer-closest-numa-nodes":"true"}}`, node: eight, pods: []*corev1.Pod{a}, input: cpu("0-3", hasFour), want: "a TopologyAffinityError"},
		{name: "alignment of a pod that has not started", before: aligned("restricted"), after: aligned("restricted"), node: eight, pods: []*corev1.Pod{aPod("b", nil, guaranteed("1"))}, input: cpu("0-3", hasFour), want: "b TopologyAffinityError"},
		{name: "alignment of missing CPUs", before: `{"evictionHard":{},` + static + `,"topologyManagerPolicy":"restricted"}`, after: `{"evictionHard":{},` + static + `,"topologyManagerPolicy":"restricted"}`, node: eight, pods: []*corev1.Pod{aPod("b", nil, guaranteed("1"))}, input: cpu("0-3", hasFour), want: "b TopologyAffinityError"},
		{name: "alignment of missing memory", before: `{"evictionHard":{},` + pinned + `,"topologyManagerPolicy":"restricted"}`, after: `{"evictionHard":{},` + pinned + `,"topologyManagerPolicy":"restricted"}`, node: eight, pods: []*corev1.Pod{small("b")}, input: cpu("0-3", hasFour), want: "b TopologyAffinityError"},
		{name: "alignment of devices", before: aligned("none"), after: aligned("restricted"), node: eight, pods: []*corev1.Pod{aPod("a", nil, gpu)}, input: func(in *Input) {
			cpu("0-3", nil)(in)
			in.Devices = Devices{Resources: map[corev1.ResourceName]bool{"example.com/gpu": true}, Allocated: map[DeviceUser]int{{"uid-a", "c", "example.com/gpu"}: 1}}
			in.Running = map[types.UID]map[string]bool{"uid-a": {"c": true}}
		}, want: "a TopologyAffinityError"},

		{name: "memory that the pod has", after: wantsMemory, pods: []*corev1.Pod{small("a")}, input: memory(0, 2, "uid-a")},
		{name: "memory on one NUMA node", after: wantsMemory, pods: []*corev1.Pod{small("a"), small("b")}, input: memory(64<<20, 1, "uid-a")},
		{name: "no memory on one NUMA node", after: wantsMemory, pods: []*corev1.Pod{small("a"), small("b")}, input: memory(64<<20-1, 1, "uid-a"), want: "b UnexpectedAdmissionError"},
		{name: "memory on two NUMA nodes", after: wantsMemory, pods: []*corev1.Pod{small("a"), small("b")}, input: memory(1<<40, 2, "uid-a"), want: "b UnexpectedAdmissionError"},
		{name: "memory of several containers", after: wantsMemory, pods: []*corev1.Pod{aPod("b", nil, guaranteed("500m"), second("500m"))}, input: memory(127<<20, 1), want: "b UnexpectedAdmissionError"},
		{name: "huge pages", after: wantsMemory, node: capacities("hugepages-2Mi", "1Gi"), pods: []*corev1.Pod{aPod("b", nil, guaranteed("500m"), func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests["hugepages-2Mi"] = resource.MustParse("2Mi")
		})}, input: memory(1<<40, 1), want: "b UnexpectedAdmissionError"},
		{name: "memory of burstable pods", after: wantsMemory, pods: []*corev1.Pod{aPod("b", quantities("memory", "64Mi"))}, input: memory(0, 2)},
		{name: "memory of a completed init container", after: wantsMemory, pods: []*corev1.Pod{aPod("a", nil, guaranteed("500m"), inits("500m"))}, input: memory(0, 1, "uid-a"), want: "a UnexpectedAdmissionError"},
	} {
		tt.run(t)
	}
}
