package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/describe"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// summary says what needs a person, and counts nodes.
type summary struct {
	Lines  []summaryLine `json:"lines"` // the most urgent first
	Counts counts        `json:"counts"`
}

type summaryLine struct {
	Count int    `json:"count"`
	Words string `json:"words"` // with the count
	Tone  string `json:"tone"`  // good, busy, waits or bad
	// Filter leads to what was counted. It follows #/CONTEXT/ in a link: rollouts/NAME or ?health=Failed. Empty: everything.
	Filter string `json:"filter"`
}

// counts are numbers of nodes by health and, as far as it is known, by position.
type counts struct {
	Health   map[describe.Health]int   `json:"health"`
	Position map[describe.Position]int `json:"position"`
}

// summarize counts the cells and rollouts of a snapshot, whose rollouts are sorted by urgency.
func summarize(p *snapshot) summary {
	s := summary{Lines: []summaryLine{}, Counts: counts{map[describe.Health]int{}, map[describe.Position]int{}}}
	var blocked, down int
	for _, c := range p.Cells {
		s.Counts.Health[c.Health]++
		if c.Position != "" {
			s.Counts.Position[c.Position]++
		}
		if c.Position == describe.PositionBlocked && c.Health != describe.HealthFailed {
			blocked++
		}
		if c.Down {
			down++
		}
	}
	line := func(n int, words, tone, filter string) {
		if n > 0 {
			s.Lines = append(s.Lines, summaryLine{n, words, tone, filter})
		}
	}
	rollouts := func(words, tone string, is func(v1alpha1.RolloutPhase) bool) {
		n, first := 0, ""
		for _, r := range p.Rollouts {
			if is(v1alpha1.RolloutPhase(r.Phase)) {
				n, first = n+1, cmp.Or(first, r.Name)
			}
		}
		line(n, printable.Count(n, "rollout")+" "+words, tone, "rollouts/"+first)
	}
	in := func(phases ...v1alpha1.RolloutPhase) func(v1alpha1.RolloutPhase) bool {
		return func(p v1alpha1.RolloutPhase) bool {
			for _, phase := range phases {
				if p == phase {
					return true
				}
			}
			return false
		}
	}
	nodes := func(n int, words, tone, filter string) { line(n, printable.Count(n, "node")+" "+words, tone, filter) }
	approvals := "awaits approval"
	if n := countOf(p.Rollouts, v1alpha1.RolloutAwaitingApproval); n > 1 {
		approvals = "await approval"
	}
	rollouts("halted", "bad", in(v1alpha1.RolloutHalted))
	rollouts("rolling back", "bad", in(v1alpha1.RolloutRollingBack))
	rollouts("rolled back", "bad", in(v1alpha1.RolloutRolledBack))
	rollouts("stuck", "bad", in(v1alpha1.RolloutStuck))
	rollouts("invalid", "bad", in(v1alpha1.RolloutInvalid))
	nodes(s.Counts.Health[describe.HealthFailed], "failed", "bad", "?health="+string(describe.HealthFailed))
	rollouts(approvals, "waits", in(v1alpha1.RolloutAwaitingApproval))
	nodes(blocked, "blocked", "waits", "?position="+string(describe.PositionBlocked))
	nodes(down, "not Ready", "waits", "?down=1")
	nodes(s.Counts.Health[describe.HealthUnknown], "unknown", "waits", "?health="+string(describe.HealthUnknown))
	rollouts("paused", "waits", in(v1alpha1.RolloutPaused))
	rollouts("frozen", "waits", in(v1alpha1.RolloutFrozen))
	rollouts("in progress", "busy", in(v1alpha1.RolloutProgressing, v1alpha1.RolloutWaiting))
	nodes(s.Counts.Health[describe.HealthOnTrial], "on trial", "busy", "?health="+string(describe.HealthOnTrial))
	nodes(s.Counts.Health[describe.HealthHealthy], "healthy", "good", "?health="+string(describe.HealthHealthy))
	return s
}

