// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
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

// course is the course of a rollout of its present revision. Times are not before Start and not after Now, whatever the clocks of
// nodes say.
type course struct {
	Now    time.Time     `json:"now"`
	Total  int           `json:"total"` // nodes of the rollout; 0: not known
	Start  time.Time     `json:"start"`
	End    *time.Time    `json:"end"`    // when it was complete; nil: it is not
	Points []coursePoint `json:"points"` // the oldest first, from Start to Now; see maxPoints
	Bands  []courseBand  `json:"bands"`
	Note   string        `json:"note"` // what is not known
}

// coursePoint is the number of nodes that were updated and that had failed at a time.
type coursePoint struct {
	T       time.Time `json:"t"`
	Updated int       `json:"updated"`
	Failed  int       `json:"failed"`
}

// courseBand is a period.
type courseBand struct {
	Kind  string     `json:"kind"` // step, pause or halt
	Label string     `json:"label"`
	From  time.Time  `json:"from"`
	To    *time.Time `json:"to"` // nil: it goes on
}

// The kinds of bands.
const (
	bandStep  = "step"
	bandPause = "pause"
	bandHalt  = "halt"
)

// maxPoints is about the number of points that a timeline has until the rollout is complete, and again after that.
const maxPoints = 200

// courseNode is when the revision came to a node, and what became of it. Zero times are not known.
type courseNode struct {
	Assigned, Ended time.Time
	State           rollout.State // Updated, Failed, or any other: not decided
}

// courseNodeOf returns the times of a node. ok is false if it never had the revision. state is that of the plan; nil: it is not
// known, and the NodeConfig decides.
func courseNodeOf(r *v1alpha1.NodeConfigRollout, nc *v1alpha1.NodeConfig, state *rollout.State) (n courseNode, ok bool) {
	u := r.Status.UpdateRevision
	if u == nil {
		return n, false
	}
	var has bool
	if s := nc.Spec.ConfigSource; s != nil && s.RolloutRef != nil && s.RolloutRef.Name == r.Name {
		// A node that has the content with an earlier number, as after an undo, is not assigned it again.
		has, n.Assigned = s.RolloutRef.Revision == u.Number ||
			s.ConfigMapRef != nil && s.ConfigMapRef.SHA256 == u.ConfigMapRef.SHA256, s.RolloutRef.AssignedAt.Time
	}
	st := &nc.Status
	bad := slices.IndexFunc(st.BadConfigs, func(b v1alpha1.BadConfig) bool { return b.UID == u.ConfigMapRef.UID })
	c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionConfigOK)
	switch {
	case state != nil && (has || *state == rollout.Failed):
		n.State = *state
	case has && c != nil && c.Status == metav1.ConditionTrue && st.Trial == nil && st.Active != nil && st.Active.UID == u.ConfigMapRef.UID:
		n.State = rollout.Updated // perhaps it failed with other values
	case bad >= 0:
		n.State = rollout.Failed
	case !has:
		return n, false
	case c != nil && c.Status == metav1.ConditionFalse && !describe.AboutPods(c.Reason):
		n.State = rollout.Failed
	}
	switch n.State {
	case rollout.Updated:
		o := fleet.ObservationOf(nc)
		switch good := st.LastKnownGood; {
		case o.Rollout == r.Name && o.Revision == u.Number && !o.HealthySince.IsZero(): // the controller's clock
			n.Ended = o.HealthySince.Add(time.Duration(r.Spec.SoakSeconds) * time.Second)
		case good != nil && good.Since != nil:
			n.Ended = good.Since.Time
		}
	case rollout.Failed:
		switch {
		case bad >= 0 && st.BadConfigs[bad].Time != nil:
			n.Ended = st.BadConfigs[bad].Time.Time
		case c != nil && c.Status == metav1.ConditionFalse:
			n.Ended = c.LastTransitionTime.Time
		}
	}
	return n, true
}

// clampTime returns t, but not before from and not after to. A time that is not known becomes unknown.
func clampTime(t, from, to, unknown time.Time) time.Time {
	if t.IsZero() {
		t = unknown
	}
	if t.After(to) {
		t = to
	}
	if t.Before(from) {
		t = from
	}
	return t
}

