// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/evenkeel/evenkeel/internal/component"
)

// node is the node with everything that the rules for one pod depend on.
type node struct {
	*corev1.Node
	in        Input
	initial   *corev1.Node
	before    component.Effective // in.Before, or in.After if that is not known
	gates     gates
	noExecute []corev1.Taint
	ports     portUsers
	pressure  pressure
	overLimit string
	shortages []shortage
	exclusive exclusive
}

// Predict returns the pods that the starting kubelet may reject, evict or kill,
// sorted by namespace and name, each once with its first cause in the order of
// the kubelet's handlers. The result does not depend on the order of the pods.
// Terminal and terminating pods use the node's resources and are not reported.
func Predict(in Input) []Loss {
	g := gatesOf(in.After, in.Minor)
	pods := activePods(in, g)
	causeOf := func(*pod) *cause { return because("InvalidNodeInfo", "the API server has no Node object") }
	if in.Node != nil {
		causeOf = newNode(in, g, pods).causeOf
	}

	var losses []Loss
	for _, p := range pods {
		if !p.reported {
			continue
		}
		if c := causeOf(p); c != nil {
			losses = append(losses, Loss{UID: p.UID, Namespace: p.Namespace, Name: p.Name, Reason: c.reason, Message: c.message})
		}
	}

	return losses
}

func newNode(in Input, g gates, pods []*pod) *node {
	total := capacity(in)
	before := in.Before
	if before == nil {
		before = in.After
	}

	n := &node{
		Node:      in.Node,
		in:        in,
		initial:   initialNode(in.Node, in.Machine.NodeLabels),
		before:    before,
		gates:     g,
		ports:     portsOf(pods),
		pressure:  pressureOf(in, g, total),
		overLimit: overLimit(in, total),
	}
	for _, taint := range in.Node.Spec.Taints {
		if taint.Effect == corev1.TaintEffectNoExecute {
			n.noExecute = append(n.noExecute, taint)
		}
	}

	// Admission sees the API server's Node, which has the old allocatable until
	// the new kubelet's first update of the status returns. The Node may not
	// have the running configuration's allocatable yet either.
	present := amountsOf(in.Node.Status.Allocatable)
	future := allocatable(in.After, total, in.Machine.IgnoreEviction)
	n.shortages = shortages(pods, in.Devices, present, allocatable(before, total, in.Machine.IgnoreEviction), future)
	n.exclusive = exclusiveOf(n, total, pods)

	return n
}

// causeOf returns why the pod is lost; nil: it survives. The order is the
// kubelet's, 1.33 to 1.38.
func (n *node) causeOf(p *pod) *cause {
	for _, handler := range []func(*pod) *cause{
		n.evicted,
		n.sysctls,
		n.topology, // CPUs, memory and alignment
		n.devices,
		n.features,
		n.resources,
		n.placement,
		n.lateHandlers,
		n.memoryLimit, // no handler: what the new limit does to running pods
	} {
		if c := handler(p); c != nil {
			return c
		}
	}

	return nil
}

func (n *node) memoryLimit(*pod) *cause {
	if n.overLimit == "" {
		return nil
	}

	return because("OOMKilled", "%s", n.overLimit)
}

func tolerates(p *pod, g gates, taint corev1.Taint) bool {
	return scheduling.TolerationsTolerateTaint(klog.Logger{}, p.Spec.Tolerations, &taint, g.on("TaintTolerationComparisonOperators"))
}

// shortage is a resource of which the pods need more than the allocatable.
type shortage struct {
	resource                corev1.ResourceName
	need, allocatable       int64
	criticalLost            bool // critical pods alone do not fit, or preemption cannot free enough for them
	highest                 int32
	hasCritical, hasHighest bool // a critical pod needs the resource, and has a priority
}

