// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"time"

	"pgregory.net/rapid"
)

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
