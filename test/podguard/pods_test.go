// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// The objects that the pods of all pairs use.
const (
	namespace     = "default"
	overheadClass = "evenkeel-overhead" // a RuntimeClass with overhead
	highPriority  = "evenkeel-high"     // a PriorityClass, not critical
)

// overhead is what the RuntimeClass overheadClass adds to a pod.
var overhead = amounts{corev1.ResourceCPU: 7, corev1.ResourceMemory: 4 << 20}

// amounts are quantities of resources: milli-CPUs and bytes.
type amounts map[corev1.ResourceName]int64

func (a amounts) list() corev1.ResourceList {
	var l corev1.ResourceList
	for name, value := range a {
		if value <= 0 {
			continue
		}
		if l == nil {
			l = corev1.ResourceList{}
		}

		if name == corev1.ResourceCPU {
			l[name] = *resource.NewMilliQuantity(value, resource.DecimalSI)
		} else {
			l[name] = *resource.NewQuantity(value, resource.BinarySI)
		}
	}

	return l
}

// part returns n/of of all amounts, rounded down; minus returns the rest.
func (a amounts) part(n, of int64) amounts {
	out := amounts{}
	for name, value := range a {
		out[name] = value * n / of
	}

	return out
}

func (a amounts) minus(b amounts) amounts {
	out := amounts{}
	for name, value := range a {
		out[name] = value - b[name]
	}

	return out
}

// threshold returns the bytes of an eviction threshold, with percentages
// rounded up to 1 MiB.
func threshold(value string, capacity int64) int64 {
	if percent, ok := strings.CutSuffix(value, "%"); ok {
		p, err := strconv.ParseFloat(percent, 64)
		if err != nil {
			panic(err)
		}

		return (int64(float64(capacity)*p/100)>>20 + 1) << 20
	}

	q := resource.MustParse(value)

	return q.Value()
}

// podsOf returns the random pods of a seed, in the order of their creation:
// they all fit on a node in the world before. How much they request depends on
// both worlds, so that some sums lie exactly on a limit of the world after.
func podsOf(seed uint64, node string, minor int, capacity corev1.ResourceList, before, after world) []*corev1.Pod {
	d := newRand(seed, podStream)
	cores := capacity.Cpu().Value()
	count := min(3+d.IntN(6), before.pods(cores))
	if d.chance(15) {
		count = min(after.pods(cores), before.pods(cores), 8)
	}

	old, young := before.allocatable(capacity), after.allocatable(capacity)
	shares := make([]amounts, count)
	for i := range shares {
		shares[i] = amounts{}
	}

	for _, kind := range []struct {
		name           corev1.ResourceName
		unit           int64 // of the smallest request
		pairs, holders int   // how many pairs and pods of 100 request it
	}{
		{corev1.ResourceCPU, 1, 90, 60},
		{corev1.ResourceMemory, 1 << 20, 80, 50},
		{corev1.ResourceEphemeralStorage, 1 << 20, 30, 40},
	} {
		var holders []int
		for i := range count {
			if d.chance(kind.holders) {
				holders = append(holders, i)
			}
		}

		total := total(d, kind.unit, old[kind.name], young[kind.name])
		if !d.chance(kind.pairs) || len(holders) == 0 {
			continue
		}

		// Each holder gets a random share of the total.
		for i, h := range holders {
			share := total
			if i < len(holders)-1 {
				share = total / int64(len(holders)-i) * int64(20+d.IntN(130)) / 100
				share = min(share, total)
			}

			shares[h][kind.name] = share
			total -= share
		}
	}

	extra := newRand(seed, extraStream)
	if left := total(extra, 1, old[extended], young[extended]); extra.chance(40) {
		for i := 0; left > 0; i = extra.IntN(count) {
			shares[i][extended]++
			left--
		}
	}

	staticPod := extra.IntN(3 * count) // an index, in one pair of three
	var pods []*corev1.Pod
	for i := range count {
		pod := podOf(d, minor, shares[i], before, after)
		pod.Name = fmt.Sprintf("p%d-%d", seed, i)
		pod.Spec.NodeName = node
		if d.chance(15) {
			hostPort(d, pod, i)
		}
		if i == staticPod {
			makeStatic(pod, minor)
		}

		pods = append(pods, pod)
	}

	return pods
}

