// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// prediction is an input and what Predict returns for it, by minor version.
type prediction struct {
	name          string
	before, after string // configurations; empty: nothing reserved
	node          func(*corev1.Node)
	pods          []*corev1.Pod
	input         func(*Input)
	want          string         // for every version
	in            map[int]string // instead of want, for some versions; 38 is as 37 if it is not there
	message       string         // instead of want: reason and message of the only loss
}

func (tt prediction) run(t *testing.T) {
	t.Helper()
	for _, minor := range allMinors {
		t.Run(fmt.Sprintf("%s, 1.%d", tt.name, minor), func(t *testing.T) {
			in := Input{Minor: minor, After: config(t, nothingReserved), Node: aNode(), Pods: tt.pods}
			if tt.after != "" {
				in.After = config(t, tt.after)
			}
			if tt.before != "" {
				in.Before = config(t, tt.before)
			}
			if tt.node != nil {
				tt.node(in.Node)
			}
			if tt.input != nil {
				tt.input(&in)
			}

			want := tt.want
			for _, version := range []int{min(minor, 37), minor} {
				if special, ok := tt.in[version]; ok {
					want = special
				}
			}

			losses := Predict(in)
			if tt.message != "" {
				assert.Must(t, len(losses) == 1, "losses are %+v", losses)
				assert.Equal(t, losses[0].Reason+": "+losses[0].Message, tt.message)
				return
			}

			assert.That(t, told(losses) == want, "got %q, want %q; %+v", told(losses), want, losses)
		})
	}
}

func capacities(pairs ...string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		for name, q := range quantities(pairs...) {
			n.Status.Capacity[name], n.Status.Allocatable[name] = q, q
		}
	}
}

func initContainer(name string, requests corev1.ResourceList, sidecar bool) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: requests}}
		if sidecar {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}

		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
}

func selects(label, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{label: value} }
}

func withSysctl(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: name, Value: "1"}}}
	}
}

func ports(ports ...corev1.ContainerPort) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Ports = ports }
}

func gpu(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = quantities("example.com/gpu", "1") }

func withPodLevel(requests corev1.ResourceList) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{Requests: requests} }
}

func TestPodsThatCountAsUsers(t *testing.T) {
	oneCPU := quantities("cpu", "1500m")
	ended := func(p *corev1.Pod) { p.Status.Phase, p.Status.ContainerStatuses = corev1.PodFailed, nil }
	completed := func(p *corev1.Pod) { p.Status.Phase, p.Status.ContainerStatuses = corev1.PodSucceeded, nil }
	deleted := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
	notStarted := func(p *corev1.Pod) { p.Status = corev1.PodStatus{} }
	for _, tt := range []prediction{
		{name: "terminating", pods: []*corev1.Pod{aPod("a", oneCPU), aPod("b", oneCPU, deleted)}, want: "a OutOfcpu"},
		{name: "terminating before it started", pods: []*corev1.Pod{aPod("a", oneCPU), aPod("b", oneCPU, deleted, notStarted)}, want: "a OutOfcpu"},
		{name: "terminal", pods: []*corev1.Pod{aPod("a", oneCPU), aPod("b", oneCPU, ended), aPod("c", oneCPU, completed)}},
		{name: "terminal with a running container", pods: []*corev1.Pod{aPod("a", oneCPU), aPod("b", oneCPU, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })}, want: "a OutOfcpu"},
		{name: "terminal with a container that only the runtime knows", pods: []*corev1.Pod{aPod("a", oneCPU), aPod("b", oneCPU, ended)}, want: "a OutOfcpu",
			input: func(in *Input) { in.Running = map[types.UID]map[string]bool{"uid-b": {"c": true}} }},
		{name: "not started", pods: []*corev1.Pod{aPod("a", oneCPU), aPod("b", oneCPU, notStarted)}, want: "a OutOfcpu, b OutOfcpu"},
		{name: "static pod that was rejected", pods: []*corev1.Pod{aPod("a", oneCPU), aPod("b", oneCPU, static, ended)}, want: "a OutOfcpu"},
		{name: "static pod whose mirror pod is being deleted", pods: []*corev1.Pod{aPod("a", quantities("cpu", "3"), static, deleted)}, want: "a UnexpectedAdmissionError"},
		{name: "pods limit with a static and a terminating pod", after: `{"evictionHard":{},"maxPods":2}`, pods: []*corev1.Pod{aPod("a", nil), aPod("b", nil, static), aPod("c", nil, deleted)}, want: "a OutOfpods"},
	} {
		tt.run(t)
	}
}

