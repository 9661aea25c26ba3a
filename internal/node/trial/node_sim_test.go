// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// epoch is the time at which every history begins.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// nodeSim simulates the agent and its node: it observes, decides, saves and
// acts. A test sets the outside world by plain fields. nodeSim checks each
// decision for properties that always hold.
type nodeSim struct {
	t assert.T

	// State that outlives the agent.
	disk       disk
	diskFails  string // why nothing can be saved
	boot       int
	version    string
	clockJumps time.Duration

	// The outside world.
	limits          Limits
	local           LocalConfig
	digest          string // of the local configuration
	intent          Intent
	revoked         *[]types.UID
	dryRuns         map[string]Verdict // the results of dry runs; accepted if missing
	node            Node
	healthy         bool              // whether a running kubelet is healthy
	lastErrors      string            // that the kubelet logs before an exit
	unhealthyConfig func(Config) bool // configurations with which a kubelet is never healthy; nil: none
	neverRenews     func(Config) bool // configurations with which a kubelet renews its Lease at its start only; nil: none
	waiting         bool
	validationHangs bool // dry runs do not end
	validationTakes time.Duration
	bootIDUnknown   bool   // the boot ID cannot be read
	compares        bool   // payloads are compared with the local configuration, which must be valid for that
	fileVersion     string // of the kubelet's file, which may have been replaced while a kubelet runs
	file            int    // changes with each replacement
	tearDisk        func(steps int) int

	// The agent; reset when it dies.
	up       bool
	state    State
	verdicts map[string]Verdict
	basis    map[string]string // by revision: the files that the verdict was found with; nil: verdicts are not renewed
	examined int               // the kubelet's file that the agent knows
	stopped  int               // how often a kubelet was only stopped, because its file had been replaced
	child    Child
	forget   []string
	storage  string
	saved    bool          // the last decision is on disk
	retryAt  time.Duration // the clock when the next write is tried
	last     Decision
	refused  bool
	counted  time.Duration // the clock when a validation read the Node last; negative: never

	renewed time.Duration // the clock when the kubelet renewed its Lease last
	clock   time.Duration // monotonic, since the begin of the history
	decided time.Duration // the clock at the last decision

	steps           int
	trace           []string
	described       []string                                   // what a transcript printed last
	onDecision      func(before State, o Observed, d Decision) // called with each decision
	dieBeforeActing func() bool                                // reports whether the agent dies after saving and before acting
}

// disk is what was saved: files for all versions, and those of each version.
type disk struct {
	current, lastKnownGood AdoptedConfig
	revoked                []types.UID
	temporary              *Temporary
	versions               map[string]versionRecords
}

type versionRecords struct {
	bad      []BadConfig
	startups []time.Time
	promoted []Promotion
	trial    *Trial
}

// newConfig returns a configuration of an object with this UID.
func newConfig(uid, payload string) Config {
	return Config{Revision: uid, ConfigRevision: v1alpha1.ConfigRevision{UID: types.UID(uid), SHA256: payload}}
}

func newNodeSim(t assert.T) *nodeSim {
	return &nodeSim{
		t: t, local: LocalInit, digest: "local-1", version: "v1", boot: 1, disk: disk{versions: map[string]versionRecords{}},
		intent: Intent{Kind: Nil}, dryRuns: map[string]Verdict{}, node: Node{API: true, Ready: true},
		limits: Limits{TrialDuration: 10 * time.Minute, CrashLoopThreshold: 3, HealthTimeout: 2 * time.Minute, ReadyTimeout: 2 * time.Minute},
	}
}

// revoke makes these the revoked objects.
func (n *nodeSim) revoke(uids ...types.UID) {
	uids = append([]types.UID{}, uids...)
	n.revoked = &uids
}

