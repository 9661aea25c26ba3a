// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"sort"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Model describes how simulated nodes behave. The behaviour of a node is drawn
// from Seed and its name: silent, broken, failing or healthy, with these
// probabilities from 0 to 1.
type Model struct {
	Seed   uint64
	TakeUp time.Duration // from a write of the NodeConfig to the agent's answer
	Trial  time.Duration // how long a trial takes
	Fail   time.Duration // from the start of a trial to the failure

	Silent  float64 // the agent never answers
	Blocked float64 // the guards always refuse the target because of pods
	Breaks  float64 // NotReady during the target's trial, until another configuration is assigned
	Failing float64 // the target's trial fails

	Drain      time.Duration // how long the drain of a node takes
	StuckDrain float64       // the drain of the node never ends; independent of the other probabilities

	Approve bool          // approve each step that waits for approval
	Limit   time.Duration // of simulated time; 0: none
	// Interrupted, if not nil, reports whether to end the simulation. It is
	// called before each plan.
	Interrupted func() bool
}

// Run is the result of a simulation.
type Run struct {
	Start   time.Time
	End     time.Time
	Samples []Sample // one for each change, oldest first
	Batches []Batch
	Stopped *Sample // when the target was stopped; nil: it was not
	Final   Result
	Nodes   []Node // at the end
	Touched int    // nodes that were assigned the target
	Asked   int    // nodes that were asked about the target before the first restart
	// Approvals is how many steps were approved.
	Approvals int
	Limited   bool // the simulation was ended early
}

// Sample is the state of a rollout at a time.
type Sample struct {
	At     time.Time
	Phase  v1alpha1.RolloutPhase
	Step   int32
	Counts Counts
}

// Batch is a group of nodes that are written at the same time.
type Batch struct {
	At    time.Time
	Step  int32
	Kind  MoveKind
	Nodes []int // indexes, in their order
}

// maxIdlePlans limits plans in a row without a change.
const maxIdlePlans = 100

// Simulate plays a rollout with simulated nodes and gates that pass, from
// in.Now until it is complete, is stopped and rolled back, waits for a person,
// or nothing changes any more. It is deterministic, and does not change nodes.
//
// An agent that has never reported is silent. Nodes on trial start the trial
// again, and so do nodes that are being drained.
func Simulate(in Input, nodes []Node, m Model) Run {
	s := simulation{
		model: m, in: in,
		run:    Run{Start: in.Now, Nodes: slices.Clone(nodes)},
		agents: make([]agentModel, len(nodes)), assigned: map[int]bool{},
	}
	s.in.ControlPlanes = nil         // control planes of others settle
	s.in.Controller.StartProbe = nil // start probes pass, within the trial
	s.in.Spec.Strategy.Gates = slices.Clone(in.Spec.Strategy.Gates)
	for i := range s.in.Spec.Strategy.Gates {
		s.in.Spec.Strategy.Gates[i].Interval = &metav1.Duration{Duration: 24 * time.Hour} // gates pass: only those at the end of a step matter
	}

	for i := range s.run.Nodes {
		n := &s.run.Nodes[i]
		s.agents[i] = agentModel{fate: m.fateOf(n), proven: []string{n.LastKnownGood.Digest()}}
		if n.Observed == n.Generation {
			s.agents[i].accepted = keyOf(n.Source)
		} else {
			s.schedule(i, accepts, m.TakeUp)
		}

		if n.InTrial {
			s.beginTrial(i)
		}
		if n.Drain.Rollout == in.DrainID && in.DrainID != "" {
			s.beginDrain(i)
		}
	}

	for s.step() {
	}
	s.run.End = s.in.Now

	return s.run
}

// fate is how a node behaves.
type fate uint8

const (
	healthy fate = iota
	silent
	breaks
	fails
	blocks
)

// draw returns a number from 0 to 1 for a name.
func (m Model) draw(name string) float64 {
	h := fnv.New64a()
	h.Write(binary.LittleEndian.AppendUint64(nil, m.Seed))
	h.Write([]byte(name))
	x := h.Sum64() // its high bits are alike for names that are
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	x ^= x >> 33

	return float64(x>>11) / (1 << 53)
}