func TestRequestsOfPods(t *testing.T) {
	status := func(allocated, actual corev1.ResourceList) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].AllocatedResources = allocated
			p.Status.ContainerStatuses[0].Resources = &corev1.ResourceRequirements{Requests: actual}
		}
	}
	cpu := func(text string) corev1.ResourceList { return quantities("cpu", text) }
	for _, tt := range []prediction{
		{name: "exact fit", pods: []*corev1.Pod{aPod("a", cpu("1999m")), aPod("b", cpu("1m"))}},
		{name: "one thousandth too much", pods: []*corev1.Pod{aPod("a", cpu("1999m")), aPod("b", cpu("1m")), aPod("c", cpu("1u"))}, want: "a OutOfcpu, b OutOfcpu, c OutOfcpu"},
		{name: "init container larger than the containers", pods: []*corev1.Pod{aPod("a", cpu("100m"), initContainer("i", cpu("2001m"), false))}, want: "a OutOfcpu"},
		{name: "init container smaller than the containers", pods: []*corev1.Pod{aPod("a", cpu("2"), initContainer("i", cpu("1500m"), false))}},
		{name: "sidecar beside the containers", pods: []*corev1.Pod{aPod("a", cpu("1500m"), initContainer("s", cpu("501m"), true))}, want: "a OutOfcpu"},
		{name: "sidecar beside a later init container", pods: []*corev1.Pod{aPod("a", cpu("1m"), initContainer("s", cpu("501m"), true), initContainer("i", cpu("1500m"), false))}, want: "a OutOfcpu"},
		{name: "huge pages", node: capacities("hugepages-2Mi", "1Gi"), pods: []*corev1.Pod{aPod("a", quantities("hugepages-2Mi", "600Mi")), aPod("b", quantities("hugepages-2Mi", "600Mi"))},
			want: "a OutOfhugepages-2Mi, b OutOfhugepages-2Mi"},
		{name: "huge pages that the node does not have", pods: []*corev1.Pod{aPod("a", quantities("hugepages-1Gi", "1Gi"))}, want: "a OutOfhugepages-1Gi"},
		{name: "ephemeral storage", after: `{"evictionHard":{},"kubeReserved":{"ephemeral-storage":"50Gi"}}`, pods: []*corev1.Pod{aPod("a", quantities("ephemeral-storage", "51Gi")), aPod("b", quantities("ephemeral-storage", "0"))}, want: "a OutOfephemeral-storage"},
		{name: "extended resource of two pods", node: capacities("example.com/x", "1"), pods: []*corev1.Pod{aPod("a", quantities("example.com/x", "1")), aPod("b", quantities("example.com/x", "1"))},
			want: "a OutOfexample.com/x, b OutOfexample.com/x"},
		{name: "extended resource that is used up", node: capacities("example.com/x", "0"), pods: []*corev1.Pod{aPod("a", quantities("example.com/x", "1"))}, want: "a OutOfexample.com/x"},
		{name: "resource that admission does not compare", pods: []*corev1.Pod{aPod("a", quantities("tapes", "1"))}},
		{name: "cpu before memory", pods: []*corev1.Pod{aPod("a", quantities("cpu", "3", "memory", "5Gi"))}, want: "a OutOfcpu"},
		{name: "pods before cpu", after: `{"evictionHard":{},"maxPods":0}`, pods: []*corev1.Pod{aPod("a", cpu("3"))}, want: "a OutOfpods"},
		{name: "pod-level requests", pods: []*corev1.Pod{aPod("a", nil, withPodLevel(cpu("2100m")))}, want: "a OutOfcpu", in: map[int]string{33: ""}},
		{name: "pod-level requests with the gate of 1.33", after: `{"evictionHard":{},"featureGates":{"PodLevelResources":true}}`, pods: []*corev1.Pod{aPod("a", nil, withPodLevel(cpu("2100m")))}, want: "a OutOfcpu"},
		{name: "pod-level requests that are allocated", pods: []*corev1.Pod{aPod("a", nil, withPodLevel(cpu("1")))}, want: "a OutOfcpu", in: map[int]string{33: ""}, input: func(in *Input) {
			in.Allocated = map[types.UID]Allocation{"uid-a": {Pod: &corev1.ResourceRequirements{Requests: cpu("2100m")}}}
		}},
		{name: "pod-level requests of the status", pods: []*corev1.Pod{aPod("a", nil, withPodLevel(cpu("1")), func(p *corev1.Pod) {
			p.Status.AllocatedResources, p.Status.Resources = cpu("2100m"), &corev1.ResourceRequirements{Requests: cpu("2100m")}
		})}, in: map[int]string{36: "a OutOfcpu", 37: "a OutOfcpu"}},
		{name: "resize that is pending", pods: []*corev1.Pod{aPod("a", cpu("2100m"), status(cpu("1"), cpu("1")))}, want: "a OutOfcpu", input: func(in *Input) {
			in.Allocated = map[types.UID]Allocation{"uid-a": {Containers: map[string]corev1.ResourceRequirements{"c": {Requests: cpu("1")}}}}
		}},
		{name: "resize that is being allocated", pods: []*corev1.Pod{aPod("a", cpu("1"), status(cpu("2100m"), cpu("1")))}, want: "a OutOfcpu"},
		{name: "resize that is being actuated", pods: []*corev1.Pod{aPod("a", cpu("1"), status(cpu("1"), cpu("2100m")))}, want: "a OutOfcpu"},
		{name: "status of a sidecar", pods: []*corev1.Pod{aPod("a", nil, initContainer("s", cpu("1"), true), func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "s", AllocatedResources: cpu("2100m")}}
		})}, want: "a OutOfcpu"},
		{name: "overhead", pods: []*corev1.Pod{aPod("a", cpu("1500m"), func(p *corev1.Pod) { p.Spec.Overhead = cpu("501m") })}, want: "a OutOfcpu"},
	} {
		tt.run(t)
	}
}