// persist writes the state in the order of package checkpoint, or only the
// first files if a write is lost.
func (n *nodeSim) persist(s State) {
	v := n.disk.versions[n.version]
	writes := []func(){
		func() { n.disk.revoked = s.Revoked },
		func() { n.disk.temporary = s.Temporary },
		func() { n.disk.current = s.Current },
		func() { v.bad = s.Bad },
		func() { v.promoted = s.Promoted },
		func() { n.disk.lastKnownGood = s.LastKnownGood },
		func() { v.startups = s.Startups },
		func() { v.trial = s.Trial },
	}
	if n.tearDisk != nil {
		writes = writes[:n.tearDisk(len(writes))]
	}

	for _, write := range writes {
		write()
	}

	n.disk.versions[n.version] = v
}

func (n *nodeSim) load() State {
	v := n.disk.versions[n.version]
	return State{
		Current: n.disk.current, LastKnownGood: n.disk.lastKnownGood, Revoked: n.disk.revoked, Temporary: n.disk.temporary,
		Bad: v.bad, Startups: v.startups, Promoted: v.promoted, Trial: v.trial,
	}.deepCopy()
}

// start starts the agent if it does not run.
func (n *nodeSim) start() {
	if n.up {
		return
	}

	n.up, n.refused = true, false
	n.clock += time.Millisecond
	if n.examined != n.file {
		n.version, n.examined = n.fileVersion, n.file
	}

	n.state, n.verdicts, n.child, n.last = n.load(), map[string]Verdict{}, Child{}, Decision{}
	n.decided, n.counted = n.clock, -1
	n.converge()
}

// kill ends the agent and its kubelet.
func (n *nodeSim) kill() {
	n.up, n.child, n.storage, n.saved, n.state, n.last = false, Child{}, "", false, State{}, Decision{}
}

// sigterm ends them cleanly.
func (n *nodeSim) sigterm() {
	if n.up && n.diskFails == "" {
		before := n.state.deepCopy()
		clean := CleanShutdown(n.state)
		n.must(reflect.DeepEqual(before, n.state), "CleanShutdown modified the state handed to it")
		n.persist(clean)
	}

	n.kill()
}

func (n *nodeSim) bootID() string {
	if n.bootIDUnknown {
		return ""
	}

	return fmt.Sprintf("boot-%d", n.boot)
}

// replaced ends the kubelet and replaces its binary: the agent continues with
// the state of the new version.
func (n *nodeSim) replaced(version string) {
	if n.version == version || n.diskFails != "" {
		return
	}

	n.persist(CleanShutdown(n.state))
	n.clock += time.Millisecond // no two trials begin at the same instant, also not of two versions
	n.version = version
	run := n.state.Run.ForNewVersion()
	n.state = n.load()
	n.state.Run, n.verdicts = run, map[string]Verdict{}
	n.child = Child{}
}

// replaceFile replaces the kubelet's file, while the kubelet runs on.
func (n *nodeSim) replaceFile(version string) {
	n.file++
	n.fileVersion = version
}

// examine takes over a file that was replaced, when no kubelet runs. The
// records of a new version may not be readable.
func (n *nodeSim) examine() {
	if n.examined == n.file || n.fileVersion != n.version && n.diskFails != "" {
		return
	}

	n.replaced(n.fileVersion)
	n.examined, n.verdicts = n.file, map[string]Verdict{}
}

// files identifies what a verdict depends on besides the configuration.
func (n *nodeSim) files() string { return fmt.Sprint(n.file, n.digest) }

// renew drops verdicts that were found with other files, if something may be
// started soon, as the agent does.
func (n *nodeSim) renew(o *Observed) {
	if d := Decide(n.state, *o); n.basis == nil || !n.mayStart() && d.Action.Kind == None && d.Ask == nil {
		return
	}

	maps.DeleteFunc(n.verdicts, func(revision string, _ Verdict) bool { return n.basis[revision] != n.files() })
	o.Verdicts = maps.Clone(n.verdicts)
}

func (n *nodeSim) mayStart() bool {
	return !n.child.Alive || n.state.Trial != nil || n.last.Status.Condition.Status != "True" || n.intent.Kind == Assigned && n.state.Run.Config.Revision != n.intent.Config.Revision
}