func countOf(all []rolloutView, phase v1alpha1.RolloutPhase) (n int) {
	for _, r := range all {
		if r.Phase == string(phase) {
			n++
		}
	}
	return n
}

// Urgencies of rollouts, the most urgent first.
const (
	urgentStopped = iota
	urgentApproval
	urgentFailures
	urgentProgress
	urgentPaused
	urgentNot
)

// urgencyOf says how urgently a rollout needs a person.
func urgencyOf(phase v1alpha1.RolloutPhase, failed int32) int {
	switch {
	case describe.Stopped(phase):
		return urgentStopped
	case phase == v1alpha1.RolloutAwaitingApproval:
		return urgentApproval
	case failed > 0:
		return urgentFailures
	case phase == v1alpha1.RolloutPaused, phase == v1alpha1.RolloutFrozen:
		return urgentPaused
	case phase == v1alpha1.RolloutComplete, phase == v1alpha1.RolloutNoNodes:
		return urgentNot
	}
	return urgentProgress
}

// byUrgency compares rollouts: the most urgent first, then the one with the most failed nodes, then by name.
func byUrgency(a, b rolloutView) int {
	return cmp.Or(cmp.Compare(a.Urgency, b.Urgency), cmp.Compare(b.Failures.N, a.Failures.N), cmp.Compare(a.Name, b.Name))
}

// rights are what the user of the page may do.
type rights struct {
	MayPatch     bool   `json:"mayPatch"`
	MayListNodes bool   `json:"mayListNodes"`
	Words        string `json:"words"` // what the user may not do, in a line; empty: nothing that the page needs
}

// rightsInterval is the time between two questions about the user's rights.
const rightsInterval = 10 * time.Second

// checkRights asks the API server whether the user may change rollouts.
func (w *cache) checkRights(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*pingInterval)
	defer cancel()
	words, err := mayNot(ctx, w.api, "")
	if err != nil {
		return err
	}
	w.mu.Lock()
	changed := !w.rightsKnown || w.mayNotPatch != words
	w.rightsKnown, w.mayNotPatch = true, words
	w.mu.Unlock()
	if changed {
		w.wake()
	}
	return nil
}

// rights returns what the user may do, as far as it is known.
func (w *cache) rights() rights {
	w.mu.Lock()
	defer w.mu.Unlock()
	f, failing := w.failing[kindNodes]
	r := rights{MayPatch: w.rightsKnown && w.mayNotPatch == "", MayListNodes: w.listed[kindNodes] || !failing || !apierrors.IsForbidden(f.err)}
	readOnly := w.rightsKnown && w.mayNotPatch != ""
	switch {
	case readOnly && !r.MayListNodes:
		r.Words = "Read only, and without zones, positions in rollouts, and nodes without an agent: the role evenkeel-operator allows to change rollouts and to list Nodes."
	case readOnly:
		r.Words = "Read only: the role evenkeel-operator allows to change rollouts."
	case !r.MayListNodes:
		r.Words = "Zones, positions in rollouts, and nodes without an agent are not shown: the role evenkeel-operator allows to list Nodes."
	}
	return r
}

// mayNot says why the user is not allowed to change a rollout; empty if the user is. Without a name it is about every rollout.
func mayNot(ctx context.Context, api client.Client, name string) (string, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: v1alpha1.GroupName, Resource: "nodeconfigrollouts", Verb: "patch", Name: name},
	}}
	if err := api.Create(ctx, review); err != nil {
		return "", fmt.Errorf("check your permissions: %w", err)
	}
	if review.Status.Allowed {
		return "", nil
	}
	words := "you are not allowed to patch nodeconfigrollouts." + v1alpha1.GroupName
	if review.Status.Reason != "" {
		words += " (" + printable.Line(review.Status.Reason) + ")"
	}
	return words + ": ask an administrator for the role evenkeel-operator", nil
}