func TestAllocatableBeforeAndAfter(t *testing.T) {
	pod := []*corev1.Pod{aPod("a", quantities("cpu", "1500m"))}
	const more = `{"evictionHard":{},"kubeReserved":{"cpu":"400m"},"systemReserved":{"cpu":"200m"}}`
	for _, tt := range []prediction{
		{name: "after", before: nothingReserved, after: more, pods: pod, want: "a OutOfcpu"},
		{name: "before", before: more, after: nothingReserved, pods: pod, want: "a OutOfcpu"},
		{name: "Node", node: func(n *corev1.Node) { n.Status.Allocatable["cpu"] = resource.MustParse("1400m") }, pods: pod, want: "a OutOfcpu"},
		{name: "pods before", before: `{"evictionHard":{},"maxPods":1}`, pods: []*corev1.Pod{aPod("a", nil), aPod("b", nil)}, want: "a OutOfpods, b OutOfpods"},
		{name: "smaller machine", input: func(in *Input) { in.Machine.Capacity = quantities("cpu", "1") }, pods: pod, want: "a OutOfcpu"},
		{name: "larger machine", input: func(in *Input) { in.Machine.Capacity = quantities("cpu", "8") }, pods: []*corev1.Pod{aPod("a", quantities("cpu", "3"))}, want: "a OutOfcpu"},
		{name: "podsPerCore of a smaller machine", after: `{"evictionHard":{},"podsPerCore":1}`, input: func(in *Input) { in.Machine.Capacity = quantities("cpu", "1") }, pods: []*corev1.Pod{aPod("a", nil), aPod("b", nil)}, want: "a OutOfpods, b OutOfpods"},
		{name: "podsPerCore above maxPods", after: `{"evictionHard":{},"podsPerCore":10,"maxPods":1}`, pods: []*corev1.Pod{aPod("a", nil), aPod("b", nil)}, want: "a OutOfpods, b OutOfpods"},
		{name: "threshold", after: `{"evictionHard":{"memory.available":"3Gi"}}`, pods: []*corev1.Pod{aPod("a", quantities("memory", "1100Mi"))}, want: "a OutOfmemory"},
		{name: "threshold that the kubelet's flag ignores", after: `{"evictionHard":{"memory.available":"3Gi"}}`, input: func(in *Input) { in.Machine.IgnoreEviction = true }, pods: []*corev1.Pod{aPod("a", quantities("memory", "1100Mi"))}},
		{name: "soft threshold", after: `{"evictionHard":{},"evictionSoft":{"memory.available":"3Gi"}}`, pods: []*corev1.Pod{aPod("a", quantities("memory", "1100Mi"))}},
		{name: "reservedSystemCPUs", after: `{"evictionHard":{},"reservedSystemCPUs":"0","systemReserved":{"cpu":"10m"}}`, pods: []*corev1.Pod{aPod("a", quantities("cpu", "1100m"))}, want: "a OutOfcpu"},
	} {
		tt.run(t)
	}
}

