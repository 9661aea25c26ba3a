// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

const (
	// minRefusals is how often a pod must be refused to count: the first time can be a short outage.
	minRefusals = 2
	// maxRefused limits how many refused pods are remembered, and maxStarted how many of those that were started.
	maxRefused, maxStarted = 64, 16
)

// podStarts is which pods the kubelet that was started last could start, and which it could not.
type podStarts struct {
	base     map[types.UID]string // when the containers of each pod had started before this kubelet; nil: not known yet
	attempts map[string]attempts  // by namespace/name

	started, refused []trial.PodStart
	unseen           bool           // there are refusals, but nobody watches the pods
	before           trial.Baseline // of the last trial with this kubelet
}

// attempts are the failed ones to start a pod.
type attempts struct {
	count int
	last  string
	words string // of the first one: those of later ones can differ
}

// update notes what the kubelet's log says about refused pods and, if the node's pods are watched, which of them count. t is nil after
// the trial.
func (p *podStarts) update(log []component.PodRefusal, s source.NodeState, watched bool, t *trial.Trial) {
	if t != nil {
		p.before = t.Baseline
	}
	if p.attempts == nil {
		p.attempts = map[string]attempts{}
	}
	for _, r := range log {
		name := r.Namespace + "/" + r.Name
		if a, known := p.attempts[name]; a.last != r.Attempt && (known || len(p.attempts) < maxRefused) {
			p.attempts[name] = attempts{a.count + 1, r.Attempt, cmp.Or(a.words, r.Words)}
		}
	}
	if p.unseen = !watched && len(p.attempts) > 0; !watched {
		p.refused = nil
	}
	if !s.Complete || !s.Reachable {
		return // what was known before an outage stays
	}
	p.refused = nil
	first := p.base == nil
	if first {
		p.base = map[types.UID]string{}
	}
	names := map[string]bool{}
	for i := range s.Pods {
		pod := &s.Pods[i]
		name := pod.Namespace + "/" + pod.Name
		names[name] = true
		if first {
			p.base[pod.UID] = pod.Started
		}
		start := trial.PodStart{
			Namespace: pod.Namespace, Name: pod.Name, Probe: pod.StartProbe,
			Trusted: pod.Static || pod.Namespace == "kube-system" || pod.Namespace == v1alpha1.SystemNamespace,
		}
		switch a := p.attempts[name]; {
		case pod.Started != p.base[pod.UID]:
			p.addStarted(start)
		case a.count >= minRefusals && isActive(*pod) && !pod.Deleting && !p.failedBefore(pod):
			start.Words = a.words
			p.refused = append(p.refused, start)
		}
	}
	maps.DeleteFunc(p.attempts, func(name string, _ attempts) bool { return !names[name] })
	slices.SortFunc(p.refused, func(a, b trial.PodStart) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
}

// addStarted notes a pod that was started: only a few of each kind count.
func (p *podStarts) addStarted(start trial.PodStart) {
	same := func(s trial.PodStart) bool { return s.Namespace == start.Namespace && s.Trusted == start.Trusted }
	if len(p.started) < maxStarted && !slices.ContainsFunc(p.started, same) {
		p.started = append(p.started, start)
	}
}

// failedBefore reports whether a pod, or one of the same owner, did not run before the trial, or whether that is not known.
func (p *podStarts) failedBefore(pod *source.Pod) bool {
	b := p.before
	return !b.API || b.Pending || slices.Contains(b.Failing, string(pod.UID)) ||
		pod.Owner != "" && slices.Contains(b.Failing, string(pod.Owner))
}

// failing returns the UIDs of active pods with a container that does not run, and of their owners.
func failing(pods []source.Pod) (uids []string) {
	for i := range pods {
		if p := &pods[i]; p.Waiting && isActive(*p) {
			uids = append(uids, string(p.UID))
			if p.Owner != "" && !slices.Contains(uids, string(p.Owner)) {
				uids = append(uids, string(p.Owner))
			}
		}
	}
	return uids
}
