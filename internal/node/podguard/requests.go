// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"cmp"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resources "k8s.io/component-helpers/resource"
)

// criticalPriority is the lowest priority of critical pods
// (pkg/apis/scheduling, SystemCriticalPriority).
const criticalPriority = 2_000_000_000

// pod is a pod of the node with what the rules derive from it.
type pod struct {
	*corev1.Pod
	uid       types.UID // the kubelet's; a mirror pod has another UID in the API
	static    bool
	critical  bool
	reported  bool // a loss of it is reported: the pod is neither terminal nor terminating
	allocated Allocation
	request   amounts // the most that any of the kubelets counts, positive amounts only
	freeable  amounts // the least that preemption of the pod frees, as preemption computes it
}

// activePods returns the pods that count as users of the node, sorted by
// namespace and name: those that admission handles, and terminal ones whose
// containers still run. A static pod has neither the phase nor the deletion of
// its mirror pod: the kubelet admits it again even if it rejected it before.
func activePods(in Input, g gates) []*pod {
	var active []*pod
	for _, p := range in.Pods {
		if p == nil {
			continue
		}

		// The annotation's value is the UID of the static pod.
		static, isMirror := p.Annotations[corev1.MirrorPodAnnotationKey]
		uid := cmp.Or(types.UID(static), p.UID)
		terminal := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if terminal && !isMirror && !hasAny(allStatuses(p), isRunning) && len(in.Running[uid]) == 0 {
			continue
		}

		a := &pod{
			Pod:       p,
			uid:       uid,
			static:    isMirror,
			critical:  isMirror || p.Spec.Priority != nil && *p.Spec.Priority >= criticalPriority,
			reported:  !terminal && (isMirror || p.DeletionTimestamp == nil),
			allocated: in.Allocated[uid],
		}
		a.request, a.freeable = requests(p, a.allocated, g)
		active = append(active, a)
	}

	slices.SortStableFunc(active, func(a, b *pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})

	return active
}

// allContainers returns the init containers and containers of the pod, and
// allStatuses their statuses.
func allContainers(p *corev1.Pod) iter.Seq[*corev1.Container] {
	return pointers(p.Spec.InitContainers, p.Spec.Containers)
}

