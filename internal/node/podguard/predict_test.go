// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubectl/pkg/util/qos"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// config decodes JSON like the effective configuration of a kubelet.
func config(t testing.TB, text string) component.Effective {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var e component.Effective
	assert.NoError(t, dec.Decode(&e), text)

	return e
}

func quantities(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}

	return list
}

// aNode has 2 CPUs and 4 GiB of memory, with nothing reserved.
func aNode(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{}
	n.Name = "n1"
	n.Labels = map[string]string{"kubernetes.io/hostname": "n1", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "disk": "ssd"}
	n.Status.Capacity = quantities("cpu", "2", "memory", "4Gi", "ephemeral-storage", "100Gi", "pods", "110")
	n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	n.Status.NodeInfo.KernelVersion = "6.8.0-45-generic"
	for _, c := range change {
		c(n)
	}

	return n
}

// aPod has one running container with the requests.
func aPod(name string, requests corev1.ResourceList, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.UID = "default", name, types.UID("uid-"+name)
	p.Spec.NodeName = "n1"
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests}}}
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	for _, c := range change {
		c(p)
	}

	p.Status.QOSClass = qos.GetPodQOS(p)

	return p
}

func critical(p *corev1.Pod) { p.Spec.Priority = new(int32(2_000_000_000)) }

func static(p *corev1.Pod) {
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "static-" + p.Name}
}

func guaranteed(cpu string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		list := quantities("cpu", cpu, "memory", "64Mi")
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
	}
}

const nothingReserved = `{"evictionHard":{},"maxPods":110}`

// told renders losses as "name reason", in one line.
func told(losses []Loss) string {
	var lines []string
	for _, l := range losses {
		lines = append(lines, l.Name+" "+l.Reason)
	}

	return strings.Join(lines, ", ")
}

var allMinors = []int{33, 34, 35, 36, 37, 38}

