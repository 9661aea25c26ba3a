// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// evidence checks for each decision that its cause has really happened: a
// failure counts only if the state was good before and changed while the
// configuration ran, and nothing is removed without a reason.
type evidence struct {
	n      *randomNode
	begun  map[time.Time]Node // by the start of a trial: the node as it was
	states map[time.Time]*states
	open   map[time.Time]bool // it is not known why the node was not Ready: what counts is when it is Ready first
	probes map[time.Time]int  // by the start of a trial: how often the API was lost
	ran    time.Duration      // what runs now
	well   time.Duration      // the kubelet, without a break
	was    bool               // well at the last decision
	refuse time.Duration      // pods were refused, without a break
}

func newEvidence(n *randomNode) *evidence {
	return &evidence{n: n, begun: map[time.Time]Node{}, states: map[time.Time]*states{}, open: map[time.Time]bool{}, probes: map[time.Time]int{}}
}

func (e *evidence) watch(before State, o Observed, d Decision) {
	if before.Run.Started && o.Child.Alive && !o.Child.Waiting {
		e.ran += o.Elapsed
	}

	runs := before.Run.Started && before.OnTrial(before.Run.Config) && before.Trial.Fallback == NoFallback && !before.forbids(before.Run.Config)
	if t := before.Trial; !before.Run.Started && t != nil && t.Baseline.Pending {
		e.begun[t.StartTime], e.open[t.StartTime] = Node{}, true // what the agent before saw may not be on disk
	}
	if t := before.Trial; runs && e.open[t.StartTime] && o.Child.Alive && o.Child.Healthy && o.Node.API && o.Node.Ready {
		e.begun[t.StartTime], e.open[t.StartTime] = o.Node, false
	}

	now := before.Run.Started && o.Child.Alive && o.Child.Healthy && !o.Child.Waiting
	if now && e.was {
		e.well += min(o.Elapsed, maxGap)
	} else if !o.Child.Waiting || !o.Child.Alive {
		e.well = 0
	}

	e.was = now && d.Action.Kind == None
	if e.refuse += min(o.Elapsed, maxGap); len(o.Node.Refused) == 0 {
		e.refuse = 0
	}

	e.harmIsNew(before, o, d)
	e.mostlyWell(before, o, d, now)
	e.apiProbedOnce(before, d)
	e.saw(fourBad, len(before.Bad) >= 4)
	e.rollbacksDoNotWait(before, o, d)
	e.localIsValidAtStart(before, o, d)
	e.stateFollowsTheAssignment(before, o, d)
	e.rebootsCountOnce(before, o, d)
	if t := d.Next.Trial; t != nil && (before.Trial == nil || !t.StartTime.Equal(before.Trial.StartTime)) {
		node := o.Node
		node.Ready = node.Ready && node.API
		open := !node.Ready && (!node.API || !now || e.well < time.Minute)
		if was := before.Trial; was != nil { // what it may have done to the node is no reference
			node.Ready = node.Ready || !e.open[was.StartTime] && e.begun[was.StartTime].Ready
			open = !node.Ready && e.open[was.StartTime]
		}

		if t.Baseline.Pending { // the earlier trial may be a record of long ago
			node, open = Node{}, true
		}

		e.begun[t.StartTime], e.open[t.StartTime] = node, open
	}

	if d.Action.Kind != None && d.Action.Cause != CauseCrash {
		e.ran = 0
	}
}

func (e *evidence) saw(what string, so bool) {
	if so {
		e.n.seen[what]++
	}
}

// fresh returns the verdicts that are new in a decision.
func fresh(before State, d Decision) []BadConfig {
	return slices.DeleteFunc(slices.Clone(d.Next.Bad), func(b BadConfig) bool {
		return slices.ContainsFunc(before.Bad, func(x BadConfig) bool {
			return x.Revision == b.Revision && x.Time.Equal(b.Time) && x.Failure == b.Failure
		})
	})
}

func happened(d Decision, reason string) bool {
	return slices.ContainsFunc(d.Events, func(e Event) bool { return e.Reason == reason })
}