func TestPreemption(t *testing.T) {
	cpu := func(text string) corev1.ResourceList { return quantities("cpu", text) }
	priority := func(value int32) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Priority = &value } }
	for _, tt := range []prediction{
		{name: "a pod just below critical", pods: []*corev1.Pod{aPod("a", cpu("1"), priority(1_999_999_999)), aPod("b", cpu("1500m"), critical)}, want: "a OutOfcpu"},
		{name: "a static pod is critical", pods: []*corev1.Pod{aPod("a", cpu("1")), aPod("b", cpu("1500m"), static)}, want: "a OutOfcpu"},
		{name: "equal priorities", pods: []*corev1.Pod{aPod("a", cpu("1"), critical), aPod("b", cpu("500m"), critical), aPod("c", cpu("1"))}, want: "c OutOfcpu"},
		{name: "too little to preempt, because of an init container", pods: []*corev1.Pod{aPod("a", cpu("100m"), initContainer("i", cpu("1"), false)), aPod("b", cpu("1500m"), critical)},
			want: "a OutOfcpu, b UnexpectedAdmissionError"},
		{name: "too little to preempt, because less is allocated", pods: []*corev1.Pod{aPod("a", cpu("1")), aPod("b", cpu("1500m"), critical)}, input: func(in *Input) {
			in.Allocated = map[types.UID]Allocation{"uid-a": {Containers: map[string]corev1.ResourceRequirements{"c": {Requests: cpu("100m")}}}}
		}, want: "a OutOfcpu, b UnexpectedAdmissionError"},
		{name: "a higher pod that does not need the resource", pods: []*corev1.Pod{aPod("a", cpu("1"), critical), aPod("b", nil, priority(2_000_000_001)), aPod("c", cpu("1500m"))}, want: "c OutOfcpu"},
		{name: "enough to preempt in two containers", pods: []*corev1.Pod{aPod("a", cpu("400m"), func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0]) }), aPod("b", cpu("2"), critical)}, want: "a OutOfcpu"},
		{name: "enough to preempt in pod-level requests", pods: []*corev1.Pod{aPod("a", nil, withPodLevel(cpu("1"))), aPod("b", cpu("1500m"), critical)}, want: "a OutOfcpu", in: map[int]string{33: ""}},
		{name: "too little to preempt in pod-level requests, because less is allocated", pods: []*corev1.Pod{aPod("a", nil, withPodLevel(cpu("1"))), aPod("b", cpu("1500m"), critical)}, input: func(in *Input) {
			in.Allocated = map[types.UID]Allocation{"uid-a": {Pod: &corev1.ResourceRequirements{Requests: cpu("100m")}}}
		}, want: "a OutOfcpu, b UnexpectedAdmissionError", in: map[int]string{33: ""}},
		{name: "a lack of another resource", pods: []*corev1.Pod{aPod("a", quantities("memory", "1Gi"), critical), aPod("b", quantities("memory", "1Gi"), priority(2_000_000_001)), aPod("c", cpu("3"))}, want: "c OutOfcpu"},
		{name: "pods", after: `{"evictionHard":{},"maxPods":1}`, pods: []*corev1.Pod{aPod("a", nil), aPod("b", nil, critical)}, want: "a OutOfpods"},
		{name: "a critical pod on a full node with the wrong label", pods: []*corev1.Pod{aPod("a", cpu("1500m")), aPod("b", cpu("1"), critical, selects("disk", "hdd"))},
			want: "a OutOfcpu, b NodeAffinity"},
	} {
		tt.run(t)
	}
}

func TestDevices(t *testing.T) {
	has := func(container string, count int) func(*Input) {
		return func(in *Input) {
			in.Devices = Devices{Resources: map[corev1.ResourceName]bool{"example.com/gpu": true}, Allocated: map[DeviceUser]int{{"uid-a", container, "example.com/gpu"}: count}}
			in.Running = map[types.UID]map[string]bool{"uid-a": {"c": true}}
		}
	}
	initGPU := func(p *corev1.Pod) {
		initContainer("i", nil, false)(p)
		p.Spec.InitContainers[0].Resources.Limits = quantities("example.com/gpu", "1")
	}
	claimed := func(container, resource string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{RequestMappings: []corev1.ContainerExtendedResourceRequest{{ContainerName: container, ResourceName: resource}}}
		}
	}
	notRunning := func(in *Input) { has("c", 1)(in); in.Running = nil }
	for _, tt := range []prediction{
		{name: "running", pods: []*corev1.Pod{aPod("a", nil, gpu)}, input: has("c", 1)},
		{name: "running again", pods: []*corev1.Pod{aPod("a", nil, gpu, func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = 1 })}, input: has("c", 1), in: map[int]string{33: "a UnexpectedAdmissionError", 34: "a UnexpectedAdmissionError"}},
		{name: "other number", pods: []*corev1.Pod{aPod("a", nil, gpu)}, input: has("c", 2), want: "a UnexpectedAdmissionError"},
		{name: "running without devices", pods: []*corev1.Pod{aPod("a", nil, gpu)}, input: has("d", 1), want: "a OutOfexample.com/gpu"},
		{name: "completed init container", pods: []*corev1.Pod{aPod("a", nil, initGPU)}, input: has("i", 1), want: "a UnexpectedAdmissionError"},
		{name: "running containers are not known", pods: []*corev1.Pod{aPod("a", nil, gpu)}, input: notRunning, want: "a UnexpectedAdmissionError"},
		{name: "no plugin", pods: []*corev1.Pod{aPod("a", nil, gpu)}},
		{name: "claim", pods: []*corev1.Pod{aPod("a", nil, gpu, claimed("c", "example.com/gpu"))}, input: notRunning, want: "a UnexpectedAdmissionError", in: map[int]string{36: "", 37: ""}},
		{name: "claim with its gate", after: `{"evictionHard":{},"featureGates":{"DRAExtendedResource":true}}`, pods: []*corev1.Pod{aPod("a", nil, gpu, claimed("c", "example.com/gpu"))}, input: notRunning,
			in: map[int]string{33: "a UnexpectedAdmissionError", 34: "a UnexpectedAdmissionError"}},
		{name: "claim of another container or resource", pods: []*corev1.Pod{aPod("a", nil, gpu, claimed("d", "example.com/gpu")), aPod("b", nil, gpu, claimed("c", "example.com/x"))}, input: notRunning,
			want: "a UnexpectedAdmissionError, b UnexpectedAdmissionError"},
		{name: "allocated limit", pods: []*corev1.Pod{aPod("a", nil, gpu)}, input: func(in *Input) {
			has("c", 2)(in)
			in.Allocated = map[types.UID]Allocation{"uid-a": {Containers: map[string]corev1.ResourceRequirements{"c": {Limits: quantities("example.com/gpu", "2")}}}}
		}},
		{name: "plugins' resources do not count as extended ones", node: capacities("example.com/gpu", "0"), pods: []*corev1.Pod{aPod("a", quantities("example.com/gpu", "1"), gpu)}, input: has("c", 1)},
	} {
		tt.run(t)
	}
}