func TestEachCauseOfALossIsPredicted(t *testing.T) {
	type change = func(*corev1.Pod)
	half := quantities("cpu", "500m", "memory", "1Gi")
	container := func(p *corev1.Pod) *corev1.Container { return &p.Spec.Containers[0] }
	toleration := func(t corev1.Toleration) change {
		return func(p *corev1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, t) }
	}
	port := func(number int32, address string) change {
		return ports(corev1.ContainerPort{HostPort: number, HostIP: address, Protocol: corev1.ProtocolTCP})
	}
	taint := func(effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "gone", Value: "3", Effect: effect}}
		}
	}
	for _, tt := range []prediction{
		{name: "default thresholds", after: `{}`, pods: []*corev1.Pod{aPod("a", quantities("memory", "4Gi"))}, want: "a OutOfmemory"},
		{name: "reservedSystemCPUs instead of kubeReserved", after: `{"evictionHard":{},"reservedSystemCPUs":"0","kubeReserved":{"cpu":"2"}}`, pods: []*corev1.Pod{aPod("a", quantities("cpu", "1"))}},
		{name: "huge pages", node: func(n *corev1.Node) { n.Status.Capacity["hugepages-2Mi"] = resource.MustParse("1Gi") }, pods: []*corev1.Pod{aPod("a", quantities("memory", "3500Mi"))}, want: "a OutOfmemory"},
		{name: "podsPerCore that suffices", after: `{"evictionHard":{},"maxPods":110,"podsPerCore":1}`, pods: []*corev1.Pod{aPod("a", nil), aPod("b", nil)}},
		{name: "pod-level resources without their gate", after: `{"evictionHard":{},"featureGates":{"PodLevelResources":false}}`, pods: []*corev1.Pod{aPod("a", half, withPodLevel(quantities("cpu", "1500m")))},
			want: "a PodLevelResourcesNotSupported", in: map[int]string{33: ""}},
		{name: "overhead", pods: []*corev1.Pod{aPod("a", quantities("cpu", "1"), func(p *corev1.Pod) { p.Spec.Overhead = quantities("cpu", "600m") })},
			in: map[int]string{36: "a OutOfcpu", 37: "a OutOfcpu"}},
		{name: "overhead that the status has too", pods: []*corev1.Pod{aPod("a", quantities("cpu", "1"), func(p *corev1.Pod) {
			p.Spec.Overhead = quantities("cpu", "450m")
			p.Status.AllocatedResources = quantities("cpu", "1450m")
			p.Status.Resources = &corev1.ResourceRequirements{Requests: quantities("cpu", "1450m")}
		})}},
		{name: "extended resource that the node does not have", pods: []*corev1.Pod{aPod("a", quantities("example.com/x", "5"))}},

		{name: "critical pods alone do not fit", after: `{"evictionHard":{},"kubeReserved":{"cpu":"1"}}`, pods: []*corev1.Pod{aPod("a", half, critical), aPod("b", quantities("cpu", "1"), static)},
			want: "a UnexpectedAdmissionError, b UnexpectedAdmissionError"},
		{name: "critical pod of lower priority", after: `{"evictionHard":{},"kubeReserved":{"cpu":"1"}}`, pods: []*corev1.Pod{aPod("a", half), aPod("high", quantities("cpu", "300m"), func(p *corev1.Pod) { p.Spec.Priority = new(int32(2_000_001_000)) }), aPod("low", half, critical)},
			want: "a OutOfcpu, low Preempting"},

		{name: "node selector", pods: []*corev1.Pod{aPod("a", half, selects("disk", "ssd"))}},
		{name: "node selector of a static pod", pods: []*corev1.Pod{aPod("a", half, static, selects("disk", "ssd")), aPod("b", half, static, selects("kubernetes.io/os", "linux"))},
			in: map[int]string{33: "a NodeAffinity", 34: "a NodeAffinity"}},
		{name: "required affinity", pods: []*corev1.Pod{aPod("a", half, func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpDoesNotExist}}}}}}}
		})}, want: "a NodeAffinity"},
		{name: "bound to another node", pods: []*corev1.Pod{aPod("a", half, func(p *corev1.Pod) { p.Spec.NodeName = "n2" })}, want: "a NodeName"},
		{name: "host ports", pods: []*corev1.Pod{aPod("a", half, port(80, "")), aPod("b", half, port(80, "10.0.0.1")), aPod("c", half, port(81, "10.0.0.1")), aPod("d", half, port(81, "10.0.0.2"))},
			want: "a NodePorts, b NodePorts"},
		{name: "NoExecute taint", node: taint(corev1.TaintEffectNoExecute), pods: []*corev1.Pod{aPod("a", half), aPod("b", half, toleration(corev1.Toleration{Operator: corev1.TolerationOpExists})), aPod("c", half, static), aPod("d", half, critical)}, want: "a TaintToleration, d TaintToleration"},
		{name: "NoSchedule taint", node: taint(corev1.TaintEffectNoSchedule), pods: []*corev1.Pod{aPod("a", half)}},
		{name: "comparing toleration", after: `{"evictionHard":{},"featureGates":{"TaintTolerationComparisonOperators":true}}`, node: taint(corev1.TaintEffectNoExecute),
			pods: []*corev1.Pod{aPod("a", half, toleration(corev1.Toleration{Key: "gone", Operator: corev1.TolerationOpLt, Value: "5"}))},
			in:   map[int]string{33: "a TaintToleration", 34: "a TaintToleration"}},
		{name: "comparing toleration without its gate", node: taint(corev1.TaintEffectNoExecute), pods: []*corev1.Pod{aPod("a", half, toleration(corev1.Toleration{Key: "gone", Operator: corev1.TolerationOpLt, Value: "5"}))}, want: "a TaintToleration"},
		{name: "operating system", pods: []*corev1.Pod{aPod("a", half, func(p *corev1.Pod) { p.Labels = map[string]string{"kubernetes.io/os": "windows"} }), aPod("b", half, func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} })},
			want: "a PodOSSelectorNodeLabelDoesNotMatch, b PodOSNotSupported"},

		{name: "allowed sysctl", after: `{"evictionHard":{},"allowedUnsafeSysctls":["net.core.*","kernel.msgmax"]}`, pods: []*corev1.Pod{aPod("a", half, withSysctl("net/core/somaxconn")), aPod("b", half, withSysctl("kernel.msgmax"), func(p *corev1.Pod) { p.Spec.HostIPC = true })}, want: "b SysctlForbidden"},
		{name: "sysctl of newer kubelets", pods: []*corev1.Pod{aPod("a", half, withSysctl("net.ipv4.tcp_notsent_lowat"))}, want: "a SysctlForbidden", in: map[int]string{37: ""}},
		{name: "sysctl of newer kernels", node: func(n *corev1.Node) { n.Status.NodeInfo.KernelVersion = "4.14.0" }, pods: []*corev1.Pod{aPod("a", half, withSysctl("net.ipv4.tcp_rmem")), aPod("b", half, withSysctl("net.ipv4.tcp_fin_timeout"))}, want: "a SysctlForbidden"},

		{name: "declared feature", pods: []*corev1.Pod{aPod("a", half, func(p *corev1.Pod) {
			container(p).RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
		})}, after: `{"evictionHard":{},"featureGates":{"RestartAllContainersOnContainerExits":false}}`, want: "a PodFeatureUnsupported", in: map[int]string{33: "", 34: "", 35: ""}},

		{name: "no Node", input: func(in *Input) { in.Node = nil }, pods: []*corev1.Pod{aPod("a", nil)}, want: "a InvalidNodeInfo"},
	} {
		tt.run(t)
	}
}

func TestAMirrorPodHasTheAllocationOfItsStaticPod(t *testing.T) {
	in := Input{Minor: 37, After: config(t, nothingReserved), Node: aNode(), Pods: []*corev1.Pod{aPod("a", nil, static), aPod("b", quantities("cpu", "1"))}}
	in.Allocated = map[types.UID]Allocation{"static-a": {Containers: map[string]corev1.ResourceRequirements{"c": {Requests: quantities("cpu", "1500m")}}}}
	assert.Equal(t, told(Predict(in)), "b OutOfcpu")
}
