// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Suspect is a revision, and a symptom of nodes that run it.
type Suspect struct {
	Rollout  string // empty: the node runs a configuration that no rollout assigned
	Revision int64
	Symptom  string // to follow "nodes are"; empty: none
}

// NodeHealth is what suspicions needs to know of a node: the revision that it
// runs, and what is wrong with it.
type NodeHealth struct {
	Suspect
	Zone            string
	Assigned, Since time.Time    // of the revision, and of the symptom
	Node            *corev1.Node // says which rollouts select it, and how old it is; nil: not known
	First           bool         // no rollout assigned it anything before the revision
}

// symptoms are conditions of a Node that a configuration can cause long after
// its trial, the worst first.
var symptoms = []struct {
	kind  corev1.NodeConditionType
	words string
}{
	{corev1.NodeReady, "not Ready"}, {corev1.NodeMemoryPressure, "under memory pressure"}, {corev1.NodeDiskPressure, "under disk pressure"},
	{corev1.NodePIDPressure, "under PID pressure"},
}

// nodeHealthOf returns what suspicions needs to know of a node. ok is false for
// a node that says nothing about its configuration: without a Node, under
// maintenance, on trial (its agent judges the configuration), or with a symptom
// that may pass.
func nodeHealthOf(p fleet.Pair, maintenance []string, now time.Time) (h NodeHealth, ok bool) {
	if p.Node == nil || p.Config != nil && p.Config.Status.Trial != nil || fleet.MaintenanceOf(p.Node, maintenance) != "" {
		return h, false
	}

	h.Zone, h.Node = p.Node.Labels[corev1.LabelTopologyZone], p.Node
	if nc := p.Config; nc != nil {
		s, active := nc.Spec.ConfigSource, nc.Status.Active
		if s != nil && s.RolloutRef != nil && s.ConfigMapRef != nil && active != nil && active.UID == s.ConfigMapRef.UID {
			h.Rollout, h.Revision, h.Assigned = s.RolloutRef.Name, s.RolloutRef.Revision, s.RolloutRef.AssignedAt.Time
			h.First = s.RolloutRef.Previous == nil
		}

		if c := meta.FindStatusCondition(nc.Status.Conditions, v1alpha1.ConditionConfigOK); c != nil && c.Status == metav1.ConditionFalse &&
			c.Reason == v1alpha1.ReasonDeadEnd {
			h.Symptom, h.Since = "in a crash loop of the kubelet", c.LastTransitionTime.Time
		}
	}

	for _, s := range slices.Backward(symptoms) {
		for _, c := range p.Node.Status.Conditions {
			if c.Type == s.kind && (c.Status == corev1.ConditionTrue) != (s.kind == corev1.NodeReady) {
				h.Symptom, h.Since = s.words, c.LastTransitionTime.Time
			}
		}
	}

	return h, h.Symptom == "" || now.Sub(h.Since) >= lasts
}

// suspicion says that nodes became unhealthy within a day after they received
// the same revision. It informs and never acts.
type suspicion struct {
	Suspect
	Nodes  int           // that the revision may have made unhealthy
	Others int           // with the symptom that do not run it, or that something else explains
	Of     int           // nodes of the fleet
	Within time.Duration // from the assignment to the symptom, at most
	// Compared reports whether enough nodes do not run the revision, and are
	// healthy. Otherwise only the times say so.
	Compared bool
}

const (
	lasts      = time.Minute    // a symptom that is younger may pass, such as that of a reboot
	suspectFor = 24 * time.Hour // after a change, a symptom can have to do with it
	// sameCause is the longest time between two nodes that become unhealthy for
	// the same cause, such as an outage.
	sameCause = 5 * time.Minute
	// likely is the probability below which chance does not explain that so
	// many unhealthy nodes run the revision.
	likely = 0.01
)

// afterChange reports whether a symptom began within a day after the node
// received its revision. The revision of a node that joined is no change: every
// new node of a pool has received its revision lately. pool is what the rollout
// selects.
func (n NodeHealth) afterChange(pool fleet.Selection) bool {
	after := n.Since.Sub(n.Assigned)
	joined := n.First && n.Node != nil && n.Node.CreationTimestamp.After(pool.Claim.Created)
	return n.Symptom != "" && n.Rollout != "" && after >= 0 && after <= suspectFor && !joined
}

// suspicions returns what changes of configuration and of health have in
// common. Within each zone it compares nodes with and without the revision: an
// outage hits both. Only nodes that the same rollout selects are alike.
func suspicions(nodes []NodeHealth, rollouts []v1alpha1.NodeConfigRollout) []suspicion {
	pools := map[string]fleet.Selection{}
	for _, pool := range fleet.SelectionsOf(rollouts) {
		pools[pool.Claim.Name] = pool
	}

	began := map[Suspect]time.Time{}
	for _, n := range nodes {
		if t, known := began[n.Suspect]; n.afterChange(pools[n.Rollout]) && (!known || n.Since.Before(t)) {
			began[n.Suspect] = n.Since
		}
	}

	var out []suspicion
	for s, since := range began {
		if found, ok := s.judge(nodes, pools[s.Rollout], since); ok {
			out = append(out, found)
		}
	}

	slices.SortFunc(out, func(a, b suspicion) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Rollout, b.Rollout), cmp.Compare(b.Revision, a.Revision),
			cmp.Compare(a.Symptom, b.Symptom))
	})

	return out
}