// harmIsNew is part of invariant 7: a state counts only if it was good when the
// trial began and changed while the configuration ran.
func (e *evidence) harmIsNew(before State, o Observed, d Decision) {
	t := before.Trial
	if t == nil {
		return
	}

	on := before.Run.Started && before.OnTrial(before.Run.Config) && t.Fallback == NoFallback
	node, known := e.begun[t.StartTime]
	e.saw(notReadyAtBegin, on && known && !node.API && o.Node.API && !o.Node.Ready)
	e.saw(harmBeforeRun, on && e.ran == 0 && o.Node.API && len(o.Node.LostPods)+len(o.Node.Pressure) > 0)
	for _, b := range fresh(before, d) {
		switch {
		case b.Failure == v1alpha1.ReasonWorkloadHarmed:
			e.n.must(e.ran > 0, "WorkloadHarmed for %s, which has not run yet", b.Revision)
			e.n.must(len(o.Node.LostPods) > 0 || !known || node.API, "WorkloadHarmed for %s, but the earlier pressure is not known", b.Revision)
		case b.Failure == v1alpha1.ReasonPodsCannotStart:
			e.n.must(e.refuse >= 90*time.Second, "pods were refused for %s only", e.refuse)
		case b.Failure == v1alpha1.ReasonNotReady && known:
			e.n.must(node.Ready, "NotReady for %s, but the node was %+v before", b.Revision, node)
		case b.Failure == v1alpha1.ReasonLostAPI && known:
			e.n.must(node.API, "LostAPI for %s, but the API was not reachable before", b.Revision)
		}
	}
}

// states are the times in which the configuration on trial was in a good or a
// bad state.
type states struct{ healthy, unhealthy, ready, notReady time.Duration }

// mostlyWell: what is promoted was well for most of its trial, and has the node
// Ready, unless the node was not Ready for another reason. A withdrawn verdict
// and an exit start the count anew, and what an agent saw in its last seconds
// may be lost.
func (e *evidence) mostlyWell(before State, o Observed, d Decision, now bool) {
	t := before.Trial
	if t == nil {
		return
	}

	s := e.states[t.StartTime]
	if waits := before.forbids(before.Current.Config) || t.Fallback != NoFallback || noWayOut(before, o); s == nil || o.Child.Exited || !before.Run.Started || waits {
		s = &states{}
		e.states[t.StartTime] = s
	}

	known := before.OnTrial(before.Run.Config) && o.Child.Alive && !o.Child.Waiting && !o.Node.RuntimeDown && !o.Node.ShuttingDown && !before.Run.Outage
	switch gap := min(o.Elapsed, maxGap); {
	case !known:
	case !now:
		s.unhealthy += gap
	case now:
		s.healthy += gap
		if o.Node.API && !before.Run.ClocksPaused && !o.Node.Ready && !e.open[t.StartTime] {
			s.notReady += gap
		} else if o.Node.API {
			s.ready += gap
		}
	}

	if happened(d, "ConfigLastKnownGood") {
		node, known := e.begun[t.StartTime]
		e.n.must(!known || o.Node.Ready || !e.open[t.StartTime] && !node.Ready, "%s was promoted, and the node is not Ready, which it was before: %+v", t.Revision, node)
		e.n.must(s.unhealthy <= e.n.limits.HealthTimeout+s.healthy/4, "%s was promoted: not healthy for %s of %s", t.Revision, s.unhealthy, s.unhealthy+s.healthy)
		e.n.must(e.open[t.StartTime] || !e.begun[t.StartTime].Ready || s.notReady <= e.n.limits.ReadyTimeout+s.ready/4, "%s was promoted: the node was not Ready for %s of %s", t.Revision, s.notReady, s.notReady+s.ready)
	}
}

func (e *evidence) apiProbedOnce(before State, d Decision) {
	if e.n.diskFails != "" || e.n.tearDisk != nil {
		clear(e.probes) // it may not remember
	}

	t := before.Trial
	if t == nil {
		return
	}

	e.saw(apiLostAgain, t.APIProbed && t.Fallback == NoFallback && before.OnTrial(before.Run.Config) && before.Run.APISeen && before.Run.APIAway >= apiLossAfter)
	if happened(d, "APILost") {
		e.probes[t.StartTime]++
		e.n.must(e.probes[t.StartTime] == 1 && !t.APIProbed, "last-known-good was tried %d times for the sake of the API", e.probes[t.StartTime])
	}
}

