// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/internal/component"
)

// signal is an eviction signal.
type signal struct {
	name      string
	condition corev1.NodeConditionType // that it sets
	level     func(Usage) Level
}

// written returns an amount of what the signal measures: bytes, inodes or
// process IDs.
func (s signal) written(value int64) string {
	if s.condition == corev1.NodePIDPressure || strings.HasSuffix(s.name, "inodesFree") {
		return fmt.Sprint(value)
	}

	return mebibytes(value)
}

// signals are those that the agent can measure.
var signals = []signal{
	{"memory.available", corev1.NodeMemoryPressure, func(u Usage) Level { return u.Memory }},
	{"nodefs.available", corev1.NodeDiskPressure, func(u Usage) Level { return u.NodeFS }},
	{"nodefs.inodesFree", corev1.NodeDiskPressure, func(u Usage) Level { return u.NodeFSInodes }},
	{"imagefs.available", corev1.NodeDiskPressure, func(u Usage) Level { return u.ImageFS }},
	{"imagefs.inodesFree", corev1.NodeDiskPressure, func(u Usage) Level { return u.ImageFSInodes }},
	{"containerfs.available", corev1.NodeDiskPressure, func(u Usage) Level { return u.ContainerFS }},
	{"containerfs.inodesFree", corev1.NodeDiskPressure, func(u Usage) Level { return u.ContainerFSInodes }},
	{"pid.available", corev1.NodePIDPressure, func(u Usage) Level { return u.PIDs }},
}

// implied are the thresholds that the kubelet derives for the filesystem of
// writable layers: it has those of the filesystem on which it is.
var implied = map[string][]string{
	"containerfs.available":  {"nodefs.available", "imagefs.available"},
	"containerfs.inodesFree": {"nodefs.inodesFree", "imagefs.inodesFree"},
}

// A level that exceeds the threshold by less than a tenth of it already counts
// as crossed, since levels move between the look and the restart. Filesystems
// fill slowly, and often stay near a threshold, because the kubelet removes
// images only near it: for them it is a fiftieth.
const (
	marginDivisor           = 10
	marginDivisorFilesystem = 50
)

// pressure is what makes a starting kubelet evict.
type pressure struct {
	crossed    []string // thresholds that the usage crosses or nearly crosses
	conditions map[corev1.NodeConditionType]bool
}

// pressureOf compares the usage with the hard and soft thresholds. The kubelet
// admits by soft thresholds at once, whatever their grace period. Where the
// usage is not known, the Node's condition counts.
func pressureOf(in Input, g gates, capacity amounts) pressure {
	p := pressure{conditions: map[corev1.NodeConditionType]bool{}}
	hard := evictionHard(in.After)
	soft := texts(in.After, "evictionSoft")
	for _, s := range signals {
		level := s.level(in.Usage)
		if level.Capacity <= 0 {
			if hasCondition(in.Node, s.condition) {
				p.conditions[s.condition] = true
			}

			continue
		}

		if s.name == "memory.available" && g.on("HugepageAwareEviction") {
			for name, total := range capacity {
				if isHugePages(name) {
					level.Available -= total
				}
			}
		}

		for _, name := range append([]string{s.name}, implied[s.name]...) {
			for kind, thresholds := range map[string]map[string]string{"evictionHard": hard, "evictionSoft": soft} {
				value, ok := thresholds[name]
				if !ok {
					continue
				}

				divisor := int64(marginDivisor)
				if s.condition == corev1.NodeDiskPressure {
					divisor = marginDivisorFilesystem
				}

				if least := threshold(value, level.Capacity); least > 0 && level.Available < add(least, least/divisor) {
					p.crossed = append(p.crossed, fmt.Sprintf("%s %s (%s, %s of %s available)", kind, name, value, s.written(level.Available),
						s.written(level.Capacity)))
				}
			}
		}
	}

	if crossed := kubepodsCrossed(in, capacity); crossed != "" {
		p.crossed = append(p.crossed, crossed)
	}

	slices.Sort(p.crossed)

	return p
}

func hasCondition(n *corev1.Node, name corev1.NodeConditionType) bool {
	return slices.ContainsFunc(n.Status.Conditions,
		func(c corev1.NodeCondition) bool { return c.Type == name && c.Status == corev1.ConditionTrue })
}

// kubepodsLimit returns the memory limit of the cgroup of all pods, in bytes:
// reservations count if the kubelet enforces them, eviction thresholds and huge
// pages never (pkg/kubelet/cm/node_container_manager_linux.go). enforced
// reports whether it is less than the capacity by configuration.
func kubepodsLimit(config component.Effective, capacity amounts) (limit int64, enforced bool) {
	limit = capacity[corev1.ResourceMemory]
	limited := list(config, "enforceNodeAllocatable") // nil: the pods
	if !isOn(config, "cgroupsPerQOS") || limited != nil && !slices.Contains(limited, any("pods")) {
		return limit, false
	}

	return max(0, limit-reserved(config, corev1.ResourceMemory)), true
}

// kubepodsCrossed describes the hard memory threshold if it is crossed in the
// cgroup of all pods: the kubelet applies it to the distance between limit and
// working set.
func kubepodsCrossed(in Input, capacity amounts) string {
	value, ok := evictionHard(in.After)["memory.available"]
	limit, enforced := kubepodsLimit(in.After, capacity)
	if !ok || !enforced || in.Usage.KubepodsWorkingSet <= 0 {
		return ""
	}

	if least := threshold(value, limit); least > 0 && limit-in.Usage.KubepodsWorkingSet < add(least, least/marginDivisor) {
		return fmt.Sprintf("evictionHard memory.available for all pods (%s, %s of %s used)", value, mebibytes(in.Usage.KubepodsWorkingSet),
			mebibytes(limit))
	}

	return ""
}

// kubepodsMargin is how much memory must stay between the usage of the pods and
// a lower limit, in bytes.
const kubepodsMargin = 100 << 20

// overLimit returns a message if the pods use more than a memory limit that the
// configuration lowers: the kernel then kills processes of any pod.
func overLimit(in Input, capacity amounts) string {
	limit, _ := kubepodsLimit(in.After, capacity)
	if in.Usage.KubepodsWorkingSet <= 0 || limit-in.Usage.KubepodsWorkingSet >= kubepodsMargin {
		return ""
	}

	if in.Before != nil {
		if now, _ := kubepodsLimit(in.Before, capacity); now <= limit {
			return ""
		}
	}

	return fmt.Sprintf("the memory limit of all pods becomes %s, and they use %s", mebibytes(limit), mebibytes(in.Usage.KubepodsWorkingSet))
}

// evicted applies the eviction manager's admission, and its eviction of running
// pods while a threshold is crossed.
func (n *node) evicted(p *pod) *cause {
	if p.critical {
		return nil
	}
	if len(n.pressure.crossed) > 0 {
		return because("Evicted", "the usage crosses, or nearly crosses, %s", strings.Join(n.pressure.crossed, ", "))
	}

	switch conditions := n.pressure.conditions; {
	case len(conditions) == 0:
		return nil
	case len(conditions) == 1 && conditions[corev1.NodeMemoryPressure]:
		taint := corev1.Taint{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule}
		if !p.mayBe(corev1.PodQOSBestEffort) || tolerates(p, n.gates, taint) {
			return nil
		}
	}

	return because("Evicted", "the Node has the condition %s", slices.Sorted(maps.Keys(n.pressure.conditions))[0])
}