// tally counts nodes with and without a revision, and those of them with the
// symptom. Outside are nodes that the rollout does not select.
type tally struct{ with, illWith, without, illWithout, outside, illOutside int }

func (t *tally) add(u tally) {
	t.with, t.illWith, t.without, t.illWithout = t.with+u.with, t.illWith+u.illWith, t.without+u.without, t.illWithout+u.illWithout
	t.outside, t.illOutside = t.outside+u.outside, t.illOutside+u.illOutside
}

// judge compares the nodes. pool is what the rollout selects, and began is when
// the first node that runs the revision became unhealthy.
func (s Suspect) judge(nodes []NodeHealth, pool fleet.Selection, began time.Time) (found suspicion, ok bool) {
	found.Suspect, found.Of = s, len(nodes)
	zones := map[string]tally{}
	for _, n := range nodes {
		runs, sick := n.Rollout == s.Rollout && n.Revision == s.Revision, 0
		if n.Symptom == s.Symptom {
			sick = 1
			found.Others++
		}

		t := tally{outside: 1, illOutside: sick}
		switch {
		case sick == 1 && (runs && !n.afterChange(pool) || !runs && n.Since.Before(began.Add(-sameCause))):
			continue // unhealthy before the change
		case runs:
			t = tally{with: 1, illWith: sick}
			if sick == 1 {
				found.Within = max(found.Within, n.Since.Sub(n.Assigned))
			}
		case n.Rollout == s.Rollout, n.Node != nil && pool.Selects(n.Node):
			t = tally{without: 1, illWithout: sick}
		}

		t.add(zones[n.Zone])
		zones[n.Zone] = t
	}

	var compared, all tally
	zonesWith, zonesIll := 0, 0
	for _, t := range zones {
		ill, others := t.illWithout+t.illOutside, t.without+t.outside
		if t.with == 0 || ill > 0 && 2*ill*t.with >= t.illWith*others { // an outage
			continue
		}

		all.add(t)
		zonesWith, zonesIll = zonesWith+1, zonesIll+min(t.illWith, 1)
		if t.without > 0 {
			compared.add(t)
		}
	}

	found.Nodes, found.Others = all.illWith, found.Others-all.illWith
	if compared.illWith >= 2 {
		share := float64(compared.with) / float64(compared.with+compared.without)
		found.Compared = chance(compared.illWith, compared.illWith+compared.illWithout, share) < likely
	}

	// Without a comparison, some nodes are down in any fleet, and one zone of
	// several is an outage.
	often := all.illWith >= 3 && 20*all.illWith >= all.with && 10*all.without < all.with && (zonesIll > 1 || zonesWith == 1)

	return found, found.Compared || often
}

// chance returns the probability that at least n of k nodes are in a part of
// the fleet with this share, if only chance decides.
func chance(n, k int, share float64) (p float64) {
	factorial := func(n int) float64 { v, _ := math.Lgamma(float64(n) + 1); return v }
	for i := n; i <= k; i++ {
		p += math.Exp(factorial(k) - factorial(i) - factorial(k-i) + float64(i)*math.Log(share) + float64(k-i)*math.Log(1-share))
	}

	return p
}

// String describes the suspicion in one sentence, without a full stop.
func (s suspicion) String() string {
	fleet, revision, within := printable.Count(s.Of, "node"), fmt.Sprintf("%s/%d", s.Rollout, s.Revision), Span(s.Within)
	switch {
	case !s.Compared:
		return fmt.Sprintf("%d of %s became %s within %s after they received %s; too few nodes run something else to compare", s.Nodes, fleet,
			s.Symptom, within, revision)
	case s.Others == 0:
		return fmt.Sprintf("%d of %s are %s; all %d run %s, received at most %s earlier", s.Nodes, fleet, s.Symptom, s.Nodes, revision, within)
	}

	return fmt.Sprintf("%d of %s are %s; for %d of them the cause may be %s, received at most %s earlier", s.Nodes+s.Others, fleet, s.Symptom,
		s.Nodes, revision, within)
}

// line returns the line of a summary.
func (s suspicion) line(rollouts []v1alpha1.NodeConfigRollout) summaryLine {
	l := summaryLine{Level: LevelProblem, Reason: ReasonSuspected, Count: s.Nodes, Words: s.String(), Object: s.Rollout,
		Filter: "rollouts/" + s.Rollout,
		Next:   "kubectl evenkeel nodes --rollout " + s.Rollout + " --problems"}
	for i := range rollouts {
		r, target := &rollouts[i], rollouts[i].Status.UpdateRevision
		if r.Name == s.Rollout && s.Compared && target != nil && target.Number == s.Revision && fleet.PreviousRevision(&r.Status) != 0 {
			l.Next = "kubectl evenkeel rollout undo " + s.Rollout
		}
	}

	return l
}