// rollbacksDoNotWait: a rollback waits only for the verdict on the
// configuration that it rolls back to.
func (e *evidence) rollbacksDoNotWait(before State, o Observed, d Decision) {
	run := before.Run.Config
	if _, bad := d.Next.BadEntry(run); !before.Run.Started || !bad || !o.Child.Alive || o.Node.ShuttingDown {
		return
	}

	back := d.Next.LastKnownGood.Config
	if v := o.Verdicts[back.Revision].Outcome; d.Next.forbids(back) || v == Rejected || v == Unavailable || v == Protected {
		back = Config{}
	}

	others := slices.ContainsFunc(d.Validate, func(c Config) bool { return c.Revision != back.Revision })
	e.saw(failedWhileValidating, happened(d, "ConfigRolledBack") && others)
	if d.Action.Kind == None && !slices.ContainsFunc(d.Validate, func(c Config) bool { return c.Revision == back.Revision }) {
		dead := o.Verdicts[""].Outcome == Rejected
		e.n.must(dead, "%s is bad and keeps running while the node waits for the verdict on %+v", run.Revision, d.Validate)
	}
}

// localIsValidAtStart: local is valid at each start, or --local-invalid=degrade
// is set and another configuration is proven.
func (e *evidence) localIsValidAtStart(before State, o Observed, d Decision) {
	if before.Run.Started || o.Verdicts[""].Outcome != Rejected {
		return
	}

	proven := func(c Config) bool {
		_, bad := d.Next.BadEntry(c)
		return !c.IsLocal() && !bad && !d.Next.IsRevoked(c)
	}
	good := proven(before.LastKnownGood.Config) || proven(d.Next.LastKnownGood.Config)
	e.saw(localBecameInvalid, o.Limits.DegradeLocal && !before.LastKnownGood.IsLocal() && !proven(before.LastKnownGood.Config))
	switch d.Action.Kind {
	case Start:
		e.n.must(o.Limits.DegradeLocal, "a kubelet was started beside an invalid local configuration")
		e.n.must(good, "a kubelet was started beside an invalid local configuration, and nothing is proven")
	case Refuse:
		e.n.must(!o.Limits.DegradeLocal || !good || o.Verdicts[d.Next.LastKnownGood.Revision].Outcome != Accepted, "refused although last-known-good may run")
	}
}

// stateFollowsTheAssignment: the state contains the assigned configuration as
// it was assigned, also as last-known-good. A checkpoint that was downloaded
// again is another file; with the old digest it would count as corrupt.
func (e *evidence) stateFollowsTheAssignment(before State, o Observed, d Decision) {
	c, s := o.Intent.Config, d.Next
	_, bad := s.BadEntry(c)
	if o.Intent.Kind != Assigned || !s.Current.Same(c) || bad || s.IsRevoked(c) || o.Node.ShuttingDown || !s.Run.Started {
		return
	}

	e.saw(downloadedAgain, before.LastKnownGood.Same(c) && before.LastKnownGood.Checkpoint != c.Checkpoint)
	e.n.must(s.Current.Config == c, "assigned %+v, saved as current %+v", c, s.Current.Config)
	e.n.must(!s.LastKnownGood.Same(c) || s.LastKnownGood.Config == c, "assigned %+v, saved as last-known-good %+v", c, s.LastKnownGood.Config)
	e.n.must(s.Run.Config.Revision != c.Revision || s.Run.Config == c, "assigned is %+v, said to run %+v", c, s.Run.Config)
}

// rebootsCountOnce, and only if the reboot is known.
func (e *evidence) rebootsCountOnce(before State, o Observed, d Decision) {
	t := before.Trial
	if before.Run.Started || t == nil || d.Next.Trial == nil || !t.StartTime.Equal(d.Next.Trial.StartTime) {
		return
	}

	e.saw(unknownBoot, !t.Clean && (t.BootID == "") != (o.BootID == ""))
	if t.BootID == "" || o.BootID == "" || t.BootID == o.BootID || t.Clean {
		e.n.must(len(d.Next.Startups) <= len(before.Startups), "a start was counted, and the node did not go down: %+v, now on %q", t, o.BootID)
	}
}