func (m Model) fateOf(n *Node) fate {
	switch drawn := m.draw(n.Name); {
	case n.HasConfig && !n.Reported || !n.HasConfig || drawn < m.Silent:
		return silent
	case n.refuses() || !n.Observation.Blocked.IsZero() || drawn >= 1-m.Blocked:
		return blocks
	case drawn < m.Silent+m.Breaks:
		return breaks
	case drawn < m.Silent+m.Breaks+m.Failing:
		return fails
	}

	return healthy
}

// sourceKey identifies an assignment, as an agent does.
type sourceKey struct {
	uid     types.UID
	attempt int64
}

func keyOf(s *v1alpha1.NodeConfigSource) sourceKey { return sourceKey{s.Content().UID, s.By().Attempt} }

// agentModel is the state of a node's agent that the node does not report.
type agentModel struct {
	fate     fate
	accepted sourceKey
	drained  bool     // its pods are gone, and new ones are kept away
	trial    int      // counts trials, so that what was to happen in an earlier one does not
	proven   []string // payloads that were last-known-good
}

type eventKind uint8

const (
	accepts eventKind = iota
	endsTrial
	endsDrain
	answersPreflight
)

type event struct {
	at   time.Time
	node int
	kind eventKind
	// of is the generation that is adopted, the trial that ends, or the start
	// of the drain that ends.
	of int64
}

type simulation struct {
	model    Model
	in       Input // its Now is the simulated time
	run      Run
	agents   []agentModel
	events   []event      // the next first
	assigned map[int]bool // nodes that were assigned the target
	idle     int
}

// step plans once, makes the moves, and advances to the next event. It reports
// whether there is one.
func (s *simulation) step() bool {
	if s.model.Interrupted != nil && s.model.Interrupted() {
		s.run.Limited = true
		return false
	}

	r := Plan(s.in, s.run.Nodes)
	for i, o := range r.Observations {
		s.run.Nodes[i].Observation = o
	}

	s.run.Asked += len(r.Ask)
	for _, i := range r.Ask {
		p := &s.run.Nodes[i].Preflight
		p.Asked, p.AskedAt = PreflightUID(s.in.UID, s.in.Target.Number, r.Next.Attempt), s.in.Now
		s.schedule(i, answersPreflight, s.model.TakeUp)
	}

	changed := s.addSample(r)
	s.in.Status, s.in.GatesSince, s.run.Final = r.Next, r.GatesSince, r
	s.evict(r)
	s.measure(r.Measure)
	if len(r.Moves)+len(r.Taints) > 0 {
		s.move(r)
		s.taint(r)
		return true
	}

	if len(r.Measure) > 0 {
		return true
	}

	if r.Next.Phase == v1alpha1.RolloutAwaitingApproval && s.model.Approve {
		approval := v1alpha1.RolloutApproval{Revision: s.in.Target.Number, Step: r.Next.Step}
		if a := s.in.Spec.Approval; a == nil || *a != approval {
			s.in.Spec.Approval = &approval
			s.run.Approvals++
			return true
		}
	}

	if len(s.events) == 0 && settled(r) {
		return false
	}
	if s.idle++; changed || len(s.events) > 0 {
		s.idle = 0
	}

	return s.advance(r.RequeueAfter)
}

// measure answers the queries of gates: all of them pass.
func (s *simulation) measure(gates []string) {
	for _, g := range s.in.Spec.Strategy.Gates {
		if !slices.Contains(gates, g.Name) {
			continue
		}

		passes, _ := ComparisonOf(g.Prometheus.Passes)
		others := slices.DeleteFunc(slices.Clone(s.in.Measurements), func(m Measurement) bool { return m.Gate == g.Name })
		s.in.Measurements = append(others, Measurement{
			Gate: g.Name, Server: g.Prometheus.Server, Query: g.Prometheus.Query, Time: s.in.Now.Truncate(time.Second), Value: passes.example(),
		})
	}
}

// settled reports whether a rollout makes no more progress by itself when all
// nodes are idle.
func settled(r Result) bool {
	c := r.Counts
	return r.RequeueAfter == 0 || c.Blocked > 0 && c.Pending+c.Assigned+c.Trial+c.Soaking+c.Draining == 0 ||
		r.Next.Phase == v1alpha1.RolloutComplete || r.Next.Phase == v1alpha1.RolloutAwaitingApproval || r.Next.Phase == v1alpha1.RolloutStuck ||
		r.Next.Halt != nil && r.Counts.RollingBack == 0
}