// total returns how much all pods of a pair request together: at most what is
// allocatable before.
func total(d *dice, unit, before, after int64) int64 {
	most := min(before, after)
	switch {
	case d.chance(15):
		return most // exactly the smaller limit, if it has no percentage
	case d.chance(10):
		return min(before, most+unit)
	case d.chance(15):
		return before
	}

	return before * int64(5+d.IntN(60)) / 100
}

// podOf returns a pod that requests a share. Its other fields fit the world
// before, and most of them the world after, too.
func podOf(d *dice, minor int, share amounts, before, after world) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  new(bool),
			TerminationGracePeriodSeconds: new(int64(1)),
			RestartPolicy:                 oneOf(d, corev1.RestartPolicyAlways, corev1.RestartPolicyAlways, corev1.RestartPolicyNever),
		},
	}
	spec := &pod.Spec
	run := func(name string, requests amounts) corev1.Container {
		c := corev1.Container{Name: name, Image: localcluster.SleepImage, ImagePullPolicy: corev1.PullNever}
		c.Resources.Requests = requests.list()
		return c
	}
	once := func(name string, requests amounts) corev1.Container {
		c := run(name, requests)
		c.Args = []string{"-v"} // it ends at once
		return c
	}
	sidecar := func(name string, requests amounts) corev1.Container {
		c := run(name, requests)
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		return c
	}
	quarter, third, half := share.part(1, 4), share.part(1, 3), share.part(1, 2)
	switch shape := d.IntN(10); {
	case shape == 0:
		spec.Containers = []corev1.Container{run("one", third), run("two", share.minus(third))}
	case shape == 1:
		spec.InitContainers = []corev1.Container{once("init", share)}
		spec.Containers = []corev1.Container{run("one", half)}
	case shape == 2:
		spec.InitContainers = []corev1.Container{sidecar("sidecar", quarter)}
		spec.Containers = []corev1.Container{run("one", share.minus(quarter))}
	case shape == 3:
		spec.InitContainers = []corev1.Container{once("first", half), sidecar("sidecar", quarter), once("init", share.minus(quarter))}
		spec.Containers = []corev1.Container{run("one", third)}
	case shape == 4 && share[corev1.ResourceCPU] > 2*overhead[corev1.ResourceCPU] && share[corev1.ResourceMemory] > 2*overhead[corev1.ResourceMemory]:
		spec.RuntimeClassName = new(overheadClass)
		spec.Containers = []corev1.Container{run("one", share.minus(overhead))}
	case shape == 5 && minor >= 34 && share[corev1.ResourceCPU] > 0 && share[corev1.ResourceEphemeralStorage] == 0 && share[extended] == 0 && !before.disables("PodLevelResources"):
		spec.Resources = &corev1.ResourceRequirements{Requests: share.list()}
		spec.Containers = []corev1.Container{run("one", third), run("two", nil)}
	default:
		spec.Containers = []corev1.Container{run("one", share)}
	}

	setLimits(d, spec)
	switch {
	case d.chance(12):
		spec.PriorityClassName = oneOf(d, "system-node-critical", "system-cluster-critical")
	case d.chance(25):
		spec.PriorityClassName = highPriority
	}

	setSelectors(d, spec, before.labels)
	setTolerations(d, spec, before.taints, after.taints)
	if d.chance(12) {
		setSysctl(d, spec, before.config["allowedUnsafeSysctls"].([]string))
	}

	return pod
}

// setLimits gives some pods limits: equal to the requests (Guaranteed, if there
// are all), or larger. No limit is so small that a container starts slowly.
// Those of the extended resource must be equal to the requests.
func setLimits(d *dice, spec *corev1.PodSpec) {
	equal, larger := d.chance(25), d.chance(20)
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			r := &containers[i].Resources
			for name, q := range r.Requests {
				if !equal && !larger && name != extended {
					continue
				}

				least := map[corev1.ResourceName]int64{corev1.ResourceCPU: 100, corev1.ResourceMemory: 64 << 20, corev1.ResourceEphemeralStorage: 1 << 30}[name]
				value := q.Value()
				if name == corev1.ResourceCPU {
					value = q.MilliValue()
				}
				if !equal && name != extended {
					value *= 2
				}
				if r.Limits == nil {
					r.Limits = corev1.ResourceList{}
				}

				r.Limits[name] = amounts{name: max(value, least)}.list()[name]
			}
		}
	}
}

