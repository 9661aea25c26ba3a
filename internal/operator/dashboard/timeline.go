// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// timelineView is the course of a rollout, and what is expected.
type timelineView struct {
	course
	Estimate *estimate `json:"estimate"` // nil: Note says why
}

// estimate is how the rollout continues if every node is healthy and approvals come at once.
type estimate struct {
	Points []estimatePoint `json:"points"` // the oldest first, at most maxPoints
	End    time.Time       `json:"end"`
	Note   string          `json:"note"`
}

type estimatePoint struct {
	T       time.Time `json:"t"`
	Updated int       `json:"updated"`
}

const (
	// estimateInterval is how long an estimate is valid.
	estimateInterval = 15 * time.Second
	// estimateTime is how long the computation of an estimate may take.
	estimateTime = 5 * time.Second
	// estimateLimit is how far an estimate looks ahead.
	estimateLimit = 30 * 24 * time.Hour
)

// estimates keeps the newest estimate of each rollout. It computes one at a time: pages must not add up.
type estimates struct {
	mu  sync.Mutex
	all map[string]knownEstimate
}

type knownEstimate struct {
	of    string // what the estimate depends on most; see keyOf
	until time.Time
	is    *estimate
	note  string
}

// timeline answers with the course of a rollout.
func (c *cluster) timeline(ctx context.Context, request *http.Request) (any, error) {
	r, err := query.Rollout(ctx, c.api, request.PathValue("name"))
	if err != nil {
		return nil, err
	}
	var configs v1alpha1.NodeConfigList
	if err := c.cache.List(ctx, &configs); err != nil {
		return nil, err
	}
	var f *query.Fleet
	note := "an estimate needs the right to list Nodes"
	states := map[string]*rollout.State{}
	total := 0
	if c.cache.List(ctx, &corev1.NodeList{}) == nil {
		if f, err = query.Gather(ctx, cachedReader{c.cache}, r, nil); err != nil {
			note = "no estimate: " + printable.Line(err.Error())
		}
	}
	if f != nil {
		plan := f.Plan()
		total = int(plan.Counts.Members)
		for i := range f.Nodes {
			states[f.Nodes[i].Name] = &plan.States[i]
		}
	} else {
		total = int(r.Status.Nodes.Members)
	}
	var nodes []courseNode
	for i := range configs.Items {
		if n, ok := courseNodeOf(r, &configs.Items[i], states[configs.Items[i].Name]); ok {
			nodes = append(nodes, n)
		}
	}
	v := &timelineView{course: courseOf(r, nodes, total, time.Now())}
	if f != nil {
		v.Estimate, note = c.estimates.of(ctx, r, f)
	}
	v.Note = printable.Line(strings.Trim(v.Note+"; "+note, "; "))
	for i := range v.Bands {
		v.Bands[i].Label = printable.Line(v.Bands[i].Label)
	}
	return v, nil
}

// of returns the estimate for a rollout, or why there is none.
func (e *estimates) of(ctx context.Context, r *v1alpha1.NodeConfigRollout, f *query.Fleet) (*estimate, string) {
	switch phase := r.Status.Phase; {
	case !query.Observed(r):
		return nil, query.Unobserved
	case describe.Stopped(phase) && phase != v1alpha1.RolloutStuck, phase == v1alpha1.RolloutPaused, phase == v1alpha1.RolloutFrozen:
		return nil, "no estimate while the rollout is " + describe.PhaseWords(phase)
	case phase == v1alpha1.RolloutComplete, phase == v1alpha1.RolloutNoNodes:
		return nil, ""
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if known, is := e.all[r.Name]; is && known.of == keyOf(r) && time.Now().Before(known.until) {
		return known.is, known.note
	}
	until := time.Now().Add(estimateTime)
	run := f.Estimate(estimateLimit, func() bool { return ctx.Err() != nil || time.Now().After(until) })
	is, note := estimateOf(&run, time.Now().After(until))
	if ctx.Err() != nil {
		return is, note // it is not complete
	}
	if e.all == nil {
		e.all = map[string]knownEstimate{}
	}
	e.all[r.Name] = knownEstimate{of: keyOf(r), until: time.Now().Add(estimateInterval), is: is, note: note}
	return is, note
}

// keyOf returns what makes an estimate wrong at once. The progress of nodes does not: its estimate is renewed after estimateInterval.
func keyOf(r *v1alpha1.NodeConfigRollout) string {
	st := &r.Status
	return fmt.Sprint(r.UID, r.Generation, st.ObservedGeneration, st.Attempt, st.Step, st.Phase)
}

// estimateOf summarizes a simulated run. late says that its computation took too long.
func estimateOf(run *rollout.Run, late bool) (*estimate, string) {
	if len(run.Samples) == 0 {
		return nil, "no estimate: the rollout makes no progress by itself"
	}
	e := &estimate{End: run.End.UTC()}
	bucket := max(run.End.Sub(run.Start)/maxPoints, 1)
	for i, s := range run.Samples {
		if i > 0 && i+1 < len(run.Samples) && run.Samples[i+1].At.Sub(run.Start)/bucket == s.At.Sub(run.Start)/bucket {
			continue // the last one of a bucket stands for all
		}
		e.Points = append(e.Points, estimatePoint{s.At.UTC(), int(s.Counts.Updated)})
	}
	notes := []string{"if every node is healthy"}
	if run.Approvals > 0 {
		notes = append(notes, printable.Count(run.Approvals, "approval")+" without delay")
	}
	switch {
	case late && run.Limited:
		notes = append(notes, "not computed to the end")
	case run.Limited:
		notes = append(notes, "not planned to the end")
	case run.Final.Next.Phase != v1alpha1.RolloutComplete:
		notes = append(notes, "it ends as "+string(run.Final.Next.Phase))
	}
	e.Note = printable.Line(strings.Join(notes, ", "))
	return e, ""
}