// shortages returns the resources that do not suffice for all pods at once
// under every allocatable, in the order in which the kubelet reports them. If
// all pods fit together, they fit in any order.
func shortages(pods []*pod, plugins Devices, allocatables ...amounts) []shortage {
	need, critical, stuck := amounts{}, amounts{}, amounts{}
	for _, p := range pods {
		count := func(name corev1.ResourceName, request, freeable int64) {
			need[name] = add(need[name], request)
			if p.critical {
				critical[name] = add(critical[name], request)
			} else {
				stuck[name] = add(stuck[name], max(0, request-freeable))
			}
		}
		for name, request := range p.request {
			// Whether plugins' resources suffice is a question of devices: a
			// pod that keeps its devices fits.
			if isFitted(name) && !plugins.Resources[name] {
				count(name, request, p.freeable[name])
			}
		}

		count(corev1.ResourcePods, 1, 1)
	}

	var short []shortage
	for _, name := range slices.SortedFunc(maps.Keys(need), inKubeletOrder) {
		least, known := leastOf(name, allocatables)
		if !known || need[name] <= least {
			continue
		}

		s := shortage{resource: name, need: need[name], allocatable: least}
		s.criticalLost = add(critical[name], stuck[name]) > least
		for _, p := range pods {
			if p.critical && p.needs(name) {
				s.hasCritical = true
				if p.Spec.Priority != nil && (!s.hasHighest || *p.Spec.Priority > s.highest) {
					s.highest, s.hasHighest = *p.Spec.Priority, true
				}
			}
		}

		short = append(short, s)
	}

	return short
}

// leastOf returns the least of a resource. A Node without an extended resource
// is no limit for it: the kubelet ignores the requests. known is false if no
// allocatable limits the resource.
func leastOf(name corev1.ResourceName, allocatables []amounts) (least int64, known bool) {
	for _, a := range allocatables {
		value, ok := a[name]
		if !ok && isExtended(name) {
			continue
		}
		if !known || value < least {
			least, known = value, true
		}
	}

	return least, known
}

// inKubeletOrder compares resources by the order of the scheduler's fit
// (noderesources/fit.go, fitsRequest).
func inKubeletOrder(a, b corev1.ResourceName) int {
	rank := func(name corev1.ResourceName) int {
		order := []corev1.ResourceName{corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, name}
		return slices.Index(order, name)
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
}

func (p *pod) needs(name corev1.ResourceName) bool {
	return name == corev1.ResourcePods || p.request[name] > 0
}

// resources compares the requests with the allocatable. A pod without a request
// for a resource is never rejected for it, and never preempted for it.
func (n *node) resources(p *pod) *cause {
	for _, s := range n.shortages {
		if !p.needs(s.resource) {
			continue
		}

		message := fmt.Sprintf("%s: %s needed by all pods together, %s allocatable", s.resource, written(s.resource, s.need),
			written(s.resource, s.allocatable))
		switch {
		case !p.critical && s.hasCritical:
			return because("OutOf"+string(s.resource), "%s; a critical pod may preempt others", message)
		case !p.critical:
			return because("OutOf"+string(s.resource), "%s", message)
		case s.criticalLost:
			return because("UnexpectedAdmissionError", "%s, and preemption does not free enough for the critical pods", message)
		case p.Spec.Priority != nil && s.hasHighest && s.highest > *p.Spec.Priority:
			return because("Preempting", "%s, and a critical pod has a higher priority", message)
		}
	}

	return nil
}

// written returns an amount as `kubectl describe node` writes it: 1500m CPUs,
// 1887436Ki bytes.
func written(name corev1.ResourceName, value int64) string {
	switch {
	case name == corev1.ResourceCPU:
		return fmt.Sprintf("%dm", value)
	case name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || isHugePages(name):
		return resource.NewQuantity(value, resource.BinarySI).String()
	}

	return fmt.Sprint(value)
}

// mebibytes returns a measured number of bytes, rounded down: 1843Mi, 5Gi.
func mebibytes(bytes int64) string {
	return resource.NewQuantity(bytes>>20<<20, resource.BinarySI).String()
}

func sorted[V any](m map[corev1.ResourceName]V) []corev1.ResourceName {
	return slices.Sorted(maps.Keys(m))
}