func allStatuses(p *corev1.Pod) iter.Seq[*corev1.ContainerStatus] {
	return pointers(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
}

// pointers returns pointers to the entries of the lists, which are too large to
// copy.
func pointers[T any](lists ...[]T) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, list := range lists {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// hasAny reports whether the condition is true of any entry.
func hasAny[T any](entries iter.Seq[*T], condition func(*T) bool) bool {
	for entry := range entries {
		if condition(entry) {
			return true
		}
	}

	return false
}

func isRunning(s *corev1.ContainerStatus) bool { return s.State.Running != nil }

// requests returns the most that admission may count for a pod, and the least
// that preemption frees by killing it.
//
// The kubelets disagree: 1.33 to 1.36 take the larger of spec and status for
// each container and sum these; 1.37 sums the spec, the allocated and the
// actual requests and takes the largest sum, which may be less. Which of them
// admission uses for a pod depends on whether that pod is admitted or another
// one. So the pod is computed with the larger of all of them for each
// container, which is never less than any of the sums.
func requests(p *corev1.Pod, allocated Allocation, g gates) (request, freeable amounts) {
	largest := corev1.Pod{Spec: corev1.PodSpec{
		Containers:     largestRequests(p.Spec.Containers, p.Status.ContainerStatuses, allocated),
		InitContainers: largestRequests(p.Spec.InitContainers, p.Status.InitContainerStatuses, allocated),
		Resources:      podLevel(p, allocated),
		Overhead:       p.Spec.Overhead,
	}, Status: p.Status}
	podLevels := g.on("PodLevelResources") && resources.IsPodLevelResourcesSet(p)
	podLevelStatus := g.on("InPlacePodLevelResourcesVerticalScaling")

	request = amounts{}
	request.raise(resources.PodRequests(&largest, resources.PodResourcesOptions{SkipPodLevelResources: true}))
	if podLevels {
		request.raise(resources.PodRequests(&largest, resources.PodResourcesOptions{}))
	}

	if podLevelStatus {
		// The kubelet's status has the overhead in it, and the kubelet adds it
		// once more to the requests of other pods. The computation from the
		// status below has it twice already.
		for name, q := range p.Spec.Overhead {
			request[name] = add(request[name], amount(name, q))
		}
	}

	dra := g.on("DRANodeAllocatableResources") && len(p.Status.NodeAllocatableResourceClaimStatuses) > 0
	if dra || podLevelStatus && (p.Status.Resources != nil || p.Status.AllocatedResources != nil) {
		request.raise(resources.PodRequests(&largest, resources.PodResourcesOptions{
			UseStatusResources: g.on("InPlacePodVerticalScaling"),
			InPlacePodLevelResourcesVerticalScalingEnabled: podLevelStatus,
			UseDRANodeAllocatableResourceClaimStatus:       dra,
			SkipPodLevelResources:                          !podLevels,
		}))
	}

	return request, freed(p, allocated, podLevels)
}

// raise sets each amount to the larger of it and the list's, and leaves out
// zero.
func (a amounts) raise(list corev1.ResourceList) {
	for name, q := range list {
		if value := amount(name, q); value > a[name] {
			a[name] = value
		}
	}
}

// largestRequests returns the containers with the names, restart policies and
// the largest requests of spec, allocation and status.
func largestRequests(containers []corev1.Container, statuses []corev1.ContainerStatus, allocated Allocation) []corev1.Container {
	if len(containers) == 0 {
		return nil
	}

	byName := make(map[string]*corev1.ContainerStatus, len(statuses))
	for i := range statuses {
		byName[statuses[i].Name] = &statuses[i]
	}

	largest := make([]corev1.Container, len(containers))
	for i := range containers {
		c := &containers[i]
		lists := []corev1.ResourceList{c.Resources.Requests, allocated.Containers[c.Name].Requests}
		if status := byName[c.Name]; status != nil {
			lists = append(lists, status.AllocatedResources)
			if status.Resources != nil {
				lists = append(lists, status.Resources.Requests)
			}
		}

		largest[i] = corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy}
		largest[i].Resources.Requests = largestOf(lists...)
	}

	return largest
}

// largestOf returns the larger quantity of each resource, without negative
// ones.
func largestOf(lists ...corev1.ResourceList) corev1.ResourceList {
	largest := corev1.ResourceList{}
	for _, list := range lists {
		for name, q := range list {
			if known := largest[name]; q.Sign() > 0 && q.Cmp(known) > 0 {
				largest[name] = q
			}
		}
	}

	return largest
}

// podLevel returns the largest pod-level requests of spec and allocation; nil
// if the spec has none.
func podLevel(p *corev1.Pod, allocated Allocation) *corev1.ResourceRequirements {
	if p.Spec.Resources == nil {
		return nil
	}

	lists := []corev1.ResourceList{p.Spec.Resources.Requests}
	if allocated.Pod != nil {
		lists = append(lists, allocated.Pod.Requests)
	}

	return &corev1.ResourceRequirements{Requests: largestOf(lists...), Limits: p.Spec.Resources.Limits}
}

// freed returns the least that preemption of the pod frees. Preemption counts
// the spec, or what the allocation replaced it with, and of pods with pod-level
// resources only these; 1.33 does not know the formula for sidecars. So only
// regular containers count.
func freed(p *corev1.Pod, allocated Allocation, podLevels bool) amounts {
	least := amounts{}
	if podLevels {
		for name, q := range p.Spec.Resources.Requests {
			least[name] = amount(name, q)
			if allocated.Pod != nil {
				least[name] = min(least[name], amount(name, allocated.Pod.Requests[name]))
			}
		}

		return least
	}

	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		replaced, isReplaced := allocated.Containers[c.Name]
		for name, q := range c.Resources.Requests {
			value := amount(name, q)
			if isReplaced {
				value = min(value, amount(name, replaced.Requests[name]))
			}

			least[name] = add(least[name], value)
		}
	}

	return least
}

// mayBe reports whether the pod has this QoS class, or may: the API server
// gives every pod a class when it creates it.
func (p *pod) mayBe(class corev1.PodQOSClass) bool {
	return p.Status.QOSClass == class || p.Status.QOSClass == ""
}