// advance moves the time to the next event or the requested plan.
func (s *simulation) advance(wake time.Duration) bool {
	now := s.in.Now
	next := now.Add(wake)
	if len(s.events) > 0 && (wake == 0 || s.events[0].at.Before(next)) {
		next = s.events[0].at
	}

	if s.idle == maxIdlePlans || s.model.Limit > 0 && next.Sub(s.run.Start) > s.model.Limit {
		s.run.Limited = true
		return false
	}

	s.in.Now = next
	for len(s.events) > 0 && !s.events[0].at.After(next) {
		e := s.events[0]
		s.events = s.events[1:]
		s.handle(e)
	}

	return true
}

// addSample takes a sample if something has changed since the last one, and
// reports whether more than the phase has: the phase changes whenever a window
// opens or closes.
func (s *simulation) addSample(r Result) (changed bool) {
	sample := Sample{At: s.in.Now, Phase: r.Next.Phase, Step: r.Next.Step, Counts: r.Counts}
	if s.run.Stopped == nil && r.Next.Halt != nil {
		s.run.Stopped = new(sample)
	}

	all := &s.run.Samples
	if len(*all) > 0 {
		last := &(*all)[len(*all)-1]
		changed = last.Step != sample.Step || last.Counts != sample.Counts
		if !changed && last.Phase == sample.Phase {
			return false
		}

		if last.At.Equal(sample.At) {
			*last = sample
			return changed
		}
	}

	*all = append(*all, sample)

	return changed || len(*all) == 1
}

// move makes the moves of a plan.
func (s *simulation) move(r Result) {
	for _, move := range r.Moves {
		n := &s.run.Nodes[move.Node]
		n.HasConfig, n.Source, n.Revoked = true, move.Source, move.Revoked
		n.Generation++
		s.schedule(move.Node, accepts, s.model.TakeUp)
		if s.hasTarget(n) && !s.assigned[move.Node] {
			s.assigned[move.Node] = true
			s.run.Touched++
		}

		batch := len(s.run.Batches) - 1
		if batch < 0 || !s.run.Batches[batch].At.Equal(s.in.Now) || s.run.Batches[batch].Kind != move.Kind ||
			s.run.Batches[batch].Step != r.Next.Step {
			s.run.Batches = append(s.run.Batches, Batch{At: s.in.Now, Step: r.Next.Step, Kind: move.Kind})
			batch++
		}

		s.run.Batches[batch].Nodes = append(s.run.Batches[batch].Nodes, move.Node)
	}
}

func (s *simulation) hasTarget(n *Node) bool {
	return isConfigMap(n.Source) && n.Source.Content().SHA256 == s.in.Target.ConfigMapRef.SHA256
}

func (s *simulation) schedule(i int, kind eventKind, after time.Duration) {
	e := event{at: s.in.Now.Add(after), node: i, kind: kind, of: s.run.Nodes[i].Generation}
	switch kind {
	case endsTrial:
		e.of = int64(s.agents[i].trial)
	case endsDrain:
		e.of = s.run.Nodes[i].Drain.Since.UnixNano()
	}

	if s.agents[i].fate != silent || kind == endsDrain {
		behind := sort.Search(len(s.events), func(k int) bool { return s.events[k].at.After(e.at) }) // what happens at the same time
		s.events = slices.Insert(s.events, behind, e)
	}
}

func (s *simulation) handle(e event) {
	n, a := &s.run.Nodes[e.node], &s.agents[e.node]
	was := n.Unsettled()
	switch {
	case e.kind == accepts && e.of == n.Generation:
		s.accept(e.node)
	case e.kind == answersPreflight:
		s.answerPreflight(n, a)
	case e.kind == endsTrial && e.of == int64(a.trial) && n.InTrial:
		s.endTrial(e.node)
	case e.kind == endsDrain && e.of == n.Drain.Since.UnixNano():
		s.endDrain(e.node)
	}

	if was != "" && n.Unsettled() == "" {
		n.SettledAt = s.in.Now
	}
}