func TestPlacement(t *testing.T) {
	port := func(number int32, protocol corev1.Protocol) corev1.ContainerPort {
		return corev1.ContainerPort{HostPort: number, Protocol: protocol}
	}
	initPort := func(sidecar bool) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			initContainer("i", nil, sidecar)(p)
			p.Spec.InitContainers[0].Ports = []corev1.ContainerPort{port(80, corev1.ProtocolTCP)}
		}
	}
	const somaxconn, shm = `{"evictionHard":{},"allowedUnsafeSysctls":["net.core.somaxconn"]}`, `{"evictionHard":{},"allowedUnsafeSysctls":["kernel.shm*","user.*"]}`
	hostNetwork := func(p *corev1.Pod) { p.Spec.HostNetwork = true }
	strict := func(p *corev1.Pod) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: new(corev1.SupplementalGroupsPolicyStrict)}
	}
	hostUsers := func(p *corev1.Pod) { p.Spec.HostNetwork, p.Spec.HostUsers = true, new(false) }
	mount := func(p *corev1.Pod) {
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{BindMountOptions: []string{"noexec"}}}
	}
	const userNamespaces, mounts = `{"evictionHard":{},"featureGates":{"UserNamespacesHostNetworkSupport":true}}`, `{"evictionHard":{},"featureGates":{"VolumeBindMountOptions":true}}`
	declares := func(features ...string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.DeclaredFeatures = features }
	}
	keyed := func(kind string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{PodCertificate: &corev1.PodCertificateProjection{KeyType: kind}}}}}}}
		}
	}
	const profiles = `{"evictionHard":{},"featureGates":{"SecurityProfileOCI":true}}`
	oci := &corev1.SeccompProfile{Type: "OCI"}
	pulled := func(p *corev1.Pod) { p.Spec.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: oci} }
	pulledFor := func(p *corev1.Pod) {
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{SeccompProfile: oci}
	}
	pulledForDebugging := func(p *corev1.Pod) {
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{SecurityContext: &corev1.SecurityContext{SeccompProfile: oci}}}}
	}
	confined := func(p *corev1.Pod) {
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}}
	}
	wholly := func(p *corev1.Pod) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}}
	}
	phase := func(is corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = is } }
	annotated := func(p *corev1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}

		p.Annotations["container.apparmor.security.beta.kubernetes.io/c"] = "runtime/default"
	}
	noAppArmor := func(in *Input) { in.Machine.NoAppArmor = true }
	for _, tt := range []prediction{
		{name: "other protocol and port", pods: []*corev1.Pod{aPod("a", nil, ports(port(80, corev1.ProtocolTCP))), aPod("b", nil, ports(port(80, corev1.ProtocolUDP), port(81, "")))}},
		{name: "port without protocol", pods: []*corev1.Pod{aPod("a", nil, ports(port(80, corev1.ProtocolTCP))), aPod("b", nil, ports(port(80, "")))}, want: "a NodePorts, b NodePorts"},
		{name: "port of a sidecar", pods: []*corev1.Pod{aPod("a", nil, ports(port(80, corev1.ProtocolTCP))), aPod("b", nil, initPort(true))}, want: "a NodePorts, b NodePorts"},
		{name: "port of an init container", pods: []*corev1.Pod{aPod("a", nil, ports(port(80, corev1.ProtocolTCP))), aPod("b", nil, initPort(false))}},
		{name: "port of one address twice", pods: []*corev1.Pod{aPod("a", nil, ports(corev1.ContainerPort{HostPort: 80, HostIP: "10.0.0.1"})), aPod("b", nil, ports(corev1.ContainerPort{HostPort: 80, HostIP: "10.0.0.1"}))}, want: "a NodePorts, b NodePorts"},
		{name: "ports of the pods only", pods: []*corev1.Pod{aPod("a", nil, ports(port(0, ""))), aPod("b", nil, ports(port(0, "")))}},
		{name: "port twice in one pod", pods: []*corev1.Pod{aPod("a", nil, ports(port(80, corev1.ProtocolTCP), port(80, corev1.ProtocolTCP)))}},
		{name: "affinity to the Node's name", pods: []*corev1.Pod{aPod("a", nil, func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n2"}}}}}}}}
		})}, want: "a NodeAffinity"},
		{name: "label of a flag", pods: []*corev1.Pod{aPod("a", nil, static, selects("disk", "ssd"))},
			input: func(in *Input) { in.Machine.NodeLabels = map[string]string{"disk": "ssd"} }},
		{name: "groups of the image", pods: []*corev1.Pod{aPod("a", nil, func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: new(corev1.SupplementalGroupsPolicyMerge)}
		})}},
		{name: "groups that the runtime does not report", pods: []*corev1.Pod{aPod("a", nil, strict)}, want: "a SupplementalGroupsPolicyNotSupported"},
		{name: "groups", pods: []*corev1.Pod{aPod("a", nil, strict)}, node: func(n *corev1.Node) { n.Status.Features = &corev1.NodeFeatures{SupplementalGroupsPolicy: new(true)} }},
		{name: "groups that the runtime lost", pods: []*corev1.Pod{aPod("a", nil, strict)}, node: func(n *corev1.Node) { n.Status.Features = &corev1.NodeFeatures{SupplementalGroupsPolicy: new(false)} }, want: "a SupplementalGroupsPolicyNotSupported"},

		{name: "sysctl that the new configuration forbids", before: somaxconn, after: nothingReserved, pods: []*corev1.Pod{aPod("a", nil, withSysctl("net.core.somaxconn")), aPod("b", nil, critical, withSysctl("net.core.somaxconn")), aPod("c", nil, withSysctl("net.ipv4.tcp_syncookies"))}, want: "a SysctlForbidden, b SysctlForbidden"},
		{name: "sysctl that the new configuration allows", before: nothingReserved, after: somaxconn, pods: []*corev1.Pod{aPod("a", nil, withSysctl("net.core.somaxconn"))}},
		{name: "sysctl of a name that is no prefix", after: somaxconn, pods: []*corev1.Pod{aPod("a", nil, withSysctl("net.core.somaxconn2"))}, want: "a SysctlForbidden"},
		{name: "sysctl of a prefix", after: shm, pods: []*corev1.Pod{aPod("a", nil, withSysctl("kernel.shmmax")), aPod("b", nil, withSysctl("kernel.msgmax"))}, want: "b SysctlForbidden"},
		{name: "sysctl in the host's network", pods: []*corev1.Pod{aPod("a", nil, withSysctl("net.ipv4.tcp_syncookies"), hostNetwork)}, want: "a SysctlForbidden"},
		{name: "sysctl in the host's users", after: shm, pods: []*corev1.Pod{aPod("a", nil, withSysctl("user.max_user_namespaces")), aPod("b", nil, withSysctl("user.max_user_namespaces"), func(p *corev1.Pod) { p.Spec.HostUsers = new(false) })},
			in: map[int]string{37: "a SysctlForbidden"}},

		{name: "user namespace in the host's network", after: userNamespaces, pods: []*corev1.Pod{aPod("a", nil, hostUsers)}, in: map[int]string{36: "a PodFeatureUnsupported", 37: "a PodFeatureUnsupported"}},
		{name: "user namespace in the host's network that is declared", after: userNamespaces, node: declares("UserNamespacesHostNetworkSupport"), pods: []*corev1.Pod{aPod("a", nil, hostUsers)}},
		{name: "user namespace in the host's network without the gate", node: declares("UserNamespacesHostNetworkSupport"), pods: []*corev1.Pod{aPod("a", nil, hostUsers)}, in: map[int]string{36: "a PodFeatureUnsupported", 37: "a PodFeatureUnsupported"}},
		{name: "user namespace in the host's network with the gate of 1.35", after: `{"evictionHard":{},"featureGates":{"NodeDeclaredFeatures":true}}`, pods: []*corev1.Pod{aPod("a", nil, hostUsers)}, in: map[int]string{36: "a PodFeatureUnsupported", 37: "a PodFeatureUnsupported"}},
		{name: "mount options", after: mounts, pods: []*corev1.Pod{aPod("a", nil, mount)}, in: map[int]string{37: "a PodFeatureUnsupported"}},
		{name: "mount options that are declared", after: mounts, node: declares("VolumeBindMountOptions"), pods: []*corev1.Pod{aPod("a", nil, mount)}},
		{name: "key of a certificate", after: `{"evictionHard":{},"featureGates":{"PodCertificateMLDSA":true}}`, pods: []*corev1.Pod{aPod("a", nil, keyed("MLDSA65"))}},
		{name: "key of a certificate without the gate", pods: []*corev1.Pod{aPod("a", nil, keyed("MLDSA65")), aPod("b", nil, keyed("ED25519"))}, in: map[int]string{38: "a PodFeatureUnsupported"}},
		{name: "seccomp profiles of a registry", after: profiles, pods: []*corev1.Pod{aPod("a", nil, pulled), aPod("b", nil, pulledFor), aPod("c", nil, pulledForDebugging), aPod("d", nil, critical)}, in: map[int]string{38: "a PodFeatureUnsupported, b PodFeatureUnsupported, c PodFeatureUnsupported"}},
		{name: "seccomp profiles of a registry that are declared", after: profiles, node: declares("SecurityProfileOCI"), pods: []*corev1.Pod{aPod("a", nil, pulled), aPod("b", nil, pulledFor), aPod("c", nil, pulledForDebugging)}},
		{name: "seccomp profile of a registry without the gate", node: declares("SecurityProfileOCI"), pods: []*corev1.Pod{aPod("a", nil, pulled)}, in: map[int]string{38: "a PodFeatureUnsupported"}},
		{name: "no declared features", after: `{"evictionHard":{},"featureGates":{"NodeDeclaredFeatures":false}}`, pods: []*corev1.Pod{aPod("a", nil, hostUsers)}, in: map[int]string{37: "a PodFeatureUnsupported"}},

		{name: "AppArmor of a static pod that runs", pods: []*corev1.Pod{aPod("a", nil, static, confined), aPod("b", nil, static, annotated), aPod("c", nil, static)}, input: noAppArmor, want: "a AppArmor, b AppArmor"},
		{name: "AppArmor of a pod that does not run yet", pods: []*corev1.Pod{aPod("a", nil, confined, phase("")), aPod("b", nil, wholly, phase(corev1.PodPending)), aPod("c", nil, wholly)}, input: noAppArmor, want: "a AppArmor, b AppArmor"},
		{name: "AppArmor unconfined", pods: []*corev1.Pod{aPod("a", nil, static, func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}}
			p.Annotations["container.apparmor.security.beta.kubernetes.io/c"] = "unconfined"
		})}, input: noAppArmor},
		{name: "AppArmor that the kernel has", pods: []*corev1.Pod{aPod("a", nil, static, confined)}},
	} {
		tt.run(t)
	}
}