// courseOf returns the course of a rollout with these nodes, of which total belong to it.
func courseOf(r *v1alpha1.NodeConfigRollout, nodes []courseNode, total int, now time.Time) course {
	st := &r.Status
	t := course{Now: now.UTC(), Total: total, Start: now.UTC(), Points: []coursePoint{}, Bands: []courseBand{}}
	if st.UpdateRevision == nil || st.StartTime == nil {
		t.Note = "the rollout has no revision yet"
		return t
	}
	t.Start = clampTime(st.StartTime.Time, time.Time{}, now, now).UTC()
	unknown := now // a time that no node reports: the stop is later than what caused it
	if st.Halt != nil {
		unknown = clampTime(st.Halt.Time.Time, t.Start, now, now)
	}
	nodes = slices.Clone(nodes)
	for i := range nodes {
		n := &nodes[i]
		n.Assigned = clampTime(n.Assigned, t.Start, now, t.Start)
		n.Ended = clampTime(n.Ended, n.Assigned, now, unknown)
	}
	t.addBands(r, nodes, now)
	t.addPoints(nodes, now)
	t.addCounted(st, now)
	return t
}

// addPoints counts nodes over time.
func (t *course) addPoints(nodes []courseNode, now time.Time) {
	var ended []courseNode
	for _, n := range nodes {
		if n.State == rollout.Updated || n.State == rollout.Failed {
			ended = append(ended, n)
		}
	}
	slices.SortFunc(ended, func(a, b courseNode) int { return a.Ended.Compare(b.Ended) })
	point := coursePoint{T: t.Start}
	t.Points = append(t.Points, point)
	end := now
	if t.End != nil { // nodes that join later must not make the course coarse
		end = *t.End
	}
	bucketOf := func(at time.Time) time.Duration {
		if at.After(end) {
			return maxPoints + 1 + at.Sub(end)/max(now.Sub(end)/maxPoints, 1)
		}
		return at.Sub(t.Start) / max(end.Sub(t.Start)/maxPoints, 1)
	}
	for i, n := range ended {
		if n.State == rollout.Updated {
			point.Updated++
		} else {
			point.Failed++
		}
		point.T = n.Ended.UTC()
		if i+1 < len(ended) && bucketOf(ended[i+1].Ended) == bucketOf(n.Ended) {
			continue // the last one of a bucket stands for all
		}
		t.Points = append(t.Points, point)
	}
	point.T = now.UTC()
	t.Points = append(t.Points, point)
}

// addBands adds the steps that have begun, pauses, and the stop. The status has the begin of the present step; those of earlier steps
// are derived from the times at which nodes were assigned the revision and finished.
func (t *course) addBands(r *v1alpha1.NodeConfigRollout, nodes []courseNode, now time.Time) {
	st := &r.Status
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionProgressing); c != nil && (r.Spec.Paused || r.Spec.Frozen) &&
		c.Status == metav1.ConditionFalse {
		label := printable.Line(strings.TrimSuffix("paused: "+cmp.Or(r.Spec.PausedReason, r.Spec.FrozenReason), ": "))
		t.Bands = append(t.Bands, courseBand{Kind: bandPause, Label: label,
			From: clampTime(c.LastTransitionTime.Time, t.Start, now, now).UTC()})
	}
	var stopped *time.Time
	if h := st.Halt; h != nil {
		stopped = new(clampTime(h.Time.Time, t.Start, now, now).UTC())
		t.Bands = append(t.Bands, courseBand{Kind: bandHalt, Label: h.Reason, From: *stopped})
	}
	steps, err := describe.StepsOf(r)
	if err != nil {
		t.Note = err.Error()
		return
	}
	current := min(max(int(st.Step), 0), len(steps))
	begins := beginsOf(steps[:current], t, nodes, st)
	for i := range min(current+1, len(steps)) {
		band := courseBand{Kind: bandStep, Label: describe.StepWords(steps[i]), From: begins[i].UTC()}
		if steps[i].Pause != nil {
			band.Kind = bandPause
		}
		if i < current {
			band.To = new(begins[i+1].UTC())
		} else {
			band.To = stopped
		}
		if band.To == nil || band.To.After(band.From) || i == current {
			t.Bands = append(t.Bands, band)
		}
	}
	if current == len(steps) {
		t.addRest(st, begins[current], stopped)
	}
	slices.SortStableFunc(t.Bands, func(a, b courseBand) int { return a.From.Compare(b.From) })
}

