// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard_test

import (
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// world is the random state of a node that depends on a seed and the kubelet's
// version only: the configuration of its kubelet, labels, taints and the amount
// of an extended resource. The pair of a seed starts in the world of the
// previous seed, so consecutive pairs need one restart each, and any pair can
// run alone.
type world struct {
	seed   uint64
	config map[string]any // fields of the KubeletConfiguration; a world sets the same fields as any other
	labels map[string]string
	taints []corev1.Taint
	// extended is the Node's capacity of the extended resource.
	extended int64
}

// The labels of worlds. A missing one is removed.
const (
	tierLabel = "evenkeel.test/tier" // a or b
	genLabel  = "evenkeel.test/gen"  // 1 to 3
	gpuLabel  = "evenkeel.test/gpu"  // "yes" or missing
)

// The streams of random numbers of a seed.
const (
	worldStream = iota + 1
	podStream
	extraStream  // extended resources, feature gates, static pods
	resizeStream // in-place resizes
)

func newRand(seed, stream uint64) *dice { return &dice{rand.New(rand.NewPCG(seed, stream))} }

type dice struct{ *rand.Rand }

// chance reports true in so many of 100 cases.
func (d *dice) chance(percent int) bool { return d.IntN(100) < percent }

// oneOf returns one of the values.
func oneOf[T any](d *dice, values ...T) T { return values[d.IntN(len(values))] }

func worldOf(seed uint64, minor int) world {
	d := newRand(seed, worldStream)
	w := world{seed: seed, labels: map[string]string{tierLabel: "a", genLabel: "2"}}

	// Half of the worlds reserve little, so that many changes are safe.
	reserved := func(cpu, memory, storage []string) map[string]any {
		r := map[string]any{}
		for _, of := range []struct {
			name   string
			values []string
		}{{"cpu", cpu}, {"memory", memory}, {"ephemeral-storage", storage}} {
			if v := oneOf(d, of.values...); v != "" {
				r[of.name] = v
			}
		}

		return r
	}
	kube := reserved([]string{"", "", "50m", "100m"}, []string{"", "", "200Mi"}, []string{"", "", "1Gi"})
	system := map[string]any{}
	if d.chance(50) {
		system = reserved([]string{"", "50m", "333m", "700m"}, []string{"", "1Gi", "5000M", "8Gi"}, []string{"", "10Gi", "70G"})
	}

	pods, perCore := 110, 0
	if d.chance(25) {
		pods = 3 + d.IntN(6)
	}
	if d.chance(20) {
		perCore = 2 + d.IntN(3)
	}

	sysctls := []string{"net.core.*"}
	if d.chance(10) {
		sysctls = oneOf(d, []string{}, []string{"net.core.somaxconn"}, []string{"net.ipv4.*"})
	}

	w.config = map[string]any{
		"maxPods":              pods,
		"podsPerCore":          perCore,
		"kubeReserved":         kube,
		"systemReserved":       system,
		"allowedUnsafeSysctls": sysctls,
		"evictionHard": map[string]any{
			"memory.available":   oneOf(d, "50Mi", "50Mi", "1%", "3.3%", "1500Mi"),
			"nodefs.available":   oneOf(d, "1%", "1%", "1.5%", "2Gi"),
			"nodefs.inodesFree":  "1%",
			"imagefs.available":  "1%",
			"imagefs.inodesFree": "1%",
		},
		"containerLogMaxFiles": 2 + d.IntN(5),
		"podPidsLimit":         oneOf(d, 1000, 2000, 4096),
		"serializeImagePulls":  d.chance(50),
	}

	if d.chance(6) {
		w.labels[tierLabel] = "b"
	}
	if d.chance(5) {
		w.labels[genLabel] = oneOf(d, "1", "3")
	}
	if d.chance(95) {
		w.labels[gpuLabel] = "yes"
	}

	if d.chance(30) {
		w.taints = append(w.taints, corev1.Taint{
			Key:    oneOf(d, "evenkeel.test/a", "evenkeel.test/b"),
			Value:  oneOf(d, "1", "2"),
			Effect: oneOf(d, corev1.TaintEffectNoExecute, corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule),
		})
	}

	w.addExtras(minor)

	return w
}

// allocatable returns roughly what the kubelet subtracts from the capacity for
// pods. It only sizes the generated pods, and rounds percentages down to 1 MiB.
func (w world) allocatable(capacity corev1.ResourceList) map[corev1.ResourceName]int64 {
	left := map[corev1.ResourceName]int64{
		corev1.ResourceCPU:              capacity.Cpu().MilliValue(),
		corev1.ResourceMemory:           capacity.Memory().Value(),
		corev1.ResourceEphemeralStorage: capacity.StorageEphemeral().Value(),
		extended:                        w.extended,
	}
	for _, field := range []string{"kubeReserved", "systemReserved"} {
		for name, v := range w.config[field].(map[string]any) {
			q := resource.MustParse(v.(string))
			if name == "cpu" {
				left[corev1.ResourceCPU] -= q.MilliValue()
			} else {
				left[corev1.ResourceName(name)] -= q.Value()
			}
		}
	}

	for signal, name := range map[string]corev1.ResourceName{"memory.available": corev1.ResourceMemory, "nodefs.available": corev1.ResourceEphemeralStorage} {
		left[name] -= threshold(w.config["evictionHard"].(map[string]any)[signal].(string), capacity.Name(name, resource.BinarySI).Value())
	}

	return left
}

// pods returns how many pods the configuration allows.
func (w world) pods(cores int64) int {
	most := w.config["maxPods"].(int)
	if perCore := w.config["podsPerCore"].(int); perCore > 0 {
		most = min(most, perCore*int(cores))
	}

	return most
}