// dryRun returns what the kubelet's file says about a configuration now.
func (n *nodeSim) dryRun(c Config) Verdict {
	v, ok := n.dryRuns[c.Revision]
	if !ok {
		v.Outcome = Accepted
	}
	if local := n.dryRuns[""]; c.IsLocal() || n.basis == nil || local.Outcome != Rejected || v.Outcome == Rejected || !n.compares && !c.Dropin {
		return v
	}

	v = Verdict{Outcome: Refused, Guard: v1alpha1.ReasonLocalInvalid}
	if c.Dropin {
		v.Outcome = CouldNotTell
	}
	if n.verdicts[""].Outcome != Rejected {
		v.Guard = "" // it is not known why
	}

	return v
}

// nodeMonitorGracePeriod is for how long the control plane calls a node Ready
// whose kubelet does not renew its Lease.
const nodeMonitorGracePeriod = 40 * time.Second

// snapshotLifetime is how long an agent uses what it read of the Node for a
// validation.
const snapshotLifetime = 2 * time.Minute

func (n *nodeSim) observe() Observed {
	if n.child.Alive {
		unhealthyConfig := n.unhealthyConfig != nil && n.unhealthyConfig(n.state.Run.Config)
		n.child.Healthy, n.child.Waiting = n.healthy && !n.waiting && !unhealthyConfig, n.waiting
	}

	storage := n.storage
	if n.clock >= n.retryAt {
		storage = ""
	}

	node := n.node
	if n.child.Alive && (n.neverRenews == nil || !n.neverRenews(n.state.Run.Config)) {
		n.renewed = n.clock
	}

	node.Ready = node.Ready && n.clock-n.renewed <= nodeMonitorGracePeriod
	if !n.last.Watch && (n.counted < 0 || n.clock-n.counted > snapshotLifetime) {
		node = Node{RuntimeDown: node.RuntimeDown, ShuttingDown: node.ShuttingDown, RefusedUnseen: len(node.Refused) > 0} // nobody looks at the Node
	}

	o := Observed{
		Now: epoch.Add(n.clock + n.clockJumps), Elapsed: n.clock - n.decided, BootID: n.bootID(),
		Limits: n.limits, Local: n.local, LocalDigest: n.digest, Intent: n.intent, Verdicts: maps.Clone(n.verdicts), Child: n.child, Node: node,
		Revoked: n.revoked, Forget: n.forget, Storage: storage,
	}
	n.renew(&o)

	return o
}

// save saves a state if it differs from the last saved one. It returns false if
// the disk fails.
func (n *nodeSim) save(next State) bool {
	if n.diskFails == "" {
		n.persist(next)
		n.storage, n.saved = "", true
		return true
	}

	if next.Run = (Run{}); n.saved && reflect.DeepEqual(next, n.load()) {
		return true
	}

	n.storage, n.saved, n.retryAt = n.diskFails, false, n.clock+10*time.Second

	return false
}

// decide makes one decision, saves it, and carries it out.
func (n *nodeSim) decide() {
	o := n.observe()
	d := n.ask(n.state, o)
	if !n.save(d.Next) && n.state.MustPersist(d.Next) {
		o.Storage = n.storage
		d = n.ask(n.state, o)
		n.must(d.Next.Current.Revision == n.state.Current.Revision, "adopted %v, which cannot be recorded", d.Next.Current)
		n.save(d.Next)
	}

	before := n.state
	n.decided, n.state, n.last = n.clock, d.Next, d
	if t := d.Next.Trial; t != nil && (before.Trial == nil || !t.StartTime.Equal(before.Trial.StartTime)) {
		n.node.LostPods = nil // those that run at adoption count from now
	}

	n.child.Exited, n.forget = false, nil
	for _, e := range d.Events {
		mark := "event"
		if e.Warning {
			mark = "warning"
		}

		n.note("%s %s: %s", mark, e.Reason, e.Message)
	}

	if n.onDecision != nil {
		n.onDecision(before, o, d)
	}

	if n.dieBeforeActing != nil && n.dieBeforeActing() {
		n.kill()
		return
	}

	if n.carryOut(d); d.Action.Kind == Restart && !n.child.Alive {
		return // the next decision starts one
	}

	// The start may make a verdict unnecessary, and the trial of what no longer
	// ends by itself passes in the next decision.
	permanent := before.Temporary != nil && n.state.Temporary == nil
	if n.up && !permanent && (d.Action.Kind == None || len(d.Validate) == 0) {
		n.checkFixedPoint(o)
	}
}