func TestPressure(t *testing.T) {
	gib := int64(1 << 30)
	memory := func(available int64) func(*Input) {
		return func(in *Input) { in.Usage.Memory = Level{4 * gib, available} }
	}
	images := func(available int64) func(*Input) {
		return func(in *Input) { in.Usage.ImageFS = Level{10000, available} }
	}
	const tenPercent = `{"evictionHard":{"imagefs.available":"10%"}}`
	pods := []*corev1.Pod{aPod("a", quantities("cpu", "1m")), aPod("b", nil), aPod("c", nil, critical), aPod("d", nil, static)}
	condition := func(name corev1.NodeConditionType, status corev1.ConditionStatus) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{{Type: name, Status: status}} }
	}
	tolerant := aPod("t", nil, func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/memory-pressure", Operator: corev1.TolerationOpExists}}
	})
	const gi, all, none = `{"evictionHard":{"memory.available":"1Gi"}}`, "a Evicted, b Evicted", ""
	working := func(bytes int64) func(*Input) {
		return func(in *Input) { in.Usage.KubepodsWorkingSet = bytes }
	}
	const less = `{"evictionHard":{},"systemReserved":{"memory":"2Gi"}}`
	for _, tt := range []prediction{
		{name: "within the margin", after: gi, input: memory(gib + gib/20), pods: pods, want: all},
		{name: "above the margin", after: gi, input: memory(gib + gib/9), pods: pods, want: none},
		{name: "soft", after: `{"evictionHard":{},"evictionSoft":{"memory.available":"1Gi"}}`, input: memory(gib - 1), pods: pods, want: all},
		{name: "of the old configuration", before: gi, after: nothingReserved, input: memory(gib - 1), pods: []*corev1.Pod{aPod("a", nil)}, want: none},
		{name: "no threshold", after: `{"evictionHard":{"memory.available":"0%"}}`, input: memory(-1), pods: pods, want: none},
		{name: "huge pages", after: gi, node: capacities("hugepages-2Mi", "1Gi"), input: memory(2*gib - 1), pods: []*corev1.Pod{aPod("a", nil)}, in: map[int]string{37: "a Evicted"}},
		{name: "images within the small margin of filesystems", after: tenPercent, input: images(1019), pods: pods, want: all},
		{name: "images above the small margin", after: tenPercent, input: images(1021), pods: pods, want: none},
		{name: "inodes", after: `{"evictionHard":{"nodefs.inodesFree":"5%"}}`, input: func(in *Input) { in.Usage.NodeFSInodes = Level{100, 4} }, pods: pods, want: all},
		{name: "inodes of images", after: `{"evictionHard":{"imagefs.inodesFree":"5%"}}`, input: func(in *Input) { in.Usage.ImageFSInodes = Level{100, 4} }, pods: pods, want: all},
		{name: "processes", after: `{"evictionHard":{"pid.available":"5%"}}`, input: func(in *Input) { in.Usage.PIDs = Level{100, 4} }, pods: pods, want: all},
		{name: "writable layers", after: `{"evictionHard":{"imagefs.available":"15%"}}`, input: func(in *Input) { in.Usage.ContainerFS = Level{100, 14} }, pods: pods, want: all},
		{name: "inodes of writable layers", after: `{"evictionHard":{"nodefs.inodesFree":"15%"}}`, input: func(in *Input) { in.Usage.ContainerFSInodes = Level{100, 14} }, pods: pods, want: all},
		{name: "memory condition", node: condition(corev1.NodeMemoryPressure, corev1.ConditionTrue), pods: append([]*corev1.Pod{tolerant}, pods...), want: "b Evicted"},
		{name: "disk condition", node: condition(corev1.NodeDiskPressure, corev1.ConditionTrue), pods: pods, want: all},
		{name: "process condition", node: condition(corev1.NodePIDPressure, corev1.ConditionTrue), pods: pods, want: all},
		{name: "two conditions", node: func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue}, {Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue}}
		}, pods: pods, want: all},
		{name: "false condition", node: condition(corev1.NodePIDPressure, corev1.ConditionFalse), pods: pods, want: none},
		{name: "condition and a measurement", node: condition(corev1.NodeMemoryPressure, corev1.ConditionTrue), input: memory(4 * gib), pods: pods, want: none},

		{name: "limit below the usage", before: nothingReserved, after: less, input: working(2*gib + 1),
			pods: []*corev1.Pod{aPod("a", nil), aPod("b", nil, critical)}, want: "a OOMKilled, b OOMKilled"},
		{name: "limit within the margin", before: nothingReserved, after: less, input: working(2*gib - 99<<20), pods: []*corev1.Pod{aPod("a", nil)}, want: "a OOMKilled"},
		{name: "limit above the margin", before: nothingReserved, after: less, input: working(2*gib - 101<<20), pods: []*corev1.Pod{aPod("a", nil)}, want: none},
		{name: "limit that stays", before: less, after: less, input: working(2 * gib), pods: []*corev1.Pod{aPod("a", nil)}, want: none},
		{name: "limit that is not enforced", before: nothingReserved, after: `{"evictionHard":{},"systemReserved":{"memory":"2Gi"},"enforceNodeAllocatable":["none"]}`, input: working(2 * gib), pods: []*corev1.Pod{aPod("a", nil)}, want: none},
		{name: "limit without cgroups", before: nothingReserved, after: `{"evictionHard":{},"systemReserved":{"memory":"2Gi"},"cgroupsPerQOS":false}`, input: working(2 * gib), pods: []*corev1.Pod{aPod("a", nil)}, want: none},
		{name: "threshold of all pods within the margin", after: `{"evictionHard":{"memory.available":"500Mi"},"systemReserved":{"memory":"1Gi"}}`, input: working(3*gib - 549<<20), pods: pods, want: all},
		{name: "threshold of all pods above the margin", after: `{"evictionHard":{"memory.available":"500Mi"},"systemReserved":{"memory":"1Gi"}}`, input: working(3*gib - 551<<20), pods: pods, want: none},
	} {
		tt.run(t)
	}
}
