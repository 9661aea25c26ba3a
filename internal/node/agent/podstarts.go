// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

const (
	// minRefusals is how often a pod must be refused to count: the first time
	// can be a short outage.
	minRefusals = 2
	// maxRefused limits how many refused pods are remembered, and
	// maxOfNamespace those of one namespace. Those of the cluster's own are
	// always remembered.
	maxRefused, maxOfNamespace = 64, 4
	// forgottenAfter is how long a pod counts as refused without another
	// attempt or back-off: longer than a kubelet waits between them.
	forgottenAfter = 90 * time.Second
)

// podStarts is which pods the kubelet that was started last could start, and
// which it could not.
type podStarts struct {
	since    time.Time            // the start of this kubelet: the one before may have started containers until then
	base     map[types.UID]string // when the containers of each pod had started before this kubelet; nil: not known yet
	attempts map[string]attempts  // by namespace/name
	earlier  map[types.UID]bool   // pods that existed at the first look
	hasty    bool                 // this kubelet has a shorter timeout for requests to the runtime than the one that it replaced

	started, refused []trial.PodStart
	unseen           bool           // there are refusals that nobody has judged, and nobody watches the pods
	before           trial.Baseline // of the last trial with this kubelet
}

// attempts are the failed ones to start a pod.
type attempts struct {
	count      int
	last, seen string // see PodRefusal
	at         time.Time
	words      string    // of the first one: those of later ones can differ
	judged     bool      // together with the pod
	pod        types.UID // empty: not known yet
}

// note notes what the log says now about a pod.
func (p *podStarts) note(r component.PodRefusal, static bool, now time.Time) {
	name := r.Namespace + "/" + r.Name
	a, known := p.attempts[name]
	switch {
	case known && a.seen == r.Seen:
	case known && (r.Attempt == "" || r.Attempt == a.last): // a back-off
		a.seen, a.at = r.Seen, now
		p.attempts[name] = a
	case r.Words == "" || r.Timeout && !p.hasty: // another error
		delete(p.attempts, name)
	case known || isOwn(r.Namespace) || static || p.hasRoom(r.Namespace):
		a.count, a.last, a.seen, a.at, a.words = a.count+1, r.Attempt, r.Seen, now, cmp.Or(a.words, r.Words)
		p.attempts[name] = a
	}
}

// hasRoom reports whether a pod that is new can be remembered.
func (p *podStarts) hasRoom(namespace string) bool {
	same := 0
	for name := range p.attempts {
		if strings.HasPrefix(name, namespace+"/") {
			same++
		}
	}

	return len(p.attempts) < maxRefused && same < maxOfNamespace
}

// isOwn reports whether a pod is one of the cluster's own.
func isOwn(namespace string) bool {
	return namespace == metav1.NamespaceSystem || namespace == v1alpha1.SystemNamespace
}

// shorterTimeout reports whether a configuration has a shorter timeout for
// requests to the runtime than the first of before that is known.
func shorterTimeout(c component.Effective, before ...component.Effective) bool {
	timeout := func(e component.Effective) time.Duration {
		d, _ := time.ParseDuration(e.String("runtimeRequestTimeout"))
		return d
	}
	before = slices.DeleteFunc(before, func(e component.Effective) bool { return e == nil })

	return len(before) > 0 && timeout(c) > 0 && timeout(c) < timeout(before[0])
}

// update notes what the kubelet's log says about refused pods and, if the
// node's pods are watched, which of them count. t is nil after the trial.
func (p *podStarts) update(log []component.PodRefusal, s source.NodeState, watched bool, t *trial.Trial) {
	if t != nil {
		p.before = t.Baseline
	}
	if p.attempts == nil {
		p.attempts, p.earlier = map[string]attempts{}, map[types.UID]bool{}
	}

	now := time.Now()
	static := map[string]bool{} // of all pods, by namespace/name
	for i := range s.Pods {
		static[s.Pods[i].Namespace+"/"+s.Pods[i].Name] = s.Pods[i].Static
	}

	for _, r := range log {
		p.note(r, static[r.Namespace+"/"+r.Name], now)
	}

	p.unseen = false
	for name, a := range p.attempts {
		if now.Sub(a.at) > forgottenAfter {
			a = attempts{last: a.last, seen: a.seen}
		}

		p.attempts[name] = a
		p.unseen = p.unseen || !watched && a.count >= minRefusals && !a.judged
	}

	if !watched {
		p.refused = nil
	}
	if !s.Complete || !s.Reachable {
		return // what was known before an outage stays
	}

	p.refused = nil
	base := make(map[types.UID]string, len(s.Pods))                // without pods that are gone
	since := now.Add(-now.Sub(p.since)).UTC().Format(time.RFC3339) // on the clock as it is now
	for i := range s.Pods {
		pod := &s.Pods[i]
		name := pod.Namespace + "/" + pod.Name
		base[pod.UID] = p.base[pod.UID]
		if p.base == nil {
			base[pod.UID], p.earlier[pod.UID] = pod.Started, true
		}

		start := trial.PodStart{
			Namespace: pod.Namespace, Name: pod.Name, Probe: pod.StartProbe, Inherited: p.earlier[pod.UID] || pod.Static,
			Trusted: pod.Static || isOwn(pod.Namespace),
		}
		a, known := p.attempts[name]
		if a.pod != "" && a.pod != pod.UID { // they are those of an earlier pod with this name
			a = attempts{last: a.last, seen: a.seen}
		}

		a.pod, a.judged = pod.UID, a.count >= minRefusals
		switch {
		case pod.Started > base[pod.UID] && pod.Started >= since: // times of one clock in RFC 3339; that of a failed start is missing
			base[pod.UID] = pod.Started
			p.started = trial.AddStart(p.started, start)
			a = attempts{last: a.last, seen: a.seen}
		case a.count >= minRefusals && isActive(*pod) && !pod.Deleting && !p.failedBefore(pod):
			start.Words = a.words
			p.refused = append(p.refused, start)
		}

		if known {
			p.attempts[name] = a
		}
	}

	p.base = base
	maps.DeleteFunc(p.attempts, func(name string, _ attempts) bool {
		_, exists := static[name]
		return !exists
	})
	slices.SortFunc(p.refused, func(a, b trial.PodStart) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
}

// failedBefore reports whether a pod, or one of the same owner, did not run
// before the trial, or whether that is not known.
func (p *podStarts) failedBefore(pod *source.Pod) bool {
	b := p.before
	return !b.API || b.Pending || b.Failing == nil || slices.Contains(b.Failing, string(pod.UID)) ||
		pod.Owner != "" && slices.Contains(b.Failing, string(pod.Owner))
}

// failing returns the UIDs of active pods with a container that does not run,
// and of their owners. All start probes of a node have one owner, but not one
// fault.
func failing(pods []source.Pod) []string {
	uids := []string{} // nil: not known
	for i := range pods {
		if p := &pods[i]; p.Waiting && isActive(*p) {
			uids = append(uids, string(p.UID))
			if p.Owner != "" && !p.StartProbe && !slices.Contains(uids, string(p.Owner)) {
				uids = append(uids, string(p.Owner))
			}
		}
	}

	return uids
}