func (n *nodeSim) carryOut(d Decision) {
	if d.Action.Kind != None { // what a kubelet did with pods says nothing about the next one
		n.node.Started, n.node.Refused = nil, nil
	}

	switch d.Action.Kind {
	case None:
		return
	case Refuse:
		n.note("Refuse: %s", d.Action.Message)
		n.refused = true
		n.kill()
		return
	}

	if d.Action.Kind == Restart && n.examined != n.file {
		n.note("stopped: the kubelet's file was replaced")
		n.child = Child{}
		n.stopped++
		n.examine()

		return
	}

	n.note("%s %s, cause %s", d.Action.Kind, label(d.Action.Config, n.local), d.Action.Cause)
	n.child, n.renewed = Child{Alive: true}, n.clock
	if d.Action.Cause == CauseResume && n.node.API {
		n.node.LostPods = nil
	}
}

// converge decides until nothing is left to do now, as the agent does.
func (n *nodeSim) converge() {
	for range 50 {
		if !n.up {
			return
		}

		n.decide()
		if !n.up || n.last.Action.Kind != None {
			continue
		}
		if !n.validate() {
			return
		}
	}

	n.t.Fatalf("no end of deciding: %+v", n.last)
}

// validate sets the verdicts that the last decision requested. It returns false
// if there are none.
func (n *nodeSim) validate() bool {
	found := false
	configs := n.last.Validate
	if n.basis != nil && n.mayStart() {
		configs = append([]Config{{}}, configs...) // the fallback, at once
	}

	for _, c := range configs {
		if _, ok := n.verdicts[c.Revision]; ok || n.validationHangs {
			continue
		}

		v := n.dryRun(c)
		if n.basis != nil {
			n.basis[c.Revision] = n.files()
		}

		n.note("validate %s: %s", label(c, n.local), outcomes[v.Outcome])
		n.verdicts[c.Revision], n.counted, found = v, n.clock, true
	}

	if found {
		n.clock += n.validationTakes
	}

	return found
}

// outcomes are the words for each Outcome.
var outcomes = []string{"not validated", "accepted", "rejected", "refused", "could not tell", "unavailable", "protected"}

// pass advances the clock, and decides whenever Decision.Wake asks for it.
func (n *nodeSim) pass(d time.Duration) {
	for end := n.clock + d; n.clock < end && n.up; {
		n.convergeAfter(min(n.last.Wake, end-n.clock))
	}
}

// convergeAfter decides after d. The wall clock jumps by a day, forth and back:
// no decision depends on it.
func (n *nodeSim) convergeAfter(d time.Duration) {
	n.clock += d
	n.clockJumps = 24*time.Hour - n.clockJumps
	n.converge()
}

// exit ends the kubelet unexpectedly.
func (n *nodeSim) exit(words string, spawned bool) {
	n.child = Child{Exited: true, Spawned: spawned, Exit: words, LastErrors: n.lastErrors}
	n.examine()
	n.converge()
}