// addRest adds the time after the steps. An approval passes all of them at once, long before all nodes are updated.
func (t *course) addRest(st *v1alpha1.NodeConfigRolloutStatus, passed time.Time, stopped *time.Time) {
	band := courseBand{Kind: bandStep, Label: "all nodes", From: passed.UTC(), To: stopped}
	for _, o := range st.History { // a stop after it was complete replaces this outcome
		if o.Revision == st.Target() && o.Outcome == v1alpha1.OutcomeSucceeded && o.EndTime != nil {
			t.End = new(clampTime(o.EndTime.Time, passed, t.Now, passed).UTC())
			band.To = t.End
		}
	}
	if band.To == nil || band.To.After(band.From) {
		t.Bands = append(t.Bands, band)
	}
}

// beginsOf returns when each of these finished steps began, and when the last one ended. The times never go back.
func beginsOf(done []v1alpha1.RolloutStep, t *course, nodes []courseNode, st *v1alpha1.NodeConfigRolloutStatus) []time.Time {
	var end time.Time // of the last of them
	if st.StepTime != nil {
		end = st.StepTime.Time
	}
	end = clampTime(end, t.Start, t.Now, t.Now)
	byAssignment := slices.SortedFunc(slices.Values(nodes), func(a, b courseNode) int { return a.Assigned.Compare(b.Assigned) })
	begins := []time.Time{t.Start}
	before := 0 // nodes of the steps before
	for i, s := range done {
		// The end of a step of nodes is when the last of its nodes finished; a pause ends when the next node is assigned.
		var ends time.Time
		switch {
		case i == len(done)-1:
			ends = end
		case s.Pause == nil:
			before = min(max(before, int(rollout.RoundUp(s.Nodes, int32(t.Total)))), len(byAssignment))
			for _, n := range byAssignment[:before] {
				if n.State == rollout.Updated || n.State == rollout.Failed {
					ends = rollout.Latest(ends, n.Ended)
				}
			}
			if next := assignedAfter(byAssignment, before); !next.IsZero() && next.Before(ends) {
				ends = next // a node that failed or was renewed later is not what the step waited for
			}
		default:
			ends = assignedAfter(byAssignment, before)
		}
		begins = append(begins, clampTime(ends, begins[i], end, begins[i]))
	}
	if len(done) == 0 {
		return []time.Time{end}
	}
	return begins
}

// assignedAfter returns when the node after so many was assigned the revision; zero if none was.
func assignedAfter(byAssignment []courseNode, n int) time.Time {
	if n >= len(byAssignment) {
		return time.Time{}
	}
	return byAssignment[n].Assigned
}

// addCounted adds what is only known as numbers, because the nodes have left the revision.
func (t *course) addCounted(st *v1alpha1.NodeConfigRolloutStatus, now time.Time) {
	i := slices.IndexFunc(st.History, func(o v1alpha1.RolloutOutcome) bool { return o.Revision == st.Target() })
	last := &t.Points[len(t.Points)-1]
	if i < 0 || st.Halt == nil || !st.Halt.Rollback {
		return
	}
	o := st.History[i]
	updated, failed := max(int(o.Updated), 0), max(int(o.Failed), 0)
	if updated == 0 && failed == last.Failed {
		return
	}
	at := clampTime(st.Halt.Time.Time, t.Start, now, now).UTC()
	t.Points = slices.DeleteFunc(t.Points, func(p coursePoint) bool { return p.T.After(at) })
	t.Points = append(t.Points, coursePoint{at, updated, failed}, coursePoint{now.UTC(), 0, failed})
	t.Note = cmp.Or(t.Note, fmt.Sprintf("%s rolled back: when each of them was updated is no longer known", printable.Count(updated, "node")))
}