// What the rare scenarios show. The test fails if its histories show one of
// them too rarely.
const (
	notReadyAtBegin       = "a trial that began without the API, and a node that is not ready"
	harmBeforeRun         = "harm before the configuration on trial ran"
	apiLostAgain          = "the API lost a second time in one trial"
	failedWhileValidating = "a trial that failed while another configuration was judged"
	localBecameInvalid    = "a start with an invalid local configuration and a forbidden last-known-good"
	downloadedAgain       = "last-known-good assigned again with another checkpoint"
	unknownBoot           = "a start whose boot ID is not known, or was not before"
	fourBad               = "four bad configurations"
	onlyTrialWorks        = "a trial that waits for what never works"
)

// rareScenarios are sequences that random events alone hardly ever produce.
// Their outcome depends on the node's history; evidence counts what they show.
func (n *randomNode) rareScenarios() map[string]func(*rapid.T) {
	coin := func(label string) bool { return rapid.Bool().Draw(n.r, label) }
	calm := func() { n.change(n.repairAll)(n.r); n.pass(5 * time.Second) }
	assign := func() { n.change(func() { n.intent = Intent{Kind: Assigned, Config: n.drawConfig()} })(n.r) }
	accept := func(payload int) {
		for u := range 2 {
			n.dryRuns[randomConfig(payload, u).Revision] = Verdict{Outcome: Accepted}
			delete(n.verdicts, randomConfig(payload, u).Revision)
		}
	}
	assignAccepted := func(c Config, payload int) { // in an attempt that counts
		n.change(func() {
			accept(payload)
			for _, b := range n.state.Bad {
				if b.matches(c) {
					c.Rollout.Attempt = max(c.Rollout.Attempt, b.Attempt+1)
				}
			}

			n.revoke()
			n.intent = Intent{Kind: Assigned, Config: c}
		})(n.r)
	}
	fresh := func(payload int) {
		assignAccepted(randomConfig(payload, rapid.IntRange(0, 1).Draw(n.r, "uid")), payload)
	}
	any := func() int { return rapid.IntRange(0, 4).Draw(n.r, "payload") }
	prove := func() { fresh(4); n.pass(70 * time.Second) } // it asks for a minute

	return map[string]func(*rapid.T){
		"adopted-in-an-outage": func(*rapid.T) {
			calm()
			n.change(func() { n.node.API = false })(n.r)
			fresh(any())
			n.pass(5 * time.Second)
			n.change(func() { n.node.API, n.node.Ready = true, false })(n.r)
			n.pass(70 * time.Second)
		},
		"comes-and-goes": func(*rapid.T) {
			calm()
			fresh(any())
			state := &n.healthy
			if coin("readiness") {
				state = &n.node.Ready
			}

			bad, good := rapid.SampledFrom([]int{1, 20, 40}).Draw(n.r, "bad seconds"), rapid.SampledFrom([]int{10, 20, 90}).Draw(n.r, "good seconds")
			for range 20 {
				*state = false
				n.pass(time.Duration(bad) * time.Second)
				*state = true
				n.pass(time.Duration(good) * time.Second)
			}
		},
		"harm-before-it-runs": func(*rapid.T) { // the kubelet waits for its lock
			calm()
			n.change(func() { n.waiting = true })(n.r)
			fresh(any())
			n.change(func() {
				n.node.Pressure, n.node.LostPods = []string{"PIDPressure"}, nil
				if coin("pods") {
					n.node.Pressure, n.node.LostPods = nil, []string{"pod"}
				}
			})(n.r)
			n.pass(20 * time.Second)
			n.change(n.repairAll)(n.r)
		},
		"api-lost-again": func(*rapid.T) {
			n.limits.APILossRollback = true
			calm()
			fresh(any())
			n.pass(5 * time.Second)
			for range rapid.IntRange(1, 2).Draw(n.r, "times") {
				n.change(func() { n.node.API = false })(n.r)
				n.pass(610 * time.Second) // it is tried without, which takes two minutes and does not help
				n.pass(130 * time.Second)
				n.change(func() { n.node.API = true })(n.r)
				n.pass(5 * time.Second)
			}
		},
		"fails-while-another-is-judged": func(*rapid.T) {
			calm()
			fresh(any())
			n.pass(5 * time.Second)
			n.validationHangs = true
			assign()
			n.change(func() { n.healthy = false })(n.r)
			n.pass(70 * time.Second)
			n.validationHangs = false
			n.change(n.repairAll)(n.r)
		},
		"local-breaks": func(*rapid.T) {
			calm()
			fresh(any())
			if coin("proven") {
				prove()
				if coin("revoked") {
					n.change(func() { n.revoke(n.state.LastKnownGood.UID) })(n.r)
					n.intent = Intent{Kind: Assigned, Config: n.drawConfig()}
				}
			}

			n.dryRuns[""] = Verdict{Outcome: Rejected, Message: "local is broken"}
			n.kill()
			n.start()
			n.pass(5 * time.Second)
			n.dryRuns[""] = Verdict{Outcome: Accepted}
			n.start()
		},
		"local-never-works": func(*rapid.T) { // what is on trial failed too, and would be well by now
			calm()
			if n.state.LastKnownGood.IsLocal() && coin("proven") {
				prove()
			}
			if n.change(func() { n.inv.starts--; n.replaceFile("v3"); n.examine() })(n.r); n.state.Trial == nil {
				fresh(any())
			}

			n.healthy = false
			n.pass(5 * time.Minute)
			if t := n.state.Trial; !n.up || t == nil || t.Fallback != Inconclusive || n.diskFails != "" || !n.state.Run.Config.IsLocal() {
				return
			}

			c := n.state.Current.Config
			if n.state.IsRevoked(c) {
				return // it does not run, however well it would be
			}
			if good := n.state.LastKnownGood; !good.IsLocal() && !good.Same(c) {
				return // it may be in turn as well, for as long
			}

			n.seen[onlyTrialWorks]++
			n.dryRuns[c.Revision] = Verdict{Outcome: Accepted}
			delete(n.verdicts, c.Revision)
			n.change(n.repairAll)(n.r)
			n.unhealthyConfig = func(c Config) bool { return c.IsLocal() }
			for range 2 * int(retryAfter<<maxRetryDoublings/(10*time.Second)) {
				if n.pass(10 * time.Second); n.state.Run.Config.Revision == c.Revision {
					break
				}
			}

			ended := n.state.Current.IsLocal() && n.state.Temporary != nil // it waits no longer
			n.must(n.state.Run.Config.Revision == c.Revision || n.state.Run.Deferred || ended, "%s would be well, and %s runs, which is not", c.Revision, label(n.state.Run.Config, n.local))
			n.unhealthyConfig = nil
		},
		"healed": func(*rapid.T) { // what is good is downloaded anew, whatever is current
			calm()
			if n.state.LastKnownGood.IsLocal() {
				prove()
			}
			if coin("another is on trial") {
				fresh(any())
			}

			c := n.state.LastKnownGood.Config
			if c.IsLocal() {
				return
			}

			n.change(func() {
				c.Checkpoint = rapid.SampledFrom([]string{"file", "downloaded anew", "and again"}).Draw(n.r, "checkpoint")
				n.intent = Intent{Kind: Assigned, Config: c}
			})(n.r)
		},
		"unknown-boot": func(*rapid.T) {
			calm()
			n.bootIDUnknown = coin("unknown at first")
			n.kill()
			n.start()
			fresh(any())
			n.pass(5 * time.Second)
			n.kill()
			n.bootIDUnknown = coin("unknown then")
			n.start()
			n.bootIDUnknown = false
		},
		"all-rejected": func(*rapid.T) {
			calm()
			for payload := range 5 {
				c := randomConfig(payload, 0)
				if c.SHA256 == n.state.Current.SHA256 || c.SHA256 == n.state.LastKnownGood.SHA256 {
					continue // what was accepted once
				}

				n.change(func() {
					n.dryRuns[c.Revision] = Verdict{Outcome: Rejected, Message: "no"}
					n.dryRuns[randomConfig(payload, 1).Revision] = n.dryRuns[c.Revision]
					delete(n.verdicts, c.Revision)
					n.intent = Intent{Kind: Assigned, Config: c}
				})(n.r)
			}

			for payload := range 5 {
				accept(payload)
			}
		},
		"tried-again": func(*rapid.T) {
			calm()
			for payload := range 6 {
				if c := randomConfig(payload, 0); len(n.state.Bad) > 0 && n.state.Bad[0].matches(c) {
					c.Revision, c.UID = n.state.Bad[0].Revision, n.state.Bad[0].UID
					assignAccepted(c, payload)
					return
				}
			}
		},
	}
}