// ask decides, and checks properties that hold for each decision.
func (n *nodeSim) ask(s State, o Observed) Decision {
	n.steps++
	before := s.deepCopy()
	d := Decide(s, o)
	if d.Ask != nil {
		n.must(reflect.DeepEqual(d, Decision{Next: s, Ask: d.Ask}), "it asks the guard, and decides: %+v", d)
		o.Guard = &Permit{Adoption: *d.Ask, Pods: o.Node.Pods}
		d = Decide(s, o)
	}

	n.must(reflect.DeepEqual(before, s), "Decide modified the state handed to it:\nbefore %+v\nafter  %+v", before, s)
	n.must(d.Action.Kind == Refuse || d.Wake > 0, "it would never be decided again: wake is %s", d.Wake)
	n.must(d.Wake <= 10*time.Second || d.Next.Run.Delay > 0, "the next decision is in %s", d.Wake)
	n.must(d.Next.Temporary == nil || !d.Next.LastKnownGood.Same(Config{Revision: d.Next.Temporary.Revision}),
		"a temporary assignment is last-known-good: %+v", d.Next.LastKnownGood)
	n.must(len(d.Next.Startups) <= 11, "%d startups are kept", len(d.Next.Startups))
	n.must(len(d.Next.Promoted) <= maxPromoted, "%d promotions are kept", len(d.Next.Promoted))
	n.must(distinct(d.Next.Bad, func(b BadConfig) string { return b.Revision }), "a revision is bad twice: %+v", d.Next.Bad)
	n.must(distinct(d.Next.Promoted, func(p Promotion) string { return p.Revision + p.Local }), "a revision was promoted twice: %+v", d.Next.Promoted)
	n.must(d.Action.Kind == None || d.Action.Kind == Refuse || d.Action.Config == d.Next.Run.Config, "the started configuration is not Run.Config")
	n.must(len(d.Validate) > 0 || d.Action.Kind == Refuse || d.Status.Condition.Cause != "" && d.Status.Condition.Message != "", "the condition says nothing: %+v", d.Status)

	return d
}

// checkFixedPoint checks invariant 5: with unchanged inputs, after the action
// was carried out, another decision changes nothing.
func (n *nodeSim) checkFixedPoint(o Observed) {
	o.Elapsed, o.Forget, o.Child.Exited = 0, nil, false
	o.Node.LostPods = n.node.LostPods // they depend on the State: those that ran when the trial began
	if n.last.Action.Kind != None {
		o.Child = Child{Alive: true}
		o.Node.Started, o.Node.Refused = n.node.Started, n.node.Refused // of the kubelet that runs now
	}

	d := n.ask(n.state, o)
	if c := o.Intent.Config; n.last.Action.Kind != None && o.Intent.Kind == Assigned && n.state.Run.Config.SHA256 == c.SHA256 && !n.state.Current.Same(c) {
		return // after a rollback, what is assigned may be the content that runs now
	}
	if n.last.Action.Kind == Start && happened(d, eventAssignmentEnded) {
		return // a start for another reason completes the return, and the next decision tells it
	}

	if n.last.Action.Kind != None {
		d.Next.Run.APISeen = n.state.Run.APISeen // since that start: the API is seen for the first time
		if t := d.Next.Trial; t != nil && n.state.Trial != nil && o.Node.API {
			t.APILostEarly = n.state.Trial.APILostEarly
		}
	}

	n.must(reflect.DeepEqual(d.Validate, n.last.Validate), "deciding again asks for other verdicts: %v", d.Validate)
	n.must(d.Action.Kind == None, "deciding again asks for %s %s", d.Action.Kind, d.Action.Config.Revision)
	n.must(len(d.Events) == 0, "deciding again tells %v", d.Events)
	if !reflect.DeepEqual(d.Next, n.state) {
		n.must(false, "deciding again changes the state:\n%s", cmp.Diff(n.state, d.Next))
	}
}

func (n *nodeSim) must(ok bool, format string, args ...any) {
	if !ok {
		n.t.Helper()
		n.t.Fatalf(format+"\ntrace:\n  %s", append(args, strings.Join(n.trace[max(0, len(n.trace)-40):], "\n  "))...)
	}
}

func (n *nodeSim) note(format string, args ...any) {
	n.trace = append(n.trace, fmt.Sprintf(format, args...))
}

func distinct[T any](list []T, key func(T) string) bool {
	seen := map[string]bool{}
	for _, x := range list {
		seen[key(x)] = true
	}

	return len(seen) == len(list)
}

// deepCopy returns a copy that shares nothing with s.
func (s State) deepCopy() State {
	c := s.clone()
	if s.Trial != nil {
		t := *s.Trial
		t.Baseline.Pressure, t.Baseline.Pods = slices.Clone(t.Baseline.Pressure), slices.Clone(t.Baseline.Pods)
		t.Baseline.Failing, t.Started = slices.Clone(t.Baseline.Failing), slices.Clone(t.Started)
		c.Trial = &t
	}

	return c
}