// accept is an agent's answer to its NodeConfig.
func (s *simulation) accept(i int) {
	n, a := &s.run.Nodes[i], &s.agents[i]
	n.Observed, n.Reported = n.Generation, true
	if a.accepted == keyOf(n.Source) {
		return
	}

	a.accepted = keyOf(n.Source)
	if s.hasTarget(n) && a.fate == blocks && !a.drained && n.Active.Digest() != n.Source.Content().SHA256 {
		n.OK, n.Reason, n.Error = "False", v1alpha1.ReasonWouldEvictPods, "the simulated node has too many pods for the target"
		return
	}

	var active *v1alpha1.ConfigRevision
	if has := n.Source.Content(); isConfigMap(n.Source) {
		active = &v1alpha1.ConfigRevision{UID: has.UID, SHA256: has.SHA256}
	}

	a.trial++
	n.InTrial, n.Provisional, n.Error = false, false, ""
	if !n.Ready && a.fate == breaks && !s.hasTarget(n) {
		n.Ready = true
	}

	n.Active = active
	n.OK, n.Reason = "True", v1alpha1.ReasonAllChecksPassed
	if active == nil || slices.Contains(a.proven, active.SHA256) {
		s.promote(i)
		return
	}

	s.beginTrial(i)
}

// answerPreflight is an agent's answer to a preflight request. Failures of the
// model happen only in trials.
func (s *simulation) answerPreflight(n *Node, a *agentModel) {
	p := &n.Preflight
	p.Answered, p.Verdict, p.Reason, p.Message = p.Asked, v1alpha1.PreflightAccepted, "", ""
	if a.fate == blocks {
		p.Verdict, p.Reason, p.Message = v1alpha1.PreflightRefused, v1alpha1.ReasonWouldEvictPods, "the simulated node has too many pods for "+
			"the target"
	}
}

func (s *simulation) beginTrial(i int) {
	n, a := &s.run.Nodes[i], &s.agents[i]
	n.InTrial, n.TrialLength = true, s.model.Trial
	after := s.model.Trial
	if s.hasTarget(n) && (a.fate == fails || a.fate == breaks) {
		after = min(after, s.model.Fail)
	}

	s.schedule(i, endsTrial, after)
}

func (s *simulation) endTrial(i int) {
	n, a := &s.run.Nodes[i], &s.agents[i]
	switch {
	case s.hasTarget(n) && a.fate == breaks:
		n.Ready, n.WentNotReady = false, s.in.Now
	case s.hasTarget(n) && a.fate == fails:
		n.InTrial, n.Active = false, n.LastKnownGood
		n.OK, n.Reason, n.Error = "False", v1alpha1.ReasonCrashLooped, "the simulated kubelet crash-looped"
	default:
		s.promote(i)
	}
}

// promote makes the running configuration last-known-good.
func (s *simulation) promote(i int) {
	n, a := &s.run.Nodes[i], &s.agents[i]
	n.InTrial = false
	n.LastKnownGood = n.Active
	if !slices.Contains(a.proven, n.Active.Digest()) {
		a.proven = append(a.proven, n.Active.Digest())
	}
}

// taint begins and ends drains.
func (s *simulation) taint(r Result) {
	for _, t := range r.Taints {
		n := &s.run.Nodes[t.Node]
		begins := !t.Drain.Since.Equal(n.Drain.Since)
		n.Drain = t.Drain
		if begins {
			n.DrainReport, s.agents[t.Node].drained = nil, false
		}
		if begins && n.Drain.Rollout != "" {
			s.beginDrain(t.Node)
		}
	}
}

func (s *simulation) beginDrain(i int) {
	n := &s.run.Nodes[i]
	n.DrainReport = nil
	if s.model.draw(n.Name+" drain") >= s.model.StuckDrain {
		s.schedule(i, endsDrain, s.model.Drain)
	}
}

// evict reports pods on the nodes that are being drained. The reports have
// times in the future, so that a plan asks for no other eviction pass before
// the drain ends or is given up.
func (s *simulation) evict(r Result) {
	for _, i := range r.Evict {
		n := &s.run.Nodes[i]
		report := DrainReport{Time: n.Drain.Since.Add(seconds(s.in.Spec.Strategy.DrainOptions.TimeoutSeconds))}
		if !s.agents[i].drained {
			report.Left, report.Waiting = 1, "the simulated node's last pod does not end"
		}

		n.DrainReport = &report
	}
}

// endDrain removes the last pod of a node. An agent that refused the target
// because of its pods adopts it.
func (s *simulation) endDrain(i int) {
	n, a := &s.run.Nodes[i], &s.agents[i]
	a.drained, n.DrainReport = true, &DrainReport{Time: s.in.Now}
	if n.refuses() {
		a.accepted = sourceKey{}
		s.schedule(i, accepts, s.model.TakeUp)
	}
}