// setSelectors gives some pods a node selector or a required affinity that the
// labels match.
func setSelectors(d *dice, spec *corev1.PodSpec, labels map[string]string) {
	if d.chance(20) {
		key := oneOf(d, tierLabel, genLabel)
		spec.NodeSelector = map[string]string{key: labels[key]}
	}

	if !d.chance(25) {
		return
	}

	gen, err := strconv.Atoi(labels[genLabel])
	if err != nil {
		panic(err)
	}

	expression := func(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: op, Values: values}
	}
	gpu := expression(gpuLabel, corev1.NodeSelectorOpDoesNotExist)
	if labels[gpuLabel] != "" {
		gpu.Operator = corev1.NodeSelectorOpExists
	}

	matching := []corev1.NodeSelectorRequirement{
		expression(tierLabel, corev1.NodeSelectorOpIn, labels[tierLabel]),
		expression(tierLabel, corev1.NodeSelectorOpIn, "a", "b"),
		expression(tierLabel, corev1.NodeSelectorOpNotIn, map[string]string{"a": "b", "b": "a"}[labels[tierLabel]], "c"),
		expression(genLabel, corev1.NodeSelectorOpGt, strconv.Itoa(gen-1)),
		expression(genLabel, corev1.NodeSelectorOpLt, strconv.Itoa(gen+1)),
		expression("kubernetes.io/os", corev1.NodeSelectorOpIn, "linux"),
		gpu,
	}
	term := func() corev1.NodeSelectorTerm {
		t := corev1.NodeSelectorTerm{}
		for range 1 + d.IntN(2) {
			t.MatchExpressions = append(t.MatchExpressions, oneOf(d, matching...))
		}

		return t
	}
	terms := []corev1.NodeSelectorTerm{term()}
	if d.chance(30) {
		terms = append(terms, term())
	}
	if d.chance(30) { // does not match
		terms = slices.Insert(terms, 0, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{expression(tierLabel, corev1.NodeSelectorOpIn, "c")}})
	}

	spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}
}

// setTolerations makes a pod tolerate the taints before, and mostly those
// after.
func setTolerations(d *dice, spec *corev1.PodSpec, before, after []corev1.Taint) {
	tolerate := func(taint corev1.Taint) {
		t := corev1.Toleration{Key: taint.Key, Operator: corev1.TolerationOpExists}
		switch d.IntN(4) {
		case 0:
			t.Operator, t.Value = corev1.TolerationOpEqual, taint.Value
		case 1:
			t.Operator, t.Value, t.Effect = "", taint.Value, taint.Effect
		case 2:
			t.Effect = taint.Effect
			if t.Effect == corev1.TaintEffectNoExecute {
				t.TolerationSeconds = new(int64(3600))
			}
		case 3:
			if d.chance(30) {
				t.Key = "" // everything
			}
		}

		spec.Tolerations = append(spec.Tolerations, t)
	}
	for _, taint := range before {
		tolerate(taint)
	}

	for _, taint := range after {
		if d.chance(85) {
			tolerate(taint)
		}
	}
}

// setSysctl gives a pod a safe sysctl, or one that the patterns allow.
func setSysctl(d *dice, spec *corev1.PodSpec, allowed []string) {
	sysctl := corev1.Sysctl{Name: "net.ipv4.ip_unprivileged_port_start", Value: "1024"}
	if d.chance(70) && len(allowed) > 0 {
		if strings.HasPrefix(allowed[0], "net.core.") {
			sysctl = corev1.Sysctl{Name: "net.core.somaxconn", Value: "256"}
		} else {
			sysctl = corev1.Sysctl{Name: "net.ipv4.tcp_max_tw_buckets", Value: "4096"}
		}
	}

	spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{sysctl}}
}

// hostPort gives the pod of an index a host port that conflicts with no other:
// they share their number, but not protocol and address.
func hostPort(d *dice, pod *corev1.Pod, index int) {
	port := corev1.ContainerPort{ContainerPort: 80, HostPort: 33333, Protocol: corev1.ProtocolTCP, HostIP: fmt.Sprintf("127.0.0.%d", 2+index)}
	if d.chance(50) {
		port.HostPort, port.HostIP = int32(33340+index), ""
	}
	if d.chance(30) {
		port.Protocol = corev1.ProtocolUDP
	}

	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{port}
}
